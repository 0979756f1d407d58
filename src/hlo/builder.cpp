// Text of a module, appended operation by operation in MLIR's generic form, so that every operation
// is spelled in one way. A nested region is written into its own string, since its operation's
// result types are known only once it has been emitted.
#include "hlo/builder.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

void append_attribute(std::string& out, std::string_view name, std::string_view value) {
  if (!out.empty()) out += ", ";
  out += name;
  out += " = ";
  out += value;
}

// Whether XLA, which counts bytes in 64 bits, can describe a tensor, and PyTorch make one.
bool can_be_held(const Type& type) {
  std::int64_t bytes = base::size_bytes(type.dtype);
  for (const std::int64_t d : type.dims) {
    if (d != 0 && __builtin_mul_overflow(bytes, d, &bytes)) return false;
  }
  return true;
}

// `text` with other ids in the names of values.
void append_renamed(std::string& out, std::string_view text,
                    const std::unordered_map<std::uint32_t, std::uint32_t>& ids) {
  while (true) {
    const std::size_t name = text.find('%');
    if (name == std::string_view::npos) break;
    const std::size_t number = name + 1;
    std::uint32_t id = 0;
    const char* const end =
        std::from_chars(text.data() + number, text.data() + text.size(), id).ptr;
    const auto length = static_cast<std::size_t>(end - text.data());
    const auto found = length > number ? ids.find(id) : ids.end();
    out += text.substr(0, found == ids.end() ? length : number);
    if (found != ids.end()) out += std::to_string(found->second);
    text.remove_prefix(length);
  }
  out += text;
}

// Restores the region that was being emitted, also when a body throws.
class RegionScope {
 public:
  RegionScope(std::string& current, int& depth) : current_(current), depth_(depth) {
    saved_.swap(current_);
    ++depth_;
  }
  ~RegionScope() {
    saved_.swap(current_);
    --depth_;
  }
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  std::string saved_;
  std::string& current_;
  int& depth_;
};

}  // namespace

