// Printing of shapes.
#include "base/shape.h"

namespace torch_xla::base {
namespace {

std::string join(const Dims& dims, const char* separator) {
  std::string out;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) out += separator;
    out += std::to_string(dims[i]);
  }
  return out;
}

}  // namespace

std::string to_string(const Shape& shape) {
  return std::string(dtype_info(shape.dtype).short_name) + "[" + join(shape.dims, ",") + "]";
}

std::string to_string(const Dims& dims) { return "[" + join(dims, ", ") + "]"; }

}  // namespace torch_xla::base
