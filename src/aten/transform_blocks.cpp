// As PyTorch's kernels do, but into the program's memory: what they give is memory of their own, to
// be copied, and with three of them a core's cache is full.
#include "aten/transform_blocks.h"

#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>
#include <vector>

#include "aten/host_tensor.h"
#include "aten/parallel.h"
#include "dfti/transform.h"

namespace torch_xla::aten {
namespace {

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 32768;

// Sizes of the innermost dimensions, if `dims` are those.
std::optional<std::vector<std::int64_t>> innermost(const at::Tensor& self,
                                                   std::vector<std::int64_t> dims) {
  for (std::int64_t& dim : dims) dim = c10::maybe_wrap_dim(dim, self.dim());
  std::ranges::sort(dims);
  const auto count = static_cast<std::int64_t>(dims.size());
  for (std::int64_t i = 0; i < count; ++i) {
    if (dims[static_cast<std::size_t>(i)] != self.dim() - count + i) return std::nullopt;
  }
  return self.sizes().slice(static_cast<std::size_t>(self.dim() - count)).vec();
}

// PyTorch's normalisation: 0 none, 1 by the root of the size, 2 by the size.
double scale_of(std::int64_t normalization, std::int64_t size) {
  if (normalization == 0) return 1;
  const auto divisor = static_cast<double>(size);
  return 1 / (normalization == 1 ? std::sqrt(divisor) : divisor);
}

std::optional<dfti::Transforms> transforms_of(std::string_view name,
                                              const torch::jit::Stack& operands,
                                              const at::Tensor& out) {
  const bool is_of_reals = name == "_fft_r2c";
  if (!dfti::is_available() || (name != "_fft_c2c" && !is_of_reals)) return std::nullopt;
  const at::Tensor& self = operands[0].toTensor();
  if (!self.is_contiguous() || out.numel() == 0) return std::nullopt;
  const auto sizes = innermost(self, operands[1].toIntVector());
  if (!sizes.has_value() || sizes->empty() || (is_of_reals && sizes->size() > 1)) {
    return std::nullopt;
  }
  const std::int64_t size = c10::multiply_integers(*sizes);
  return dfti::Transforms{.is_double = c10::toRealValueType(self.scalar_type()) == at::kDouble,
                          .is_of_reals = is_of_reals,
                          .is_forward = is_of_reals || operands[3].toBool(),
                          .sizes = *sizes,
                          .distance = is_of_reals ? out.size(-1) : size,
                          .count = self.numel() / size,
                          .scale = scale_of(operands[2].toInt(), size)};
}

// The second half of the results of real arrays of `size`, of which the first half is there.
template <typename T>
void mirror(std::complex<T>* results, std::int64_t size, std::int64_t count) {
  for (; count > 0; --count, results += size) {
    for (std::int64_t i = size / 2 + 1; i < size; ++i) results[i] = std::conj(results[size - i]);
  }
}

}  // namespace

bool transform_in_blocks(const runtime::HostCall& call, std::string_view name,
                         const torch::jit::Stack& operands) {
  if (!name.starts_with("_fft_")) return false;
  const at::Tensor out = result_over(call, 0);
  const std::optional<dfti::Transforms> all = transforms_of(name, operands, out);
  // MKL shares fewer among its own threads.
  const auto num_threads = static_cast<std::int64_t>(call.num_threads());
  if (!all.has_value() || all->count < std::max<std::int64_t>(2, num_threads)) return false;
  const at::Tensor& self = operands[0].toTensor();
  const std::int64_t size = self.numel() / all->count;
  const bool is_whole = all->is_of_reals && all->distance == size;
  const auto* const from = static_cast<const char*>(self.const_data_ptr());
  auto* const to = static_cast<char*>(out.mutable_data_ptr());
  const auto grain = std::max<std::int64_t>(1, kElementsPerThread / size);
  const auto write = [&](std::int64_t begin, std::int64_t end) {
    const OneThread one_thread;
    dfti::Transforms block = *all;
    block.count = end - begin;
    void* const results = to + begin * all->distance * out.element_size();
    dfti::run(block, from + begin * size * self.element_size(), results);
    if (!is_whole) return;
    all->is_double ? mirror(static_cast<std::complex<double>*>(results), size, block.count)
                   : mirror(static_cast<std::complex<float>*>(results), size, block.count);
  };
  in_parallel(call, all->count, grain, write, 1);
  return true;
}

}  // namespace torch_xla::aten
