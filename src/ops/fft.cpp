// Fourier transforms (_fft_c2c, _fft_r2c, _fft_c2r), to which all of torch.fft comes down. XLA
// transforms the innermost one to three dimensions and divides inverses by their size.
#include <algorithm>
#include <cmath>

#include "hlo/partitioned.h"
#include "ops/linear_algebra.h"
#include "ops/promotion.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// Applies `f` to `value` with `dims` moved to the end, in their order, and moves them back. Devices
// share the work along the first of the other dimensions alone: XLA's partitioner makes of any
// other split a transform whose elements lie in an order that the CPU's kernel refuses.
template <typename F>
Value with_innermost(Value value, const Dims& dims, const F& f) {
  Dims permutation;
  for (std::int64_t i = 0; i < value.rank(); ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) permutation.push_back(i);
  }
  const std::size_t num_batch = permutation.size();
  permutation.insert(permutation.end(), dims.begin(), dims.end());
  Dims inverse(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    inverse[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  }
  Dims whole;
  for (std::int64_t i = num_batch > 0 ? 1 : 0; i < value.rank(); ++i) whole.push_back(i);
  const Value operand = hlo::whole_along(hlo::transpose(value, permutation), whole);
  return hlo::transpose(hlo::whole_along(f(operand), whole), inverse);
}

std::int64_t transformed_size(const Dims& sizes, const Dims& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= sizes[static_cast<std::size_t>(d)];
  return n;
}

// PyTorch's normalisation: 0 none, 1 by the root of the size, 2 by the size. `divided` is what XLA
// divided by already.
Value normalized(Value value, std::int64_t normalization, std::int64_t size, std::int64_t divided) {
  double factor = static_cast<double>(divided);
  if (normalization == 1) factor /= std::sqrt(static_cast<double>(size));
  if (normalization == 2) factor = divided == size ? 1 : factor / static_cast<double>(size);
  if (factor == 1) return value;
  return hlo::multiply(value, full_like(value, factor));
}

// Complex to complex over any number of dims.
Value transform(Value value, const Dims& dims, hlo::FftType type) {
  for (std::size_t begin = 0; begin < dims.size(); begin += 3) {
    const std::size_t end = std::min(begin + 3, dims.size());
    const Dims group(dims.begin() + static_cast<std::ptrdiff_t>(begin),
                     dims.begin() + static_cast<std::ptrdiff_t>(end));
    value = with_innermost(value, group, [&](Value v) {
      return hlo::fft(v, type, trailing_dims(v.dims(), group.size()));
    });
  }
  return value;
}

Value fft_c2c(Value self, const Dims& dim, std::int64_t normalization, bool forward) {
  const Dims dims = dim.empty() ? Dims{} : wrap_dims(dim, self.rank());
  if (dims.empty() || self.num_elements() == 0) return self;
  const std::int64_t size = transformed_size(self.dims(), dims);
  const Value out = transform(self, dims, forward ? hlo::FftType::kFft : hlo::FftType::kIfft);
  return normalized(out, normalization, size, forward ? 1 : size);
}

Value fft_r2c(Value self, const Dims& dim, std::int64_t normalization, bool onesided) {
  base::check(base::is_floating(self.dtype()),
              "Only supports floating-point dtypes, but found: ", scalar_type_name(self.dtype()));
  const Dims dims = wrap_dims(dim, self.rank());
  const DType dtype = base::complex_dtype(self.dtype());
  if (!onesided) return fft_c2c(convert(self, dtype), dims, normalization, true);
  const std::int64_t size = transformed_size(self.dims(), dims);
  const std::int64_t last = dims.back();
  const std::int64_t length = self.dim(last);
  if (self.num_elements() == 0) {
    Shape shape{dtype, self.dims()};
    shape.dims[static_cast<std::size_t>(last)] = length / 2 + 1;
    return full(self.builder(), shape, 0);
  }
  Value out = with_innermost(self, {last},
                             [&](Value v) { return hlo::fft(v, hlo::FftType::kRfft, {length}); });
  out = transform(out, leading_dims(dims, 1), hlo::FftType::kFft);
  return normalized(out, normalization, size, 1);
}

// `last_dim_size` is the length of the real result's last transformed dimension, which the input
// holds half of.
Value fft_c2r(Value self, const Dims& dim, std::int64_t normalization, std::int64_t last_dim_size) {
  const Dims dims = wrap_dims(dim, self.rank());
  const std::int64_t last = dims.back();
  Shape shape{base::real_dtype(self.dtype()), self.dims()};
  shape.dims[static_cast<std::size_t>(last)] = last_dim_size;
  if (shape.num_elements() == 0) return full(self.builder(), shape, 0);
  const std::int64_t size = transformed_size(shape.dims, dims);
  Dims half = self.dims();
  half[static_cast<std::size_t>(last)] = last_dim_size / 2 + 1;
  const Dims origin(half.size(), 0);
  const Dims ones(half.size(), 1);
  Value out = hlo::slice(self, origin, half, ones);
  out = transform(out, leading_dims(dims, 1), hlo::FftType::kIfft);
  out = with_innermost(out, {last},
                       [&](Value v) { return hlo::fft(v, hlo::FftType::kIrfft, {last_dim_size}); });
  return normalized(out, normalization, size, size);
}

}  // namespace

void register_fft(Registry& m) {
  m.impl("_fft_c2c", fft_c2c);
  m.impl("_fft_r2c", fft_r2c);
  m.impl("_fft_c2r", fft_c2r);
}

}  // namespace torch_xla::ops
