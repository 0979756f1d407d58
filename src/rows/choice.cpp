// Which of the functions that are compiled for several processors are those of this one.
#include "base/cpu_features.h"
#include "rows/half_rows.h"
#include "rows/normalization_rows.h"

namespace torch_xla::rows {
namespace {

#ifdef TORCH_XLA_AVX2_ROWS
bool has_avx2() {
  static const bool has = base::has_cpu_feature("avx2") && base::has_cpu_feature("fma") &&
                          base::has_cpu_feature("f16c");
  return has;
}
#endif

}  // namespace

template <typename T>
const HalfRows<T>& half_rows() {
#ifdef TORCH_XLA_AVX2_ROWS
  if (has_avx2()) return avx2::half_rows<T>();
#endif
  return baseline::half_rows<T>();
}

template const HalfRows<Float16>& half_rows();
template const HalfRows<BFloat16>& half_rows();

template <typename T>
const NormalizationRows<T>& normalization_rows() {
#ifdef TORCH_XLA_AVX2_ROWS
  if (has_avx2()) return avx2::normalization_rows<T>();
#endif
  return baseline::normalization_rows<T>();
}

template const NormalizationRows<float>& normalization_rows();
template const NormalizationRows<double>& normalization_rows();

}  // namespace torch_xla::rows
