// What an observer of channels holds before it has seen any.
#include "aten/observer.h"

#include <ATen/core/Tensor.h>

#include <limits>

namespace torch_xla::aten {
namespace {

void make_state(at::ArrayRef<c10::IValue> arguments) {
  enum : std::size_t { kSelf, kMin = 3, kMax, kScale, kZeroPoint, kAxis = 10, kPerRow };
  const at::Tensor& self = arguments[kSelf].toTensor();
  const at::Tensor& running_min = arguments[kMin].toTensor();
  const std::int64_t axis = arguments[kAxis].toInt();
  if (!arguments[kPerRow].toBool() || running_min.numel() != 0 || axis >= self.dim()) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::int64_t size = self.size(axis);
  running_min.resize_(size).fill_(kInfinity);
  arguments[kMax].toTensor().resize_(size).fill_(-kInfinity);
  arguments[kScale].toTensor().resize_(size);
  arguments[kZeroPoint].toTensor().resize_(size);
}

}  // namespace

void ObserverKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                torch::jit::Stack* stack) {
  make_state(torch::jit::last(*stack, handle.schema().arguments().size()));
  kernel_(handle, keys, stack);
}

}  // namespace torch_xla::aten
