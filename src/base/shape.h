// Sizes of tensors, and a shape with its element type, as all layers above `base` pass them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace torch_xla::base {

using Dims = std::vector<std::int64_t>;

// The product of the sizes; 1 for a scalar.
inline std::int64_t num_elements(const Dims& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

struct Shape {
  DType dtype = DType::kFloat32;
  Dims dims;

  int rank() const { return static_cast<int>(dims.size()); }
  std::int64_t num_elements() const { return base::num_elements(dims); }
  std::int64_t num_bytes() const { return num_elements() * size_bytes(dtype); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// As XLA prints it: "f32[2,5]".
std::string to_string(const Shape& shape);
// As PyTorch prints sizes: "[2, 5]".
std::string to_string(const Dims& dims);

}  // namespace torch_xla::base
