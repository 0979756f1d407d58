// Boxed kernels for data-dependent shapes.
#include "aten/dynamic_shapes.h"

#include <ATen/native/CPUFallback.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor_split.h>

#include "aten/blocking.h"
#include "aten/copy.h"
#include "aten/errors.h"
#include "aten/fallback.h"
#include "aten/registration.h"
#include "aten/tensor.h"
#include "aten/warning.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "runtime/executor.h"
#include "runtime/transfer.h"

namespace torch_xla::aten {
namespace {

constexpr const char* kNames[] = {
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "bincount",
    "unique_consecutive",
    "unique_dim_consecutive",
};

// Whether XLA_EXPERIMENTAL names it.
bool is_experiment(std::string_view name) {
  const std::string list = ":" + base::settings().experimental() + ":";
  return list.find(base::str(":", name, ":")) != std::string::npos;
}

// What was recorded beside the operator's inputs runs in the program that its read waits for.
void sync_early(const torch::jit::Stack& stack) {
  static base::Counter& count = base::counter("EarlySyncLiveTensorsCount");
  for (const c10::IValue& value : stack) {
    const TensorImpl* const impl = value.isTensor() ? as_xla(value.toTensor()) : nullptr;
    if (impl == nullptr) continue;
    count.add();
    blocking([&] { runtime::sync(impl->xla_device(), /*wait=*/false); });
    return;
  }
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<std::int64_t> output_size) {
  if (output_size.has_value()) {
    // Which repetition each position lies in.
    const at::Tensor ends = repeats.cumsum(0, repeats.scalar_type());
    return at::searchsorted(ends, at::arange(*output_size, repeats.options()),
                            /*out_int32=*/repeats.scalar_type() == at::kInt, /*right=*/true);
  }
  report_dynamic_shape("aten::repeat_interleave.Tensor");
  const runtime::ReadsForOperator reads;
  return to_device(at::repeat_interleave(to_cpu({repeats}).front()), repeats.device());
}

// PyTorch takes the indices from the CPU alone.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& indices,
                                     std::int64_t dim) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "tensor_split expected tensor_indices_or_sections to have dtype of long, but got ",
              indices.scalar_type());
  TORCH_CHECK(indices.dim() <= 1,
              "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
              "one-dimensional tensor, but got a tensor with ",
              indices.dim(), " dims");
  at::Tensor read = indices;
  if (!read.device().is_cpu()) {
    report_dynamic_shape("aten::tensor_split.tensor_indices_or_sections");
    const runtime::ReadsForOperator reads;
    read = to_cpu({read}).front();
  }
  if (read.dim() == 0) return at::tensor_split(self, read.item<std::int64_t>(), dim);
  read = read.contiguous();
  const at::IntArrayRef list(read.const_data_ptr<std::int64_t>(),
                             static_cast<std::size_t>(read.numel()));
  return at::tensor_split(self, list, dim);
}

}  // namespace

void run_with_dynamic_shape(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  report_dynamic_shape(c10::toString(op.operator_name()));
  if (is_experiment("early_sync")) translating([&] { sync_early(*stack); });
  // All inputs are read at once.
  at::native::cpu_fallback(op, stack);
}

void register_dynamic_shapes(torch::Library& m) {
  for (const char* name : kNames) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_with_dynamic_shape>());
  }
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  register_splits(m);
}

void register_splits(torch::Library& m) {
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
}

std::vector<std::string> dynamic_operators() {
  std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  names.emplace_back("repeat_interleave.Tensor");
  names.emplace_back("tensor_split.tensor_indices_or_sections");
  return names;
}

void report_dynamic_shape(const std::string& name) {
  static base::Counter& count = base::counter("DataDependentShape");
  count.add();
  const std::string_view plain = std::string_view(name).substr(name.rfind(':') + 1);
  if (is_experiment(plain.substr(0, plain.find('.'))) || !is_first_use(name)) return;
  warn(c10::str(
      name,
      " has as many results as its input's values say: they are computed and read here, and "
      "every time it is called. What depends on other values stays recorded."));
}

}  // namespace torch_xla::aten
