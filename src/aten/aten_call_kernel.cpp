// The one host kernel behind all operators that programs call on the host: it reads which operator
// is meant, makes its arguments out of the call's operands and attributes, and copies its results
// into the program's memory.
#include "aten/aten_call_kernel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>

#include "aten/dynamic_shapes.h"
#include "aten/exchanges.h"
#include "aten/fallback.h"
#include "aten/host_tensor.h"
#include "aten/ivalues.h"
#include "aten/normalization_blocks.h"
#include "aten/operator.h"
#include "aten/parallel.h"
#include "aten/product_kernel.h"
#include "aten/stand_ins.h"
#include "aten/tensor.h"
#include "aten/transform_blocks.h"
#include "ops/aten_call.h"
#include "runtime/client.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// Reads the arguments of one call, as ops/aten_call.h says how they are carried.
class Arguments {
 public:
  explicit Arguments(const HostCall& call) : call_(call) {}

  c10::IValue next(c10::TypePtr type) {
    const std::string position = std::to_string(position_++);
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (call_.has_attribute("d" + position) || call_.has_attribute("p" + position)) {
      return view_of(position);
    }
    if (call_.has_attribute("t" + position)) {
      return of_operands(*type, call_.integers("t" + position));
    }
    if (call_.has_attribute("n" + position)) {
      return of_numbers(*type, call_.integers("n" + position));
    }
    if (call_.has_attribute("s" + position)) return std::string(call_.text("s" + position));
    return {};
  }

 private:
  at::Tensor operand(std::int64_t index) const {
    return tensor_over(call_.input(static_cast<std::size_t>(index)));
  }

  at::Tensor view_of(const std::string& position) const {
    at::Tensor tensor = operand(call_.integers("t" + position).front());
    if (call_.has_attribute("d" + position)) {
      tensor = tensor.view(at::IntArrayRef(call_.integers("d" + position)));
    }
    if (!call_.has_attribute("p" + position)) return tensor;
    return tensor.permute(at::IntArrayRef(call_.integers("p" + position)));
  }

  c10::IValue of_operands(const c10::Type& type, std::span<const std::int64_t> indices) const {
    if (type.kind() == c10::TypeKind::ListType) {
      return list_of_tensors(type, indices, [this](std::int64_t index) { return operand(index); });
    }
    const at::Tensor tensor = operand(indices.front());
    return type.kind() == c10::TypeKind::TensorType ? c10::IValue(tensor)
                                                    : to_kind(type, tensor.item());
  }

  static at::Scalar number(std::span<const std::int64_t> words) {
    const auto dtype = static_cast<base::DType>(words[0]);
    if (base::is_complex(dtype)) {
      return c10::complex<double>(std::bit_cast<double>(words[1]), std::bit_cast<double>(words[2]));
    }
    if (base::is_floating(dtype)) return std::bit_cast<double>(words[1]);
    if (dtype == base::DType::kBool) return words[1] != 0;
    return words[1];
  }

  static c10::IValue of_numbers(const c10::Type& type, std::span<const std::int64_t> words) {
    if (type.kind() == c10::TypeKind::ListType) {
      std::vector<at::Scalar> scalars;
      for (; !words.empty(); words = words.subspan(ops::kWordsPerNumber)) {
        scalars.push_back(number(words));
      }
      return list_of(type, scalars);
    }
    const auto dtype = static_cast<base::DType>(words[0]);
    if (type.kind() == c10::TypeKind::TensorType) {
      return at::scalar_tensor(number(words), at::TensorOptions().dtype(to_scalar_type(dtype)));
    }
    if (type.kind() == c10::TypeKind::ScalarTypeType) return to_scalar_type(dtype);
    return to_kind(type, number(words));
  }

  const HostCall& call_;
  std::size_t position_ = 0;
};

// Of all results, in order, or of those that the call wants.
std::vector<at::Tensor> wanted_of(const HostCall& call, std::vector<at::Tensor> results) {
  if (!call.has_attribute(ops::kAtenCallResults)) return results;
  std::vector<at::Tensor> out;
  for (const std::int64_t position : call.integers(ops::kAtenCallResults)) {
    out.push_back(results.at(static_cast<std::size_t>(position)));
  }
  return out;
}

// Whether `writer` takes what `op` takes, and then where to write each result.
bool writes_results_of(const c10::FunctionSchema& op, const c10::FunctionSchema& writer) {
  const std::vector<c10::Argument>& taken = writer.arguments();
  const std::size_t count = op.arguments().size();
  if (taken.size() != count + op.returns().size()) return false;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i].is_out() != (i >= count)) return false;
    if (i < count && *taken[i].type() != *op.arguments()[i].type()) return false;
  }
  return true;
}

// The overload that writes its results where it is told to, if there is one: they are not copied
// then, and need no memory of their own.
std::optional<c10::OperatorHandle> with_out(const c10::OperatorHandle& op) {
  // Programs may run while the process exits.
  static auto* const mutex = new std::mutex();
  static auto* const known =
      new std::unordered_map<c10::OperatorName, std::optional<c10::OperatorHandle>>();
  const std::lock_guard lock(*mutex);
  const auto [place, is_new] = known->try_emplace(op.operator_name());
  if (!is_new) return place->second;
  const auto symbol = c10::Symbol::fromQualString(op.operator_name().name);
  for (const auto& candidate : torch::jit::getAllOperatorsFor(symbol)) {
    if (!writes_results_of(op.schema(), candidate->schema())) continue;
    place->second = c10::Dispatcher::singleton().findSchema(candidate->schema().operator_name());
    break;
  }
  return place->second;
}

// Whether the kernel gives its first result in the dtype that the output has, for all that its
// arguments tell: integers beside floating numbers are indices.
bool keeps_dtype(const torch::jit::Stack& arguments, at::ScalarType dtype) {
  return std::ranges::all_of(arguments, [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return true;
    // Of complex numbers, the kernel may give or take the parts.
    const at::ScalarType own = c10::toRealValueType(value.toTensor().scalar_type());
    return own == c10::toRealValueType(dtype) || (at::isFloatingType(dtype) && own == at::kLong);
  });
}

// A tensor for each result of the operator: the program's, or one that takes what comes where the
// program wants all but the first, which is of the first argument's dtype. Empty otherwise, and
// where a mask leaves the first out.
std::vector<at::Tensor> outputs_of(const HostCall& call, const c10::OperatorHandle& op,
                                   const torch::jit::Stack& arguments) {
  std::vector<at::Tensor> outputs;
  if (call.has_attribute(ops::kAtenCallResults)) {
    const bool lacks_one = call.num_outputs() + 1 == op.schema().returns().size();
    const bool lacks_first = lacks_one && call.integers(ops::kAtenCallResults).front() == 1;
    const auto is_mask = [](const c10::IValue& value) { return value.isBoolList(); };
    if (!lacks_first || !arguments[0].isTensor() || std::ranges::any_of(arguments, is_mask)) {
      return {};
    }
    outputs.push_back(at::empty({0}, arguments[0].toTensor().options()));
  }
  for (std::size_t i = 0; i < call.num_outputs(); ++i) {
    outputs.push_back(result_over(call, i));
  }
  return outputs;
}

// True if it did. A kernel may make room for its work in what has no elements.
bool run_into_outputs(const HostCall& call, const c10::OperatorHandle& op,
                      torch::jit::Stack& arguments) {
  const std::optional<c10::OperatorHandle> writer = with_out(op);
  if (!writer.has_value()) return false;
  const std::vector<at::Tensor> outputs = outputs_of(call, op, arguments);
  if (outputs.size() != op.schema().returns().size() || outputs[0].numel() == 0 ||
      !keeps_dtype(arguments, outputs[0].scalar_type())) {
    return false;
  }
  std::vector<const void*> places;
  for (const at::Tensor& output : outputs) places.push_back(output.const_data_ptr());
  for (const at::Tensor& output : outputs) arguments.emplace_back(output);
  writer->callBoxed(&arguments);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    base::internal_check(places[i] == nullptr || outputs[i].const_data_ptr() == places[i],
                         writer->schema().name(), ": result ", i, " is not as recorded");
  }
  return true;
}

void run(const HostCall& call) {
  // The kernels run below autograd, on threads that have no state of torch's.
  const at::AutoDispatchBelowADInplaceOrView below;
  const std::string_view name = call.text(ops::kAtenCallOperator);
  try {
    const c10::OperatorName full = operator_name(name);
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
        full.name.c_str(), full.overload_name.c_str());
    Arguments arguments(call);
    torch::jit::Stack stack;
    for (const c10::Argument& argument : op.schema().arguments()) {
      stack.push_back(arguments.next(argument.real_type()));
    }
    if (!full.name.starts_with("aten::")) {  // of which programs call collectives alone
      return run_collective(call, op, std::move(stack));
    }
    if (const ArgumentCheck check = check_of_values(name)) check(stack);
    if (multiply_in_blocks(call, name, stack)) return;
    if (normalize_in_blocks(call, op, name, stack)) return;
    if (transform_in_blocks(call, name, stack)) return;
    std::optional<OneThread> alone;
    if (is_small(call)) alone.emplace();
    if (run_into_outputs(call, op, stack)) return;
    op.callBoxed(&stack);
    const std::vector<at::Tensor> results = wanted_of(call, tensors_of(stack));
    base::internal_check(results.size() == call.num_outputs(), "aten::", name, ": ",
                         call.num_outputs(), " results were recorded, got ", results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const at::Tensor output = result_over(call, i);
      base::internal_check(results[i].defined() && output.sizes() == results[i].sizes(),
                           "aten::", name, ": result ", i, " is not as recorded");
      // Converts where tensors are kept in other dtypes than they report.
      output.copy_(results[i]);
    }
  } catch (const c10::Error& error) {
    base::fail(base::ErrorKind::kRuntime, "aten::", name, ": ", error.what_without_backtrace());
  }
}

const bool registered = [] {
  runtime::add_host_kernel(ops::kAtenCall, run, 4);  // operands that it sees in other sizes
  return true;
}();

// Most of PyTorch's kernels for the CPU refuse these, each in its own words, and at the call.
bool is_half(const torch::jit::Stack& stack, std::size_t count) {
  for (const c10::IValue& value : torch::jit::last(stack, count)) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (c10::isReducedFloatingType(value.toTensor().scalar_type())) return true;
  }
  return false;
}

}  // namespace

void AtenCallKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                torch::jit::Stack* stack) {
  runtime::client();  // whether there are host kernels is known once there is a client
  const std::size_t count = handle.schema().arguments().size();
  if (!runtime::has_host_kernels() || (!takes_half_ && is_half(*stack, count))) {
    return fallback(handle, stack);
  }
  try {
    kernel_(handle, keys, stack);
  } catch (const RefusedByCpu&) {
    throw;  // a dtype, see dtype_refusals.h
  } catch (const c10::NotImplementedError&) {
    // The results' sizes depend on data. Nothing was recorded, and the stack is as it was.
    run_with_dynamic_shape(handle, stack);
  }
}

}  // namespace torch_xla::aten
