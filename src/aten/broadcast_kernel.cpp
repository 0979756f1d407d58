// Copies of broadcast views as a host kernel of our own: XLA's CPU backend writes one element after
// the other, and PyTorch's kernel can't write where it is told to. src/ops/shape.cpp emits the
// calls.
#include <algorithm>
#include <vector>

#include "aten/call_arrays.h"
#include "aten/merged_dims.h"
#include "aten/parallel.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kBytesPerThread = 1 << 17;

// Walks through the operand in the order of the result: where what comes next lies.
class Walk {
 public:
  Walk(const std::vector<MergedDim>& dims, std::int64_t start) : dims_(dims), places_(dims.size()) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      places_[i] = start % dims[i].size;
      source_ += places_[i] * dims[i].from;
      start /= dims[i].size;
    }
  }

  std::int64_t source() const { return source_; }

  void advance() {
    for (std::size_t i = 0; i < dims_.size(); ++i) {
      source_ += dims_[i].from;
      if (++places_[i] < dims_[i].size) return;
      source_ -= dims_[i].size * dims_[i].from;
      places_[i] = 0;
    }
  }

 private:
  const std::vector<MergedDim>& dims_;
  std::vector<std::int64_t> places_;
  std::int64_t source_ = 0;
};

template <typename T>
void broadcast_of(const HostCall& call) {
  std::vector<MergedDim> dims = merged_dims(call.integers("sizes"), call.integers("distances"));
  // A run of the operand's elements, and how often each of them comes.
  std::int64_t times = 1;
  if (dims.front().from == 0) {
    times = dims.front().size;
    dims.erase(dims.begin());
  }
  const std::int64_t run = dims.front().size;
  dims.erase(dims.begin());
  std::int64_t runs = 1;
  for (const MergedDim& dim : dims) runs *= dim.size;
  const std::int64_t bytes = run * times * static_cast<std::int64_t>(sizeof(T));
  const T* const operand = data_of<const T>(call.input(0));
  T* const result = data_of<T>(call.output(0));
  const auto write = [&](std::int64_t begin, std::int64_t end) {
    Walk walk(dims, begin);
    T* to = result + begin * run * times;
    for (std::int64_t i = begin; i < end; ++i, walk.advance()) {
      const T* const from = operand + walk.source();
      if (times == 1) {
        to = std::copy_n(from, run, to);
      } else {
        for (std::int64_t j = 0; j < run; ++j) to = std::fill_n(to, times, from[j]);
      }
    }
  };
  in_parallel(call, runs, std::max<std::int64_t>(1, kBytesPerThread / bytes), write);
}

void broadcast(const HostCall& call) {
  with_element_of(call.input(0), [&](auto element) { broadcast_of<decltype(element)>(call); });
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.broadcast", broadcast);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten
