// A StableHLO module under construction. Lowerings pass `Value`s through the functions of
// `hlo/ops.h`; each appends one operation to the Builder its operands belong to, checks the
// specification's constraints and infers the result's type. `Builder::finish` gives the module's
// text, which a PJRT plugin takes as a program of format "mlir". With `Mode::kTypesOnly` the same
// calls infer the same types and make no text.
#pragma once

#include <complex>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace torch_xla::hlo {

using base::Dims;
using base::DType;
using Type = base::Shape;

class Builder;

// A type and its MLIR spelling ("tensor<2x3xf32>"), stored once per Builder.
struct InternedType {
  Type type;
  std::string text;
};

[[noreturn]] void fail_no_dim(std::int64_t dim, std::size_t rank);

// The result of an operation, or a parameter. Cheap to copy; valid as long as its Builder lives.
class Value {
 public:
  Value() = default;

  explicit operator bool() const { return builder_ != nullptr; }
  const Type& type() const { return type_->type; }
  DType dtype() const { return type_->type.dtype; }
  const Dims& dims() const { return type_->type.dims; }
  // The size of dimension `i`, which may not be negative. IndexError where there is none.
  std::int64_t dim(std::int64_t i) const {
    const base::Dims& dims = type_->type.dims;
    if (static_cast<std::size_t>(i) >= dims.size()) [[unlikely]]
      fail_no_dim(i, dims.size());
    return dims[static_cast<std::size_t>(i)];
  }
  std::int64_t rank() const { return static_cast<std::int64_t>(type_->type.dims.size()); }
  std::int64_t num_elements() const { return type_->type.num_elements(); }
  Builder& builder() const { return *builder_; }
  // The number in the value's SSA name: "%7" has 7.
  std::uint32_t id() const { return id_; }
  const InternedType& interned_type() const { return *type_; }

  friend bool operator==(const Value& a, const Value& b) {
    return a.builder_ == b.builder_ && a.id_ == b.id_;
  }

  // For who builds programs to tell values apart by; operations do not look at them. A mark is of
  // this mention of the value alone: no operation's result has one. A note is of what the value
  // holds, and stays where an operation changes nothing.
  std::uint8_t mark = 0;
  std::uint8_t note = 0;
  // A constant of which no element is 0: it divides integers as it is.
  bool is_nonzero = false;

 private:
  friend class Builder;
  Value(Builder* builder, const InternedType* type, std::uint32_t id)
      : builder_(builder), type_(type), id_(id) {}

  Builder* builder_ = nullptr;
  const InternedType* type_ = nullptr;
  std::uint32_t id_ = 0;
};

using Values = std::vector<Value>;

// Emits a region's operations, given its block arguments, and returns the values it yields.
using Region = std::function<Values(std::span<const Value>)>;

// How exactly products are computed where the hardware has faster ways.
enum class Precision : std::uint8_t { kDefault, kHigh, kHighest };

enum class Mode : std::uint8_t { kText, kTypesOnly };

class Builder {
 public:
  explicit Builder(Mode mode = Mode::kText) : mode_(mode) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Mode mode() const { return mode_; }

  // Appends a parameter to the main function. May be called at any time before `finish`.
  Value parameter(const Type& type);
  std::size_t num_parameters() const { return parameters_.size(); }
  // `value` is an MLIR attribute, as in ("tf.aliasing_output", "3 : i32").
  void set_parameter_attribute(std::size_t index, std::string_view name, std::string_view value);
  void set_result_attribute(std::size_t index, std::string_view name, std::string_view value);
  void set_module_attribute(std::string_view name, std::string_view value);
  // A line at the head of the module, such as a mesh declaration; identical lines are kept once.
  void add_module_operation(std::string_view text);
  // The location that later operations carry ("file.py:12"), empty for none.
  void set_location(std::string_view location);
  // As above: what the operations stand for, and the line of a file that asked for it. XLA shows
  // them as `op_name`, `source_file` and `source_line`.
  void set_location(std::string_view name, std::string_view file, int line);

  // What products have that ask for none themselves.
  void set_default_precision(Precision precision) { default_precision_ = precision; }
  Precision default_precision() const { return default_precision_; }

  // Defines a private function of the module, once per name: a second definition is ignored, and
  // its body is not run. The body may not use values from outside; it may be defined at any point.
  void define_function(const std::string& name, const std::vector<Type>& parameters,
                       const Region& body);
  // The same with a text that was written elsewhere and defines `name` among others, all private.
  void define_functions(const std::string& name, const std::vector<Type>& parameters,
                        const std::vector<Type>& results, std::string_view text);
  bool has_function(const std::string& name) const { return functions_.contains(name); }
  Values call(const std::string& name, const Values& operands);
  // What a call of the function with these operands gives.
  const std::vector<Type>& function_results(const std::string& name, const Values& operands) const;

  // The custom call that hands its operands through and that no pass looks through, for platforms
  // whose compiler drops `stablehlo.optimization_barrier` too early. Empty: there is none.
  std::string_view barrier_call() const { return barrier_call_; }
  void set_barrier_call(std::string_view target) { barrier_call_ = target; }

