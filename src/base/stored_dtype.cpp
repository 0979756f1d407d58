// The table from reported to stored dtypes, made from the settings.
#include "base/stored_dtype.h"

#include <array>

#include "base/settings.h"

namespace torch_xla::base {
namespace {

struct Table {
  std::array<DType, kNumDTypes> stored;
  bool is_identity = true;

  Table() {
    for (int i = 0; i < kNumDTypes; ++i) {
      stored[static_cast<std::size_t>(i)] = static_cast<DType>(i);
    }
    Settings& s = settings();
    // The first that is set decides.
    if (s.use_bf16()) {
      store_floats(DType::kBFloat16, DType::kBFloat16);
    } else if (s.downcast_bf16()) {
      store_floats(DType::kFloat32, DType::kBFloat16);
    } else if (s.use_fp16()) {
      store_floats(DType::kFloat16, DType::kFloat16);
    } else if (s.downcast_fp16()) {
      store_floats(DType::kFloat32, DType::kFloat16);
    }
    if (s.use_32bit_long()) store(DType::kInt64, DType::kInt32);
  }

  void store_floats(DType doubles, DType floats) {
    store(DType::kFloat64, doubles);
    store(DType::kFloat32, floats);
  }

  void store(DType reported, DType as) {
    stored[static_cast<std::size_t>(reported)] = as;
    is_identity = false;
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

}  // namespace

DType stored_dtype(DType reported) { return table().stored[static_cast<std::size_t>(reported)]; }

Shape stored_shape(const Shape& reported) { return {stored_dtype(reported.dtype), reported.dims}; }

bool stores_other_dtypes() { return !table().is_identity; }

}  // namespace torch_xla::base
