// The xla device from C++, without Python: a matrix product on `xla:0`, compared with PyTorch's
// own.
//
// Linking libtorch_xla.so is all that it takes: the library registers the device with PyTorch when
// it is loaded. Which plugin runs it is said by the environment, since the installed ones are
// looked up in Python alone:
//
//   cmake --build build/release --target example_matmul
//   PJRT_LIBRARY_PATH=/path/to/plugin.so build/release/example_matmul
#include <ATen/ATen.h>

#include <exception>
#include <iostream>

namespace {

bool run() {
  const at::Device device("xla:0");
  const at::Tensor a = at::rand({64, 32});
  const at::Tensor b = at::rand({32, 16});
  // Recorded: sizes and dtype are known, nothing has run yet.
  const at::Tensor product = at::matmul(a.to(device), b.to(device));
  std::cout << "recorded on " << product.device() << ": " << product.sizes() << '\n';
  // Reading the value compiles the program, runs it and waits for it.
  const at::Tensor result = product.cpu();
  const double error = (result - at::matmul(a, b)).abs().max().item<double>();
  std::cout << "greatest difference from the CPU: " << error << '\n';
  return error < 1e-4;
}

}  // namespace

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
