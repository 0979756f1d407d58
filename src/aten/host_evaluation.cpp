// Small graphs of integers, computed by PyTorch's kernels for the CPU, an operator at a time
// (runtime/host_reads.h).
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <optional>
#include <string_view>

#include "aten/ivalues.h"
#include "aten/operator.h"
#include "aten/parallel.h"
#include "aten/tensor.h"
#include "base/error.h"
#include "runtime/host_reads.h"

namespace torch_xla::aten {
namespace {

at::Scalar to_scalar(const base::Scalar& value) {
  if (value.is_bool()) return value.to<bool>();
  if (value.is_int()) return value.to<std::int64_t>();
  if (value.is_floating()) return value.to<double>();
  return c10::complex<double>(value.to<std::complex<double>>());
}

// Those whose kernels for the CPU end no process, whatever the numbers are, as a division of the
// least one by -1 does, and give what programs give.
constexpr std::string_view kOperators[] = {"_to_copy",     "_unsafe_view",
                                           "add",          "all",
                                           "amax",         "amin",
                                           "any",          "arange",
                                           "argmax",       "argmin",
                                           "bitwise_and",  "bitwise_not",
                                           "bitwise_or",   "bitwise_xor",
                                           "cat",          "clamp",
                                           "clamp_max",    "clamp_min",
                                           "clone",        "constant_pad_nd",
                                           "copy",         "count_nonzero",
                                           "cumsum",       "eq",
                                           "fill",         "flip",
                                           "full",         "full_like",
                                           "gather",       "ge",
                                           "gt",           "index",
                                           "index_select", "isin",
                                           "le",           "logical_and",
                                           "logical_not",  "logical_or",
                                           "logical_xor",  "lt",
                                           "masked_fill",  "max",
                                           "maximum",      "min",
                                           "minimum",      "mul",
                                           "ne",           "neg",
                                           "new_full",     "new_ones",
                                           "new_zeros",    "ones",
                                           "ones_like",    "repeat",
                                           "rsub",         "scalar_tensor",
                                           "sort",         "stack",
                                           "sub",          "sum",
                                           "tril",         "triu",
                                           "view",         "where",
                                           "zeros",        "zeros_like"};

// An argument, or a whole graph, that this does not know how to compute.
struct Unknown {};

class Evaluator {
 public:
  Evaluator(const graph::Trace& trace, std::span<const runtime::HostArray> leaves) : trace_(trace) {
    for (const runtime::HostArray& leaf : leaves) {
      // The kernels write to no operand.
      leaves_.push_back(at::from_blob(const_cast<void*>(leaf.data), leaf.shape.dims,
                                      at::TensorOptions(to_scalar_type(leaf.shape.dtype))));
    }
  }

  std::vector<std::vector<std::byte>> run() {
    for (const graph::Trace::Step& step : trace_.steps) results_.push_back(results_of(step));
    std::vector<std::vector<std::byte>> values;
    for (const graph::Source& root : trace_.roots) {
      const at::Tensor value = value_of(root).contiguous();
      std::vector<std::byte>& bytes = values.emplace_back(value.nbytes());
      if (!bytes.empty()) std::memcpy(bytes.data(), value.const_data_ptr(), bytes.size());
    }
    return values;
  }

 private:
  const at::Tensor& value_of(const graph::Source& source) const {
    return source.is_leaf ? leaves_[source.index] : results_[source.index][source.output];
  }
  const at::Tensor& operand(const graph::Trace::Step& step, std::size_t index) const {
    return value_of(trace_.sources[step.first_source + index]);
  }

  std::vector<at::Tensor> results_of(const graph::Trace::Step& step) const {
    const graph::Entry& entry = *step.node->entry();
    std::vector<at::Tensor> results = entry.op->is_view ? std::vector{view_of(step)} : call(step);
    if (results.size() != entry.outputs.size()) throw Unknown();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const base::Shape& shape = entry.outputs[i]->shape;
      if (entry.op->converts_result) {
        results[i] = results[i].to(to_scalar_type(shape.dtype)).expand(shape.dims);
      }
      if (results[i].scalar_type() != to_scalar_type(shape.dtype) ||
          results[i].sizes() != at::IntArrayRef(shape.dims)) {
        throw Unknown();
      }
      // As the device has them: operators were recorded for values without strides.
      results[i] = results[i].contiguous();
    }
    return results;
  }

  at::Tensor view_of(const graph::Trace::Step& step) const {
    const graph::Entry& entry = *step.node->entry();
    const at::Tensor& self = operand(step, 0);
    const std::string_view name = entry.op->name;
    const auto dims = [&] { return std::get<base::Dims>(entry.args.at(1)); };
    const auto integer = [&](std::size_t position) {
      return number(step, std::get<graph::Number>(entry.args.at(position))).toLong();
    };
    if (name == "view:reshape") return self.reshape(dims());
    if (name == "view:permute") return self.permute(dims());
    if (name == "view:expand") return self.expand(dims());
    if (name == "view:select") return self.select(integer(1), integer(2));
    if (name == "view:slice") {
      const std::int64_t start = integer(2);
      const std::int64_t distance = integer(4);
      return self.slice(integer(1), start, start + integer(3) * distance, distance);
    }
    throw Unknown();
  }

  std::vector<at::Tensor> call(const graph::Trace::Step& step) const {
    const graph::Entry& entry = *step.node->entry();
    const std::string_view name = entry.op->name;
    if (!std::ranges::binary_search(kOperators, name.substr(0, name.find('.')))) throw Unknown();
    const std::optional<c10::OperatorHandle> op =
        c10::Dispatcher::singleton().findSchema(operator_name(name));
    if (!op.has_value()) throw Unknown();
    torch::jit::Stack stack;
    std::size_t num_known = 0;
    for (const c10::Argument& one : op->schema().arguments()) {
      // What has no part in the program is no argument of the entry: a device, a layout.
      const auto found = std::ranges::find(entry.op->argument_names, one.name());
      const bool is_known = found != entry.op->argument_names.end();
      num_known += is_known ? 1 : 0;
      const auto position = static_cast<std::size_t>(found - entry.op->argument_names.begin());
      stack.push_back(argument(step, one, is_known ? entry.args.at(position) : graph::Attribute()));
    }
    if (num_known != entry.args.size()) throw Unknown();
    op->callBoxed(&stack);
    return tensors_of(stack);
  }

  static at::Scalar number(const graph::Trace::Step& step, const graph::Number& number) {
    if (number.slot < 0) return to_scalar(number.constant);
    const auto slot = static_cast<std::size_t>(number.slot);
    const std::uint64_t bits = step.node->slots()[slot];
    if (step.node->entry()->slots[slot].dtype == base::DType::kFloat64) {
      return std::bit_cast<double>(bits);
    }
    if (number.dtype == base::DType::kBool) return bits != 0;
    return static_cast<std::int64_t>(bits);
  }

  c10::IValue argument(const graph::Trace::Step& step, const c10::Argument& schema,
                       const graph::Attribute& value) const {
    c10::TypePtr type = schema.real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (std::holds_alternative<std::monostate>(value)) {
      return schema.default_value().value_or(c10::IValue());
    }
    if (const auto* of_operand = std::get_if<graph::Operand>(&value)) {
      const at::Tensor& tensor = operand(step, of_operand->index);
      return type->kind() == c10::TypeKind::TensorType ? c10::IValue(tensor)
                                                       : to_kind(*type, tensor.item());
    }
    if (const auto* list = std::get_if<graph::OperandList>(&value)) {
      return list_of_tensors(*type, std::span<const std::int32_t>(list->indices), [&](auto index) {
        return operand(step, static_cast<std::size_t>(index));
      });
    }
    if (const auto* of_number = std::get_if<graph::Number>(&value)) {
      return of_a_number(*type, *of_number, number(step, *of_number));
    }
    if (const auto* numbers = std::get_if<std::vector<graph::Number>>(&value)) {
      std::vector<at::Scalar> scalars;
      for (const graph::Number& one : *numbers) scalars.push_back(number(step, one));
      return list_of(*type, scalars);
    }
    if (const auto* dims = std::get_if<base::Dims>(&value)) {
      return c10::List<std::int64_t>(at::IntArrayRef(*dims));
    }
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* dtype = std::get_if<base::DType>(&value)) return to_scalar_type(*dtype);
    throw Unknown();
  }

  static c10::IValue of_a_number(const c10::Type& type, const graph::Number& number,
                                 const at::Scalar& value) {
    if (type.kind() != c10::TypeKind::TensorType) return to_kind(type, value);
    return number.is_wrapped
               ? at::native::wrapped_scalar_tensor(value)
               : at::scalar_tensor(value, at::TensorOptions(to_scalar_type(number.dtype)));
  }

  const graph::Trace& trace_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::vector<at::Tensor>> results_;  // of each step
};

std::vector<std::vector<std::byte>> evaluate(const graph::Trace& trace,
                                             std::span<const runtime::HostArray> leaves) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const OneThread alone;
  try {
    return Evaluator(trace, leaves).run();
  } catch (const Unknown&) {
    return {};
  } catch (const std::exception&) {
    return {};  // what the program says of it, if anything, is what the user gets
  }
}

const bool registered = [] {
  runtime::set_host_evaluation(evaluate);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten
