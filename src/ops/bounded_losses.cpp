// Losses of two tensors, and their gradients, of as many elements as are data.
#include "ops/bounded_emission.h"

namespace torch_xla::ops {
namespace {

constexpr std::int64_t kNoReduction = 0;
constexpr std::int64_t kMean = 1;
constexpr std::int64_t kSum = 2;

// A count of elements has more digits than others keep.
void require_exact(Emission& e, DType dtype) {
  e.require(dtype == DType::kFloat32 || dtype == DType::kFloat64);
}

// (self, target, reduction, ...), where two zeros lose nothing.
Results loss(Emission& e) {
  e.require_fixed();
  const std::size_t self = e.place(0);
  const std::size_t target = e.place(1);
  e.require(e.operand(self).dims() == e.operand(target).dims() &&
            e.variables(self) == e.variables(target));
  const std::int64_t reduction = e.integer(2);
  if (reduction == kNoReduction) return e.ordinary();
  e.hide(self, e.zero(self));
  if (target != self) e.hide(target, e.zero(target));
  if (reduction == kSum) return e.ordinary();
  require_exact(e, e.output_dtype());
  const Value sum = e.ordinary(e.with_integer(2, kSum))[0];
  return {hlo::divide(sum, e.count(self, sum.dtype()))};
}

// (grad_output, self, target, reduction, ...)
Results loss_backward(Emission& e) {
  if (e.integer(3) != kMean) return e.pointwise();
  const std::size_t grad = e.place(0);
  const std::size_t self = e.place(1);
  e.require(e.variables(grad).empty() && grad != self && grad != e.place(2));
  require_exact(e, e.operand(grad).dtype());
  e.operand(grad) = hlo::divide(e.operand(grad), e.count(self, e.operand(grad).dtype()));
  return e.pointwise(e.with_integer(3, kSum));
}

// Targets behind the elements are those that are ignored: (..., self, target, weight, reduction,
// ignore_index, ...) from `self_arg` on, of which one dimension of `self` is the classes.
void ignore_rest(Emission& e, std::size_t self_arg) {
  e.require_fixed();
  const std::size_t self = e.place(self_arg);
  const std::size_t target = e.place(self_arg + 1);
  const std::size_t rank = e.variables(self).size();
  e.require(rank > 1 && e.variables(self)[1] == kNoVariable &&
            e.variables(target).size() == rank - 1);
  // A class of uint8 can't be the one that is ignored, which is below zero by default.
  e.require(e.operand(target).dtype() == DType::kInt64);
  e.hide(target, scalar(e.builder(), e.operand(target).dtype(), e.integer(self_arg + 4)));
  e.hide(self, e.zero(self));
}

Results nll_loss(Emission& e) {
  ignore_rest(e, 0);
  return e.ordinary();
}

Results nll_loss_backward(Emission& e) {
  ignore_rest(e, 1);
  const std::size_t grad = e.place(0);
  e.hide(grad, e.zero(grad));
  return e.ordinary();
}

}  // namespace

const Rules& loss_rules() {
  static const Rules table = {
      {"mse_loss", loss},
      {"smooth_l1_loss", loss},
      {"huber_loss", loss},
      {"mse_loss_backward", loss_backward},
      {"smooth_l1_loss_backward", loss_backward},
      {"huber_loss_backward", loss_backward},
      {"nll_loss_forward", nll_loss},
      {"nll_loss2d_forward", nll_loss},
      {"nll_loss_backward", nll_loss_backward},
      {"nll_loss2d_backward", nll_loss_backward},
  };
  return table;
}

}  // namespace torch_xla::ops