  // What computes a value: the operation's name and the ids of its operands. No name: a parameter,
  // a region's argument. Kept with Mode::kText only.
  struct Definition {
    std::string_view name;
    const Type* type = nullptr;  // the value's
    std::span<const std::uint32_t> operands;
  };
  Definition definition(std::uint32_t id) const;
  // Ids are below this.
  std::uint32_t num_values() const { return next_id_; }
  // The value of an operation in the outermost region of the main function; else none.
  Value value_of(std::uint32_t id) const;
  // Once all operations of the main function are there: those that `emit` makes come behind the one
  // that gives `last`, and what it returns is read in the place of `value` from there on.
  void insert_behind(std::uint32_t last, const Value& value, const std::function<Value()>& emit);
  // Where a `stablehlo.slice` without strides starts in its operand; null for all other values.
  const Dims* slice_starts(std::uint32_t id) const;
  void set_slice_starts(const Value& slice, const Dims& starts);
  // What a `stablehlo.transpose` was given; null for all other values.
  struct Transposition {
    Value operand;
    Dims permutation;
  };
  const Transposition* transposition(const Value& value) const;
  void set_transposition(const Value& result, const Value& operand, const Dims& permutation);
  // What a `stablehlo.broadcast_in_dim` of several elements was given, with dimensions in order;
  // null for all other values.
  struct Broadcast {
    Value operand;
    Dims dimensions;
  };
  const Broadcast* broadcast(const Value& value) const;
  void set_broadcast(const Value& result, const Value& operand, const Dims& dimensions);
  // What became a value by a reshape; null for all other values.
  const Value* reshaped(const Value& value) const;
  void set_reshaped(const Value& result, const Value& operand);
  // What a value is that was written to in one place: `operand` but for `update`, which lies from
  // `start` on along `dim`. Null for all other values.
  struct SliceUpdate {
    Value operand;
    Value update;
    std::int64_t dim = 0;
    std::int64_t start = 0;
  };
  const SliceUpdate* slice_update(const Value& value) const;
  void set_slice_update(const Value& result, const SliceUpdate& update);

  // The module with `results` as what its public function `name` returns. Call once, last.
  std::string finish(std::span<const Value> results, std::string_view name = "main");

  // What the functions of hlo/ops.h are made of. The operation's `name` is a literal.
  //
  // `properties` is the inside of `<{...}>`, `regions` are texts that `region` gave, `attributes`
  // is the inside of the `{...}` of attributes that are not the operation's own.
  //
  // Conversions, comparisons and the like of the same scalars are one value, in the outermost
  // region of the main function: an optimizer has them for each of its parameters, and the compiler
  // takes a while to find out that they are equal.
  Value op(std::string_view name, std::span<const Value> operands, const Type& result,
           std::string_view properties = {}, std::span<const std::string> regions = {});
  Values op(std::string_view name, std::span<const Value> operands, std::span<const Type> results,
            std::string_view properties = {}, std::span<const std::string> regions = {},
            std::string_view attributes = {});
  // As `op`, but in the outermost region of the main function a repeated (name, properties, result
  // type) gives the first one's value. Only for operations without operands.
  Value op_once(std::string_view name, const Type& result, std::string_view properties);

  // The text of a region with one block, and the types of what it yields.
  struct RegionText {
    std::string text;
    std::vector<Type> yielded;
  };
  RegionText region(std::span<const Type> arguments, const Region& body);

  const InternedType* intern(const Type& type);

 private:
  struct Parameter {
    Value value;
    std::string attributes;
  };
  struct Function {
    std::vector<Type> parameters;
    std::vector<Type> results;
  };
  struct TypeHash {
    std::size_t operator()(const Type& type) const noexcept;
  };

  Value new_value(const InternedType* type) { return Value(this, type, next_id_++); }
  bool is_shared(std::string_view name, std::span<const Value> operands) const;
  Value* shared_value(std::string_view name, std::span<const Value> operands,
                      const InternedType* type, std::string_view properties);
  void define(std::string_view name, std::span<const Value> operands,
              std::span<const Value> results);
  void check_operands(std::string_view name, std::span<const Value> operands) const;
  void append_op(std::span<const Value> results, std::string_view name,
                 std::span<const Value> operands, std::string_view properties,
                 std::span<const std::string> regions, std::string_view attributes = {});
  void append_value(std::string& out, const Value& value) const;
  void append_return(std::string_view name, std::span<const Value> values);
  void set_end(std::span<const Value> results);
  void apply_insertions();

  Mode mode_;
  Precision default_precision_ = Precision::kDefault;
  std::uint32_t next_id_ = 0;
  struct OperandRange {
    std::string_view name;
    const Type* type = nullptr;
    std::uint32_t first = 0;  // in operand_ids_
    std::uint32_t count = 0;
    Value value;          // of the main function's outermost region
    std::size_t end = 0;  // of its operation, in the text of that region
  };
  struct Insertion {
    std::size_t position;
    std::string text;
    std::uint32_t replaced;
    std::uint32_t replacement;
  };
  std::vector<OperandRange> definitions_;  // by id; shorter than there are ids
  std::vector<std::uint32_t> operand_ids_;
  std::unordered_map<std::uint32_t, Dims> slice_starts_;
  std::unordered_map<std::uint32_t, Transposition> transpositions_;
  std::unordered_map<std::uint32_t, Broadcast> broadcasts_;
  std::unordered_map<std::uint32_t, Value> reshaped_;
  std::unordered_map<std::uint32_t, SliceUpdate> slice_updates_;
  std::string_view barrier_call_;
  int region_depth_ = 0;
  std::string body_;  // operations of the region being emitted
  std::vector<Insertion> insertions_;
  std::string functions_text_;
  std::string location_;  // " loc(...)" or empty
  std::string module_attributes_;
  std::string module_operations_;
  std::unordered_set<std::string> module_operation_lines_;
  std::vector<Parameter> parameters_;
  std::unordered_map<std::size_t, std::string> result_attributes_;
  std::unordered_map<std::string, Function> functions_;
  std::unordered_map<std::string, Value> once_;
  std::unordered_map<Type, const InternedType*, TypeHash> interned_;
  std::deque<InternedType> types_;
};

}  // namespace torch_xla::hlo