std::size_t Builder::TypeHash::operator()(const Type& type) const noexcept {
  std::uint64_t hash = static_cast<std::uint64_t>(type.dtype) + 1;
  for (const std::int64_t d : type.dims) {
    hash = (hash ^ static_cast<std::uint64_t>(d)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

const InternedType* Builder::intern(const Type& type) {
  const auto found = interned_.find(type);
  if (found != interned_.end()) return found->second;
  base::check(can_be_held(type),
              "Storage size calculation overflowed with sizes=", base::to_string(type.dims),
              ": the tensor is larger than a program can hold");
  types_.push_back({type, mode_ == Mode::kText ? type_text(type) : std::string()});
  return interned_.emplace(type, &types_.back()).first->second;
}

Value Builder::parameter(const Type& type) {
  const Value value = new_value(intern(type));
  if (mode_ == Mode::kText) define({}, {}, {&value, 1});
  parameters_.push_back({value, ""});
  return value;
}

void Builder::set_parameter_attribute(std::size_t index, std::string_view name,
                                      std::string_view value) {
  base::internal_check(index < parameters_.size(), "hlo: parameter ", index, " of ",
                       parameters_.size());
  append_attribute(parameters_[index].attributes, name, value);
}

void Builder::set_result_attribute(std::size_t index, std::string_view name,
                                   std::string_view value) {
  append_attribute(result_attributes_[index], name, value);
}

void Builder::set_module_attribute(std::string_view name, std::string_view value) {
  append_attribute(module_attributes_, name, value);
}

void Builder::add_module_operation(std::string_view text) {
  if (!module_operation_lines_.emplace(text).second) return;
  module_operations_ += text;
  module_operations_ += '\n';
}

void Builder::set_location(std::string_view location) {
  location_ = location.empty() ? "" : " loc(" + string_literal(location) + ")";
}

void Builder::set_location(std::string_view name, std::string_view file, int line) {
  location_ =
      base::str(" loc(", string_literal(name), "(", string_literal(file), ":", line, ":0))");
}

void Builder::check_operands(std::string_view name, std::span<const Value> operands) const {
  for (const Value& operand : operands) {
    base::internal_check(operand.builder_ == this, name, ": an operand is ",
                         operand ? "of another module" : "no value");
  }
}

void Builder::define(std::string_view name, std::span<const Value> operands,
                     std::span<const Value> results) {
  if (results.empty()) return;
  const auto first = static_cast<std::uint32_t>(operand_ids_.size());
  const auto count = static_cast<std::uint32_t>(operands.size());
  for (const Value& operand : operands) operand_ids_.push_back(operand.id_);
  definitions_.resize(results.back().id_ + std::size_t{1});
  for (const Value& result : results) {
    definitions_[result.id_] = {name, &result.type_->type, first, count, {}, 0};
  }
}

Builder::Definition Builder::definition(std::uint32_t id) const {
  if (id >= definitions_.size()) return {};
  const OperandRange& range = definitions_[id];
  return {range.name, range.type, std::span(operand_ids_).subspan(range.first, range.count)};
}

void Builder::set_end(std::span<const Value> results) {
  if (region_depth_ > 0) return;
  for (const Value& result : results) {
    OperandRange& definition = definitions_[result.id_];
    definition.value = result;
    definition.end = body_.size();
  }
}

Value Builder::value_of(std::uint32_t id) const {
  return id < definitions_.size() ? definitions_[id].value : Value();
}

void Builder::insert_behind(std::uint32_t last, const Value& value,
                            const std::function<Value()>& emit) {
  base::internal_check(value_of(last) && region_depth_ == 0, "hlo: nothing can follow value ",
                       last);
  const std::size_t position = definitions_[last].end;
  std::string text;
  body_.swap(text);
  const Value replacement = emit();
  body_.swap(text);
  insertions_.push_back({position, std::move(text), value.id_, replacement.id_});
}

// Their texts are put together with that of the main function, in which values are read under
// other names behind each of them.
void Builder::apply_insertions() {
  if (insertions_.empty()) return;
  std::ranges::stable_sort(insertions_, {}, &Insertion::position);
  std::unordered_map<std::uint32_t, std::uint32_t> renamed;
  std::string text;
  std::size_t position = 0;
  for (const Insertion& insertion : insertions_) {
    append_renamed(text, std::string_view(body_).substr(position, insertion.position - position),
                   renamed);
    append_renamed(text, insertion.text, renamed);
    renamed[insertion.replaced] = insertion.replacement;
    position = insertion.position;
  }
  append_renamed(text, std::string_view(body_).substr(position), renamed);
  body_ = std::move(text);
}

const Dims* Builder::slice_starts(std::uint32_t id) const {
  const auto found = slice_starts_.find(id);
  return found == slice_starts_.end() ? nullptr : &found->second;
}

void Builder::set_slice_starts(const Value& slice, const Dims& starts) {
  if (mode_ == Mode::kText) slice_starts_.emplace(slice.id_, starts);
}

const Builder::Transposition* Builder::transposition(const Value& value) const {
  const auto found = transpositions_.find(value.id_);
  return found == transpositions_.end() ? nullptr : &found->second;
}

void Builder::set_transposition(const Value& result, const Value& operand,
                                const Dims& permutation) {
  if (mode_ == Mode::kText) transpositions_.insert({result.id_, {operand, permutation}});
}

const Builder::Broadcast* Builder::broadcast(const Value& value) const {
  const auto found = broadcasts_.find(value.id_);
  return found == broadcasts_.end() ? nullptr : &found->second;
}

void Builder::set_broadcast(const Value& result, const Value& operand, const Dims& dimensions) {
  if (mode_ == Mode::kText) broadcasts_.insert({result.id_, {operand, dimensions}});
}

const Value* Builder::reshaped(const Value& value) const {
  const auto found = reshaped_.find(value.id_);
  return found == reshaped_.end() ? nullptr : &found->second;
}

void Builder::set_reshaped(const Value& result, const Value& operand) {
  if (mode_ == Mode::kText) reshaped_.insert({result.id_, operand});
}

const Builder::SliceUpdate* Builder::slice_update(const Value& value) const {
  const auto found = slice_updates_.find(value.id_);
  return found == slice_updates_.end() ? nullptr : &found->second;
}

void Builder::set_slice_update(const Value& result, const SliceUpdate& update) {
  if (mode_ == Mode::kText) slice_updates_.insert({result.id_, update});
}

void Builder::append_value(std::string& out, const Value& value) const {
  std::array<char, 12> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value.id_).ptr;
  out += '%';
  out.append(digits.data(), end);
}

void Builder::append_op(std::span<const Value> results, std::string_view name,
                        std::span<const Value> operands, std::string_view properties,
                        std::span<const std::string> regions, std::string_view attributes) {
  const auto append_list = [this](std::span<const Value> values, bool types) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) body_ += ", ";
      if (types) {
        body_ += values[i].type_->text;
      } else {
        append_value(body_, values[i]);
      }
    }
  };
  append_list(results, false);
  if (!results.empty()) body_ += " = ";
  body_ += '"';
  body_ += name;
  body_ += "\"(";
  append_list(operands, false);
  body_ += ')';
  if (!properties.empty()) {
    body_ += " <{";
    body_ += properties;
    body_ += "}>";
  }
  for (std::size_t i = 0; i < regions.size(); ++i) {
    body_ += i == 0 ? " ({\n" : ", {\n";
    body_ += regions[i];
    body_ += '}';
  }
  if (!regions.empty()) body_ += ')';
  if (!attributes.empty()) {
    body_ += " {";
    body_ += attributes;
    body_ += '}';
  }
  body_ += " : (";
  append_list(operands, true);
  body_ += ") -> ";
  if (results.size() != 1) body_ += '(';
  append_list(results, true);
  if (results.size() != 1) body_ += ')';
  body_ += location_;
  body_ += '\n';
  set_end(results);
}

Value Builder::op(std::string_view name, std::span<const Value> operands, const Type& result,
                  std::string_view properties, std::span<const std::string> regions) {
  check_operands(name, operands);
  const InternedType* const type = intern(result);
  if (mode_ == Mode::kTypesOnly) return new_value(type);
  Value* const shared = shared_value(name, operands, type, properties);
  if (shared != nullptr && *shared) return *shared;
  const Value value = new_value(type);
  define(name, operands, {&value, 1});
  append_op({&value, 1}, name, operands, properties, regions);
  if (shared != nullptr) *shared = value;
  return value;
}

bool Builder::is_shared(std::string_view name, std::span<const Value> operands) const {
  static constexpr std::array<std::string_view, 8> kNames = {
      "stablehlo.add",    "stablehlo.broadcast_in_dim", "stablehlo.compare", "stablehlo.convert",
      "stablehlo.divide", "stablehlo.multiply",         "stablehlo.select",  "stablehlo.subtract"};
  return region_depth_ == 0 && std::ranges::find(kNames, name) != kNames.end() &&
         std::ranges::all_of(operands, [](const Value& operand) { return operand.rank() == 0; });
}

// Where the value of such an operation is, or is to be; null for one that has a value of its own.
Value* Builder::shared_value(std::string_view name, std::span<const Value> operands,
                             const InternedType* type, std::string_view properties) {
  if (!is_shared(name, operands)) return nullptr;
  std::string key(name);
  for (const Value& operand : operands) append_value(key, operand);
  key += type->text;
  key += properties;
  return &once_[std::move(key)];
}

Values Builder::op(std::string_view name, std::span<const Value> operands,
                   std::span<const Type> results, std::string_view properties,
                   std::span<const std::string> regions, std::string_view attributes) {
  check_operands(name, operands);
  Values values;
  values.reserve(results.size());
  for (const Type& result : results) values.push_back(new_value(intern(result)));
  if (mode_ == Mode::kTypesOnly) return values;
  define(name, operands, values);
  append_op(values, name, operands, properties, regions, attributes);
  return values;
}

Value Builder::op_once(std::string_view name, const Type& result, std::string_view properties) {
  if (mode_ == Mode::kTypesOnly || region_depth_ > 0) return op(name, {}, result, properties);
  std::string key(properties);
  key += '\0';
  key += name;
  key += intern(result)->text;
  const auto found = once_.find(key);
  if (found != once_.end()) return found->second;
  return once_.emplace(std::move(key), op(name, {}, result, properties)).first->second;
}

void Builder::append_return(std::string_view name, std::span<const Value> values) {
  check_operands(name, values);
  if (mode_ == Mode::kText) append_op({}, name, values, {}, {});
}

Builder::RegionText Builder::region(std::span<const Type> arguments, const Region& body) {
  RegionText result;
  const RegionScope scope(body_, region_depth_);
  Values values;
  values.reserve(arguments.size());
  for (const Type& argument : arguments) values.push_back(new_value(intern(argument)));
  if (mode_ == Mode::kText && !values.empty()) {
    body_ += "^bb0(";
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) body_ += ", ";
      append_value(body_, values[i]);
      body_ += ": ";
      body_ += values[i].type_->text;
    }
    body_ += "):\n";
  }
  const Values yielded = body(values);
  append_return("stablehlo.return", yielded);
  for (const Value& value : yielded) result.yielded.push_back(value.type());
  result.text = std::move(body_);
  return result;
}

void Builder::define_function(const std::string& name, const std::vector<Type>& parameters,
                              const Region& body) {
  if (functions_.contains(name)) return;
  Function function{parameters, {}};
  std::string header;
  std::string text;
  {
    const RegionScope scope(body_, region_depth_);
    Values values;
    for (const Type& parameter : parameters) values.push_back(new_value(intern(parameter)));
    const Values results = body(values);
    append_return("func.return", results);
    text = std::move(body_);
    header = "func.func private @" + string_literal(name) + "(";
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) header += ", ";
      append_value(header, values[i]);
      header += ": " + values[i].type_->text;
    }
    header += ") -> (";
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (i > 0) header += ", ";
      header += results[i].type_->text;
      function.results.push_back(results[i].type());
    }
    header += ") {\n";
  }
  if (mode_ == Mode::kText) functions_text_ += header + text + "}\n";
  functions_.emplace(name, std::move(function));
}

void Builder::define_functions(const std::string& name, const std::vector<Type>& parameters,
                               const std::vector<Type>& results, std::string_view text) {
  if (!functions_.emplace(name, Function{parameters, results}).second) return;
  if (mode_ == Mode::kText) functions_text_ += text;
}

const std::vector<Type>& Builder::function_results(const std::string& name,
                                                   const Values& operands) const {
  const auto found = functions_.find(name);
  base::internal_check(found != functions_.end(), "hlo: call of undefined function ", name);
  const Function& function = found->second;
  base::internal_check(function.parameters.size() == operands.size(), "hlo: function ", name,
                       " takes ", function.parameters.size(), " operands, got ", operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    base::internal_check(operands[i] && operands[i].type() == function.parameters[i],
                         "hlo: operand ", i, " of function ", name, " must be ",
                         base::to_string(function.parameters[i]));
  }
  return function.results;
}

Values Builder::call(const std::string& name, const Values& operands) {
  const std::vector<Type>& results = function_results(name, operands);
  return op("func.call", operands, results, "callee = @" + string_literal(name));
}

std::string Builder::finish(std::span<const Value> results, std::string_view name) {
  if (mode_ == Mode::kTypesOnly) return "";
  append_return("func.return", results);
  apply_insertions();
  std::string out = "module @torch_xla";
  if (!module_attributes_.empty()) out += " attributes {" + module_attributes_ + "}";
  out += " {\n" + module_operations_;
  out.reserve(out.size() + body_.size() + functions_text_.size() + 64 * parameters_.size() + 256);
  out += "func.func public @" + string_literal(name) + "(";
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    if (i > 0) out += ", ";
    append_value(out, parameter.value);
    out += ": " + parameter.value.type_->text;
    if (!parameter.attributes.empty()) out += " {" + parameter.attributes + "}";
  }
  out += ") -> (";
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i > 0) out += ", ";
    out += results[i].type_->text;
    const auto attributes = result_attributes_.find(i);
    if (attributes != result_attributes_.end()) out += " {" + attributes->second + "}";
  }
  out += ") {\n" + body_ + "}\n" + functions_text_ + "}\n";
  return out;
}

void fail_no_dim(std::int64_t dim, std::size_t rank) {
  base::fail(base::ErrorKind::kIndex, "Dimension out of range: there is no dimension ", dim,
             " of a tensor with ", rank, " dimensions");
}

}  // namespace torch_xla::hlo
