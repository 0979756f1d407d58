// Reading schemas, and checking them against the lowerings' parameters.
#include "aten/operator.h"

#include <algorithm>
#include <string_view>

#include "aten/meta_kernel.h"

namespace torch_xla::aten {
namespace {

using ops::ParamKind;

constexpr std::string_view kIgnoredNames[] = {"pin_memory", "non_blocking", "async"};

ArgKind kind_of(const c10::Type& type, const std::string& name) {
  if (std::find(std::begin(kIgnoredNames), std::end(kIgnoredNames), name) !=
      std::end(kIgnoredNames)) {
    return ArgKind::kIgnored;
  }
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return ArgKind::kTensor;
    case c10::TypeKind::NumberType: return ArgKind::kScalar;
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::IntType: return ArgKind::kInt;
    case c10::TypeKind::FloatType: return ArgKind::kFloat;
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::BoolType: return ArgKind::kBool;
    case c10::TypeKind::StringType: return ArgKind::kString;
    case c10::TypeKind::ScalarTypeType: return ArgKind::kDType;
    case c10::TypeKind::GeneratorType: return ArgKind::kGenerator;
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::DeviceObjType: return ArgKind::kIgnored;
    default: return ArgKind::kUnsupported;
  }
}

ArgSchema to_argument(const c10::Argument& argument) {
  ArgSchema out;
  out.name = argument.name();
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    out.is_optional = true;
    type = optional->getElementType();
  }
  if (auto list = type->cast<c10::ListType>()) {
    out.is_list = true;
    type = list->getElementType();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  }
  out.kind = kind_of(*type, out.name);
  if (const c10::AliasInfo* alias = argument.alias_info()) {
    out.is_written = alias->isWrite();
    out.is_aliased = true;
    for (const c10::Symbol& set : alias->beforeSets()) out.alias_set = set.toUnqualString();
  }
  out.is_out = argument.is_out();
  return out;
}

ReturnSchema to_return(const c10::Argument& argument) {
  ReturnSchema out;
  c10::TypePtr type = argument.type();
  if (auto list = type->cast<c10::ListType>()) {
    out.is_list = true;
    type = list->getElementType();
  }
  out.is_tensor = type->kind() == c10::TypeKind::TensorType;
  if (const c10::AliasInfo* alias = argument.alias_info()) {
    out.is_written = alias->isWrite();
    for (const c10::Symbol& set : alias->afterSets()) out.alias_set = set.toUnqualString();
  }
  return out;
}

OpKind kind_of(const Schema& schema) {
  bool writes = false;
  bool aliases = false;
  for (const ArgSchema& arg : schema.args) {
    if (arg.is_out) return OpKind::kOut;
    writes |= arg.is_written;
    aliases |= arg.is_aliased;
  }
  if (writes) return OpKind::kInPlace;
  return aliases ? OpKind::kView : OpKind::kFunctional;
}

// The travel of an argument whose lowering takes it as `param`; nullopt if they do not fit.
std::optional<Travel> travel_of(const ArgSchema& arg, const ops::Param& param, bool is_foreach) {
  const bool is_list = arg.is_list && !is_foreach;
  switch (arg.kind) {
    case ArgKind::kTensor:
      if (param.kind == (is_list ? ParamKind::kTensorList : ParamKind::kTensorOrData)) {
        return Travel::kOperand;
      }
      return std::nullopt;
    case ArgKind::kScalar:
    case ArgKind::kInt:
    case ArgKind::kFloat:
    case ArgKind::kBool:
      if (is_list) {
        if (param.kind == ParamKind::kNumberList || param.kind == ParamKind::kBoolList) {
          return Travel::kConstant;
        }
        if (param.kind == ParamKind::kTensorList) return Travel::kData;
        return std::nullopt;
      }
      if (param.kind == ParamKind::kTensorOrData) return Travel::kData;
      if (param.kind == ParamKind::kPromotable) return Travel::kPromotable;
      if (param.kind == ParamKind::kNumber) return Travel::kConstant;
      return std::nullopt;
    case ArgKind::kString:
      return param.kind == ParamKind::kString ? std::optional(Travel::kConstant) : std::nullopt;
    case ArgKind::kDType:
      return param.kind == ParamKind::kDType ? std::optional(Travel::kConstant) : std::nullopt;
    case ArgKind::kGenerator:
      return param.kind == ParamKind::kTensorOrData ? std::optional(Travel::kKey) : std::nullopt;
    case ArgKind::kIgnored:
    case ArgKind::kUnsupported: return std::nullopt;
  }
  return std::nullopt;
}

// The travel of an argument of a lowering that takes the schema's arguments as they are.
std::optional<Travel> travel_untyped(const ArgSchema& arg) {
  switch (arg.kind) {
    case ArgKind::kTensor: return Travel::kOperand;
    case ArgKind::kGenerator:
    case ArgKind::kIgnored:
    case ArgKind::kUnsupported: return std::nullopt;
    default: return Travel::kConstant;
  }
}

bool fits_optional(const ArgSchema& arg, const ops::Param& param) {
  return !arg.is_optional || param.is_optional || arg.kind == ArgKind::kGenerator;
}

// Assigns a travel to every argument; false (and `why`) if the lowering's parameters do not fit.
bool plan_arguments(Operator& op, std::string* why) {
  std::size_t next = 0;
  for (const ArgSchema& arg : op.schema.args) {
    Argument argument{arg, Travel::kIgnored};
    const bool is_out = op.kind == OpKind::kOut && arg.is_out;
    if (arg.kind != ArgKind::kIgnored && !is_out) {
      std::optional<Travel> travel;
      if (op.lowering->is_untyped) {
        travel = travel_untyped(arg);
      } else if (next < op.lowering->params.size() &&
                 fits_optional(arg, op.lowering->params[next])) {
        travel = travel_of(arg, op.lowering->params[next], op.lowering->is_foreach);
      }
      if (!travel.has_value()) {
        *why = base::str("parameter ", next, " of the lowering does not fit argument '", arg.name,
                         "'");
        return false;
      }
      argument.travel = *travel;
      op.op.argument_names.push_back(arg.name);
      ++next;
    }
    op.arguments.push_back(std::move(argument));
  }
  op.draws_key = op.lowering->is_random && next + 1 == op.lowering->params.size();
  if (op.lowering->is_untyped) return true;
  if (next + (op.draws_key ? 1 : 0) == op.lowering->params.size()) return true;
  *why = base::str("the lowering has ", op.lowering->params.size(), " parameters, the schema ",
                   next, " arguments that take part");
  return false;
}

// Every collective writes the token, an argument that no schema has. Groups and reductions are told
// by name, though some torch's schemas take the objects too.
void add_token(Operator& op) {
  for (ArgSchema& arg : op.schema.args) {
    if (arg.name == "group_name" || arg.name == "reduce_op") arg.kind = ArgKind::kString;
  }
  ArgSchema token;
  token.name = "token";
  token.kind = ArgKind::kTensor;
  token.is_written = token.is_aliased = true;
  op.schema.args.push_back(std::move(token));
  op.kind = OpKind::kInPlace;
}

void find_written(Operator& op) {
  for (std::size_t i = 0; i < op.schema.args.size(); ++i) {
    if (op.schema.args[i].is_written) op.written.push_back(i);
  }
  for (const ReturnSchema& ret : op.schema.returns) op.num_fresh_returns += !ret.is_written;
  for (const std::string_view name : op.rules.effects) {
    for (std::size_t i = 0; i < op.schema.args.size(); ++i) {
      if (op.schema.args[i].name == name) op.effects.push_back(i);
    }
  }
}

std::optional<std::size_t> find_argument(const c10::FunctionSchema& schema, std::string_view name) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

}  // namespace

Schema to_schema(const c10::FunctionSchema& schema) {
  Schema out;
  const std::size_t colons = schema.name().find("::");
  out.name = schema.name().substr(colons + 2);
  if (schema.name().rfind("aten::", 0) != 0) {
    out.name = schema.name().substr(0, colons) + ":" + out.name;
  }
  if (!schema.overload_name().empty()) out.name += "." + schema.overload_name();
  for (const c10::Argument& argument : schema.arguments())
    out.args.push_back(to_argument(argument));
  for (const c10::Argument& ret : schema.returns()) out.returns.push_back(to_return(ret));
  return out;
}

c10::OperatorName operator_name(std::string_view name) {
  const std::size_t colon = name.find(':');
  std::string name_space = "aten";
  if (colon != std::string_view::npos) {
    name_space = name.substr(0, colon);
    name.remove_prefix(colon + 1);
  }
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string overload(name.substr(std::min(dot + 1, name.size())));
  return {base::str(name_space, "::", name.substr(0, dot)), overload};
}

// Torch tags them, but for the lists.
bool is_pointwise(const c10::OperatorHandle& handle) {
  const c10::ArrayRef<at::Tag> tags = handle.getTags();
  return std::find(tags.begin(), tags.end(), at::Tag::pointwise) != tags.end() ||
         handle.schema().name().rfind("aten::_foreach_", 0) == 0;
}

std::string functional_name(const Schema& schema) {
  const std::size_t dot = schema.name.find('.');
  std::string base = schema.name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : schema.name.substr(dot);
  if (base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_') base.pop_back();
  return base + overload;
}

std::unique_ptr<Operator> plan_operator(const c10::OperatorHandle& handle, std::string* why) {
  auto op = std::make_unique<Operator>(handle);
  op->schema = to_schema(handle.schema());
  op->kind = kind_of(op->schema);
  op->op.name = op->schema.name;
  op->lowering = ops::registry().find(op->op.name);
  if (op->lowering == nullptr && op->kind == OpKind::kInPlace) {
    op->op.name = functional_name(op->schema);
    op->lowering = ops::registry().find(op->op.name);
  }
  op->op.converts_result = op->kind != OpKind::kFunctional;
  if (op->lowering != nullptr) {
    if (op->kind != OpKind::kOut) op->op.constant = op->lowering->constant;
    op->op.is_overwrite = op->kind == OpKind::kInPlace && op->lowering->overwrites;
  }
  const bool is_collective = op->lowering != nullptr && op->lowering->is_collective;
  if (is_collective) add_token(*op);
  if (op->lowering == nullptr || !plan_arguments(*op, why)) return nullptr;
  op->rules = rules_of(functional_name(op->schema));
  const bool has_own_check = op->kind == OpKind::kInPlace && op->rules.check_in_place != nullptr;
  if (is_collective) op->rules.layout = Layout::kRows;
  op->check = has_own_check ? op->rules.check_in_place : op->rules.check;
  find_written(*op);
  op->device_argument = find_argument(handle.schema(), "device");
  if (!is_collective) op->compiled_meta = compiled_meta_kernel(handle);
  op->is_pointwise = is_pointwise(handle);
  op->memory_format_argument = find_argument(handle.schema(), "memory_format");
  op->counter = &base::counter("xla::" + op->schema.name);
  return op;
}

}  // namespace torch_xla::aten
