// The xla device from C++, without Python: a matrix product on `xla:0`, compared with PyTorch's
// own.
//
// Linking torch_xla::torch_xla (CMakeLists.txt) is all that it takes: the library registers the
// device with PyTorch when it is loaded. Which plugin runs it is said by the environment, since the
// installed ones are looked up in Python alone:
//
//   package=$(python -c "import torch_xla; print(torch_xla.__path__[0])")
//   cmake -S examples/cpp -B build/cpp -DCMAKE_PREFIX_PATH=$package && cmake --build build/cpp
//   PJRT_LIBRARY_PATH=/path/to/plugin.so build/cpp/matmul
#include <ATen/ATen.h>
#include <torch_xla/aten/barrier.h>

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
  // The barrier compiles the program and launches it; reading the value waits for it.
  torch_xla::aten::sync(device);
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
