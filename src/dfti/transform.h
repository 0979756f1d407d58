// Fourier transforms by the DFTI functions of MKL, where PyTorch was built with it: its own kernels
// call the same functions, and can't be told where the result goes.
#pragma once

#include <cstdint>
#include <vector>

namespace torch_xla::dfti {

bool is_available();

// Of `count` arrays, one behind the other, of float or double or of complex numbers of them.
struct Transforms {
  bool is_double = false;
  // Of a real array's result, the last dimension's first size / 2 + 1 elements are written.
  bool is_of_reals = false;
  bool is_forward = true;
  std::vector<std::int64_t> sizes;  // of one array
  std::int64_t distance = 0;        // between results, in elements
  std::int64_t count = 0;
  double scale = 1;  // of each element of the results
};

// On the calling thread and those that OpenMP gives it. `to` is not `from`.
void run(const Transforms& transforms, const void* from, void* to);

}  // namespace torch_xla::dfti
