// Rolls along a dimension as a host kernel of our own: XLA's CPU backend puts the two parts
// together on one thread, and PyTorch's kernel can't write where it is told to. src/ops/shape.cpp
// emits the calls.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "aten/parallel.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kBytesPerThread = 1 << 17;

// In each row of `row` bytes, the last `shift` go to the front.
void roll_rows(const HostCall& call, std::byte* to, const std::byte* from, std::int64_t bytes,
               std::int64_t row, std::int64_t shift) {
  in_parallel(call, bytes, kBytesPerThread, [=](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t place = begin % row;
      const bool is_front = place < shift;
      const std::int64_t length = std::min((is_front ? shift : row) - place, end - begin);
      const std::int64_t source = is_front ? begin + row - shift : begin - shift;
      std::memcpy(to + begin, from + source, static_cast<std::size_t>(length));
      begin += length;
    }
  });
}

void roll(const HostCall& call) {
  const auto self = call.input(0);
  const auto dim = static_cast<std::size_t>(call.integer("dim"));
  std::int64_t inner = base::size_bytes(self.dtype);
  for (std::size_t i = dim + 1; i < self.dims.size(); ++i) inner *= self.dims[i];
  std::int64_t bytes = inner;
  for (std::size_t i = 0; i <= dim; ++i) bytes *= self.dims[i];
  roll_rows(call, static_cast<std::byte*>(call.output(0).data),
            static_cast<const std::byte*>(self.data), bytes, inner * self.dims[dim],
            inner * call.integer("shift"));
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.roll", roll);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten
