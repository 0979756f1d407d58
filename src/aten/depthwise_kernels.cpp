// Convolutions of one channel each as host kernels of our own: in float64 PyTorch computes channel
// by channel, and for the gradient of a weight larger than 3 x 3 oneDNN has a reference alone.
// src/ops/convolution_call.cpp emits the calls.
#include <algorithm>
#include <array>

#include "aten/call_arrays.h"
#include "aten/parallel.h"
#include "rows/lanes.h"

namespace torch_xla::aten {
namespace {

using rows::TORCH_XLA_ROWS::for_row;
using rows::TORCH_XLA_ROWS::load;
using rows::TORCH_XLA_ROWS::store;
using rows::TORCH_XLA_ROWS::sum_of;
using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kProductsPerThread = 65536;
constexpr std::size_t kMostDims = 3;

// Along one dimension of an image.
struct Axis {
  std::int64_t input = 1;
  std::int64_t output = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;

  // Where in the input the first output lies for this place of the kernel.
  std::int64_t offset(std::int64_t place) const { return place * dilation - padding; }
  // The outputs that have an input there.
  std::pair<std::int64_t, std::int64_t> outputs(std::int64_t place) const {
    const std::int64_t before = -offset(place);
    const std::int64_t last = input - 1 + before;
    const std::int64_t begin = before > 0 ? (before + stride - 1) / stride : 0;
    return {begin, last < 0 ? begin : std::max(begin, std::min(output, last / stride + 1))};
  }
};

// Images [N, C, input] and [N, C * multiplier, output], and a kernel for each channel of these.
class Geometry {
 public:
  Geometry(const HostCall& call, const pjrt::CustomCallArray& input,
           const pjrt::CustomCallArray& kernel, const pjrt::CustomCallArray& output)
      : batch(input.dims[0]), channels(output.dims[1]), multiplier(channels / input.dims[1]) {
    const std::size_t dims = input.dims.size() - 2;
    for (std::size_t i = 0; i < dims; ++i) {
      axes_[kMostDims - dims + i] = {.input = input.dims[i + 2],
                                     .output = output.dims[i + 2],
                                     .kernel = kernel.dims[i + 2],
                                     .stride = call.integers("stride")[i],
                                     .padding = call.integers("padding")[i],
                                     .dilation = call.integers("dilation")[i]};
    }
    for (const Axis& axis : axes_) {
      input_size *= axis.input;
      kernel_size *= axis.kernel;
      output_size *= axis.output;
    }
  }

  // Calls `body(place, output, input, count)` for each place of the kernel and row of outputs: from
  // `output` on, one behind the other, they meet inputs from `input` on, `step()` apart.
  template <typename Body>
  void for_each_row(const Body& body) const {
    const auto& [depth, height, width] = axes_;
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < depth.kernel; ++i) {
      for (std::int64_t j = 0; j < height.kernel; ++j) {
        for (std::int64_t k = 0; k < width.kernel; ++k) rows_of(place++, i, j, k, body);
      }
    }
  }
  std::int64_t step() const { return axes_[2].stride; }
  // Images of which a thread has enough to do.
  std::int64_t grain() const {
    return std::max<std::int64_t>(1, kProductsPerThread / (kernel_size * output_size));
  }

  const std::int64_t batch;
  const std::int64_t channels;
  const std::int64_t multiplier;
  // Elements of an image.
  std::int64_t input_size = 1;
  std::int64_t kernel_size = 1;
  std::int64_t output_size = 1;

 private:
  template <typename Body>
  void rows_of(std::int64_t place, std::int64_t i, std::int64_t j, std::int64_t k,
               const Body& body) const {
    const auto& [depth, height, width] = axes_;
    const auto [first, last] = width.outputs(k);
    if (first == last) return;
    const auto [front, back] = depth.outputs(i);
    const auto [top, bottom] = height.outputs(j);
    for (std::int64_t d = front; d < back; ++d) {
      for (std::int64_t h = top; h < bottom; ++h) {
        const std::int64_t output = (d * height.output + h) * width.output + first;
        const std::int64_t row = (d * depth.stride + depth.offset(i)) * height.input +
                                 h * height.stride + height.offset(j);
        body(place, output, row * width.input + first * width.stride + width.offset(k),
             last - first);
      }
    }
  }

  std::array<Axis, kMostDims> axes_;
};

template <typename T>
void add_products(T* to, std::int64_t to_step, const T* from, std::int64_t from_step, T factor,
                  std::int64_t count) {
  if (to_step == 1 && from_step == 1) {
    return for_row<T>(count, [=]<typename V>(std::int64_t x) {
      store(to + x, V(load<V>(to + x) + load<V>(from + x) * factor));
    });
  }
  for (std::int64_t x = 0; x < count; ++x) to[x * to_step] += from[x * from_step] * factor;
}

template <typename T>
T sum_of_products(const T* a, const T* b, std::int64_t b_step, std::int64_t count) {
  if (b_step == 1) {
    return sum_of<T>(
        count, [=]<typename V>(std::int64_t x) -> V { return load<V>(a + x) * load<V>(b + x); });
  }
  T sum = 0;
  for (std::int64_t x = 0; x < count; ++x) sum += a[x] * b[x * b_step];
  return sum;
}

// [input, weight] to output.
template <typename T>
void correlate_of(const HostCall& call) {
  const Geometry g(call, call.input(0), call.input(1), call.output(0));
  const T* const inputs = data_of<T>(call.input(0));
  const T* const weights = data_of<T>(call.input(1));
  T* const outputs = data_of<T>(call.output(0));
  const auto image = [&](std::int64_t n) {
    const T* const input = inputs + n / g.multiplier * g.input_size;
    const T* const weight = weights + n % g.channels * g.kernel_size;
    T* const output = outputs + n * g.output_size;
    std::fill_n(output, g.output_size, T(0));
    g.for_each_row([&](std::int64_t place, std::int64_t o, std::int64_t i, std::int64_t count) {
      add_products(output + o, 1, input + i, g.step(), weight[place], count);
    });
  };
  in_parallel(call, g.batch * g.channels, g.grain(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) image(n);
  });
}

// [output, weight] to input: the adjoint of `correlate` in its input.
template <typename T>
void adjoint_input_of(const HostCall& call) {
  const Geometry g(call, call.output(0), call.input(1), call.input(0));
  const T* const outputs = data_of<T>(call.input(0));
  const T* const weights = data_of<T>(call.input(1));
  T* const inputs = data_of<T>(call.output(0));
  const auto add = [&](std::int64_t n) {
    const T* const output = outputs + n * g.output_size;
    const T* const weight = weights + n % g.channels * g.kernel_size;
    T* const input = inputs + n / g.multiplier * g.input_size;
    g.for_each_row([&](std::int64_t place, std::int64_t o, std::int64_t i, std::int64_t count) {
      add_products(input + i, g.step(), output + o, 1, weight[place], count);
    });
  };
  const std::int64_t images = g.batch * g.channels / g.multiplier;
  in_parallel(call, images, g.grain(), [&](std::int64_t begin, std::int64_t end) {
    std::fill_n(inputs + begin * g.input_size, (end - begin) * g.input_size, T(0));
    for (std::int64_t n = begin * g.multiplier; n < end * g.multiplier; ++n) add(n);
  });
}

// [input, output] to weight: the adjoint in the weight.
template <typename T>
void adjoint_weight_of(const HostCall& call) {
  const Geometry g(call, call.input(0), call.output(0), call.input(1));
  const T* const inputs = data_of<T>(call.input(0));
  const T* const outputs = data_of<T>(call.input(1));
  T* const weights = data_of<T>(call.output(0));
  const auto add = [&](std::int64_t n) {
    T* const weight = weights + n % g.channels * g.kernel_size;
    const T* const input = inputs + n / g.multiplier * g.input_size;
    const T* const output = outputs + n * g.output_size;
    g.for_each_row([&](std::int64_t place, std::int64_t o, std::int64_t i, std::int64_t count) {
      weight[place] += sum_of_products(output + o, input + i, g.step(), count);
    });
  };
  const std::int64_t grain = std::max<std::int64_t>(1, g.grain() / g.batch);
  in_parallel(call, g.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    std::fill_n(weights + begin * g.kernel_size, (end - begin) * g.kernel_size, T(0));
    for (std::int64_t c = begin; c < end; ++c) {
      for (std::int64_t n = 0; n < g.batch; ++n) add(n * g.channels + c);
    }
  });
}

bool is_float32(const HostCall& call) { return call.input(0).dtype == base::DType::kFloat32; }

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.depthwise_correlate", [](const HostCall& call) {
    is_float32(call) ? correlate_of<float>(call) : correlate_of<double>(call);
  });
  runtime::add_host_kernel("torch_xla.depthwise_adjoint_input", [](const HostCall& call) {
    is_float32(call) ? adjoint_input_of<float>(call) : adjoint_input_of<double>(call);
  });
  runtime::add_host_kernel("torch_xla.depthwise_adjoint_weight", [](const HostCall& call) {
    is_float32(call) ? adjoint_weight_of<float>(call) : adjoint_weight_of<double>(call);
  });
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten
