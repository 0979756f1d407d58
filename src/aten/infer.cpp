// Inference by Meta kernels and by lowerings.
#include "aten/infer.h"

#include <algorithm>

#include "aten/dtype_refusals.h"
#include "aten/errors.h"
#include "aten/meta_kernel.h"
#include "aten/stand_ins.h"
#include "aten/strides.h"
#include "aten/tensor.h"
#include "base/metrics.h"
#include "ops/lower.h"
#include "runtime/client.h"

namespace torch_xla::aten {
namespace {

const graph::TensorType* type_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return graph::intern(
      {{to_dtype(tensor.scalar_type()), tensor.sizes().vec()}, tensor.strides().vec()});
}

void append_types(const c10::IValue& value, std::vector<const graph::TensorType*>& types) {
  if (value.isTensor()) {
    types.push_back(type_of(value.toTensor()));
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) types.push_back(type_of(tensor));
  } else if (value.isNone()) {
    types.push_back(nullptr);
  }
}

// `kernel` is null for whatever Meta kernel the dispatcher has.
std::vector<const graph::TensorType*> infer_by_meta(const Operator& op,
                                                    const c10::KernelFunction* kernel,
                                                    const torch::jit::Stack& stack) {
  const torch::jit::Stack results = call_on_meta(op.handle, kernel, op.arguments.size(), stack);
  std::vector<const graph::TensorType*> types;
  for (const c10::IValue& result : results) append_types(result, types);
  return types;
}

bool has_any_meta(const Operator& op) {
  return op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
}

std::vector<const graph::TensorType*> infer_by_python(const Operator& op,
                                                      const torch::jit::Stack& stack) {
  static base::Counter& count = base::counter("PythonMetaKernel");
  count.add();
  return infer_by_meta(op, nullptr, stack);
}

void check_sizes(const base::Shape& shape) {
  for (const std::int64_t size : shape.dims) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ",
                base::to_string(shape.dims));
  }
}

std::vector<const graph::TensorType*> infer_by_lowering(const graph::Entry& entry) {
  std::vector<const graph::TensorType*> types;
  for (const std::optional<base::Shape>& shape : ops::infer(entry, runtime::platform())) {
    if (shape.has_value()) check_sizes(*shape);
    types.push_back(shape.has_value() ? graph::intern_contiguous(*shape) : nullptr);
  }
  return types;
}

// In-place calls give their arguments' own types, whatever the lowering makes.
std::vector<const graph::TensorType*> written_types(const Operator& op,
                                                    const torch::jit::Stack& stack) {
  std::vector<const graph::TensorType*> types;
  const auto arguments = torch::jit::last(stack, op.arguments.size());
  for (const std::size_t i : op.written) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      types.push_back(
          expect_xla(value.toTensor(), op.schema.name, op.schema.args[i].name).xla_type());
    } else {
      for (const at::Tensor& tensor : value.toTensorList()) {
        types.push_back(expect_xla(tensor, op.schema.name, op.schema.args[i].name).xla_type());
      }
    }
  }
  return types;
}

// Results that are fresh tensors, before those for what is written. Collectives may give lists.
std::size_t num_fresh(const Operator& op, const std::vector<const graph::TensorType*>& results,
                      std::size_t num_written) {
  if (!op.lowering->is_collective) return op.num_fresh_returns;
  return results.size() - std::min(results.size(), num_written);
}

// What an in-place call must hold, whether or not a Meta kernel says it.
void check_in_place(const Operator& op, const std::vector<const graph::TensorType*>& results,
                    const std::vector<const graph::TensorType*>& written) {
  const std::size_t first = num_fresh(op, results, written.size());
  for (std::size_t i = 0; i < written.size() && first + i < results.size(); ++i) {
    const graph::TensorType* result = results[first + i];
    if (result == nullptr) continue;
    const base::Shape& from = result->shape;
    const base::Shape& to = written[i]->shape;
    TORCH_CHECK(from.dims == to.dims, "aten::", op.schema.name, ": output with shape ",
                base::to_string(to.dims), " doesn't match the broadcast shape ",
                base::to_string(from.dims));
    TORCH_CHECK(c10::canCast(to_scalar_type(from.dtype), to_scalar_type(to.dtype)), "result type ",
                to_scalar_type(from.dtype), " can't be cast to the desired output type ",
                to_scalar_type(to.dtype));
  }
}

bool equal_shapes(const std::vector<const graph::TensorType*>& a,
                  const std::vector<const graph::TensorType*>& b) {
  // A result that the lowering gives and PyTorch leaves undefined is dropped.
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto* x, const auto* y) {
           return x == nullptr || (y != nullptr && x->shape == y->shape);
         });
}

void set_meta_strides(const Operator& op, const torch::jit::Stack& stack,
                      std::vector<const graph::TensorType*>& types) {
  if (!has_any_meta(op)) return;
  try {
    std::vector<const graph::TensorType*> meta = infer_by_python(op, stack);
    if (equal_shapes(meta, types)) types = std::move(meta);
  } catch (const std::exception&) {  // also what Python raises
    // What is possible here though not elsewhere has the strides that it likes.
  }
}

// A solution of which some rows are all lies in what held the right-hand sides.
void set_solution_strides(const graph::Entry& entry, std::vector<const graph::TensorType*>& types) {
  const std::vector<std::int64_t>& rows = entry.operands[0]->shape.dims;
  const bool is_matrix = types[0]->shape.dims.size() == rows.size();
  if (is_matrix) types[0] = with_columns(types[0], rows[rows.size() - 2]);
}

// Transforms that are made along all dimensions at once, or to reals along the last one at the end.
void set_transform_strides(const Operator& op, const graph::TensorType* input,
                           const c10::IValue& along, std::vector<const graph::TensorType*>& types) {
  const std::vector<std::int64_t> dims = along.toIntVector();
  if (op.rules.layout != Layout::kTransformToReals) {
    const bool is_of_reals = op.rules.layout == Layout::kTransformOfReals;
    types[0] = with_transform_strides(types[0], input->strides, dims, is_of_reals);
    return;
  }
  if (dims.size() > 1) {
    input = with_transform_strides(input, input->strides,
                                   at::IntArrayRef(dims.data(), dims.size() - 1), false);
  }
  types[0] = with_transform_strides(types[0], input->strides, dims.back(), true);
}

// PyTorch converts an operand of another dtype than the others' or a quotient's first, and lays it
// out anew where it repeats elements or has gaps.
bool lays_out_anew(const graph::Entry& entry, const std::vector<const graph::TensorType*>& types) {
  const auto has_other_dtype = [&](const graph::TensorType* type) {
    return types[0] != nullptr && type->shape.dtype != types[0]->shape.dtype;
  };
  const auto is_spread = [](const graph::TensorType* type) {
    std::int64_t span = 1;
    for (std::size_t d = 0; d < type->strides.size(); ++d) {
      span += (type->shape.dims[d] - 1) * type->strides[d];
    }
    return span != type->shape.num_elements();
  };
  return std::ranges::any_of(entry.operands, has_other_dtype) &&
         std::ranges::any_of(entry.operands, is_spread);
}

void set_pointwise_strides(const Operator& op, at::ArrayRef<c10::IValue> arguments,
                           std::vector<const graph::TensorType*>& types) {
  const bool has_condition = op.schema.args[0].name == "condition";
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == nullptr) continue;
    types[i] = with_pointwise_strides(types[i], arguments, i, has_condition);
  }
}

// Of what has the sizes of `self`, and is not reduced.
void set_strides_like_self(const Operator& op, at::ArrayRef<c10::IValue> arguments,
                           std::vector<const graph::TensorType*>& types) {
  const auto place = std::ranges::find(op.schema.args, "self", &ArgSchema::name);
  const c10::IValue& self = arguments[place - op.schema.args.begin()];
  if (self.toTensor().sizes() != types[0]->shape.dims) return;
  types[0] = with_memory_format(types[0], self, {});
}

// Of an operator without a layout of its own: row-major for row-major operands.
void set_strides_like_operands(const Operator& op, const graph::Entry& entry,
                               const torch::jit::Stack& stack,
                               std::vector<const graph::TensorType*>& types) {
  if (std::all_of(entry.operands.begin(), entry.operands.end(),
                  [](const auto* type) { return is_row_major(type->shape.dims, type->strides); })) {
    return;
  }
  if (!op.is_pointwise) return set_meta_strides(op, stack, types);
  set_pointwise_strides(op, torch::jit::last(stack, op.arguments.size()), types);
}

// A lowering knows shapes; the strides are PyTorch's.
void set_strides(const Operator& op, const graph::Entry& entry, const torch::jit::Stack& stack,
                 std::vector<const graph::TensorType*>& types) {
  const auto arguments = torch::jit::last(stack, op.arguments.size());
  if (op.memory_format_argument.has_value()) {
    types[0] = with_memory_format(types[0], arguments[0], arguments[*op.memory_format_argument]);
    return;
  }
  switch (op.rules.layout) {
    case Layout::kLikeOperands: return set_strides_like_operands(op, entry, stack, types);
    case Layout::kMetaKernel: return set_meta_strides(op, stack, types);
    case Layout::kTransform:
    case Layout::kTransformOfReals:
    case Layout::kTransformToReals:
      return set_transform_strides(op, entry.operands[0], arguments[1], types);
    case Layout::kChannels: types[0] = with_channels_like(types[0], arguments.slice(0, 2)); return;
    case Layout::kFirstChannels:
      types[0] = with_channels_like(types[0], arguments.slice(0, 1));
      return;
    case Layout::kPointwise: return set_pointwise_strides(op, arguments, types);
    case Layout::kLikeSelf: return set_strides_like_self(op, arguments, types);
    case Layout::kRows: return;
    case Layout::kColumns: types[0] = with_columns(types[0]); return;
    case Layout::kSecondColumns: types[1] = with_columns(types[1]); return;
    case Layout::kSolution: return set_solution_strides(entry, types);
  }
}

// What StableHLO's rules alone refuse, or what we did not foresee, PyTorch's kernel words better.
// If that sees nothing wrong, a dtype is one that we have no lowering for, and another error
// stands.
[[noreturn]] void refuse(const Operator& op, const graph::Entry& entry,
                         const torch::jit::Stack& stack, const base::Error& error) {
  const bool is_constraint = ops::is_constraint_error(error);
  if (op.lowering->is_collective) throw_as_torch(error, op.schema.name);  // nobody else is to meet
  if (is_constraint || error.kind() == base::ErrorKind::kInternal) {
    if (has_any_meta(op)) infer_by_python(op, stack);
    ask_cpu(op.handle, op.arguments.size(), stack);
  }
  if (is_constraint && error.kind() == base::ErrorKind::kUnimplemented) {
    const auto dtype =
        entry.operands.empty() ? entry.default_float : entry.operands[0]->shape.dtype;
    TORCH_CHECK_NOT_IMPLEMENTED(false, "\"", op.op.name.substr(0, op.op.name.find('.')),
                                "\" not implemented for '", to_scalar_type(dtype), "'");
  }
  throw_as_torch(error, op.schema.name);
}

// The compiled Meta kernel's types. The lowering runs too: it has the checks that PyTorch leaves to
// the kernels, and it must agree.
std::vector<const graph::TensorType*> infer_with_meta(const Operator& op, const graph::Entry& entry,
                                                      const torch::jit::Stack& stack) {
  const std::vector<const graph::TensorType*> types = infer_by_meta(op, &*op.compiled_meta, stack);
  std::vector<const graph::TensorType*> lowered;
  try {
    lowered = infer_by_lowering(entry);
    base::internal_check(op.kind == OpKind::kInPlace || equal_shapes(types, lowered),
                         "aten::", op.schema.name, ": its lowering gives other types than PyTorch");
  } catch (const base::Error& error) {
    refuse(op, entry, stack, error);
  }
  // Not every Meta kernel asks whether the result can be cast (`logit_`).
  if (op.kind == OpKind::kInPlace) check_in_place(op, lowered, written_types(op, stack));
  return types;
}

// What is written, or what it is written from.
bool has_empty_operand(const graph::Entry& entry) {
  return entry.operands.front()->shape.num_elements() == 0 ||
         entry.operands.back()->shape.num_elements() == 0;
}

std::vector<const graph::TensorType*> infer_without_meta(const Operator& op,
                                                         const graph::Entry& entry,
                                                         const torch::jit::Stack& stack) {
  std::vector<const graph::TensorType*> types;
  try {
    types = infer_by_lowering(entry);
  } catch (const base::Error& error) {
    refuse(op, entry, stack, error);
  }
  if (op.kind == OpKind::kInPlace) {
    check_in_place(op, types, written_types(op, stack));
  } else {
    set_strides(op, entry, stack, types);
  }
  return types;
}

bool is_complex_number(const c10::IValue& value) {
  if (!value.isList()) return value.isComplexDouble();
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(),
                     [](const c10::IValue& element) { return element.isComplexDouble(); });
}

// Of tensors with dimensions beside a complex number, or a complex tensor without: PyTorch's result
// has parts of their dtype. None: it has another one.
std::optional<base::DType> parts_of_complex(const graph::Entry& entry, bool has_complex_number) {
  if (has_complex_number) {
    const base::DType dtype = entry.operands[0]->shape.dtype;
    return base::is_floating(dtype) ? std::optional(dtype) : std::nullopt;
  }
  std::optional<base::DType> parts;
  bool has_complex = false;
  for (const graph::TensorType* operand : entry.operands) {
    const auto& [dtype, dims] = operand->shape;
    if (dims.empty()) {
      has_complex |= base::is_complex(dtype);
    } else if (base::is_complex(dtype)) {
      return std::nullopt;
    } else if (base::is_floating(dtype)) {
      parts = parts.has_value() ? base::promote_types(*parts, dtype) : dtype;
    }
  }
  return has_complex ? parts : std::nullopt;
}

// Kernels whose results are real refuse imaginary parts, and so do we the numbers that have a place
// for one: what it holds may change from call to call.
void check_complex_numbers(const Operator& op, const graph::Entry& entry,
                           const torch::jit::Stack& stack,
                           const std::vector<const graph::TensorType*>& types) {
  if (types.empty() || types[0] == nullptr) return;
  const auto arguments = torch::jit::last(stack, op.arguments.size());
  const bool has_complex_number =
      std::any_of(arguments.begin(), arguments.end(), is_complex_number);
  base::DType dtype = types[0]->shape.dtype;
  if (has_complex_number) {
    // A comparison in place compares what it is given, and writes a bool as what it writes to.
    if (op.kind == OpKind::kInPlace) dtype = infer_by_lowering(entry)[0]->shape.dtype;
    TORCH_CHECK(base::is_complex(dtype) || dtype == base::DType::kBool,
                "value cannot be converted to type ", to_scalar_type(dtype), " without overflow");
  }
  const bool promotes = op.is_pointwise || op.lowering->is_foreach;
  if (!promotes || !base::is_complex(dtype)) return;
  if (const auto parts = parts_of_complex(entry, has_complex_number)) {
    to_dtype(c10::toComplexType(to_scalar_type(*parts)));  // says so where XLA has no such type
  }
}

// What the CPU says of the dtypes goes before what we would say of the call.
std::vector<const graph::TensorType*> infer_checked(const Operator& op, const graph::Entry& entry,
                                                    const torch::jit::Stack& stack, bool has_meta) {
  std::vector<const graph::TensorType*> types;
  try {
    if (op.lowering->is_untyped && op.effects.empty()) {
      types = infer_by_meta(op, has_meta ? &*op.compiled_meta : nullptr, stack);
    } else {
      types = has_meta ? infer_with_meta(op, entry, stack) : infer_without_meta(op, entry, stack);
    }
  } catch (const std::exception&) {
    check_dtypes(op, entry, stack);
    throw;
  }
  check_dtypes(op, entry, stack);
  return types;
}

}  // namespace

std::vector<const graph::TensorType*> infer_outputs(const Operator& op, const graph::Entry& entry,
                                                    const torch::jit::Stack& stack) {
  const bool is_refused = op.rules.meta_refuses_empty && has_empty_operand(entry);
  const bool has_meta = op.compiled_meta.has_value() && op.effects.empty() && !is_refused;
  std::vector<const graph::TensorType*> types = infer_checked(op, entry, stack, has_meta);
  check_complex_numbers(op, entry, stack, types);
  if (op.kind != OpKind::kInPlace) {
    // What compiled Meta kernels leave to the kernels for the CPU.
    const bool is_converted =
        op.rules.layout == Layout::kLikeOperands && op.is_pointwise && lays_out_anew(entry, types);
    const bool is_channels = op.rules.layout == Layout::kChannels;
    if (has_meta && (is_channels || is_converted)) set_strides(op, entry, stack, types);
    return types;
  }
  const std::vector<const graph::TensorType*> written = written_types(op, stack);
  types.resize(num_fresh(op, types, written.size()));
  // What a call returns beside its arguments.
  if (!has_meta && !types.empty()) set_strides(op, entry, stack, types);
  types.insert(types.end(), written.begin(), written.end());
  return types;
}

}  // namespace torch_xla::aten
