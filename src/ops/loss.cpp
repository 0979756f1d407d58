// Losses that compare element by element, and their gradients. Half precision is computed in
// float32. Losses over classes stand in class_loss.cpp.
#include "ops/loss.h"

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "ops/host_choice.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {

Value reduce_losses(const Context& context, Value losses, std::int64_t reduction) {
  if (reduction == kNone) return losses;
  const Value sum = chosen_sum(context, losses);
  if (reduction == kSum || losses.num_elements() == 1) return sum;
  return hlo::divide(sum, hlo::full_like(sum, static_cast<double>(losses.num_elements())));
}

Value gradient_of_losses(Value grad_output, const Dims& dims, std::int64_t reduction) {
  if (reduction == kMean) {
    const auto count = static_cast<double>(base::num_elements(dims));
    grad_output = hlo::divide(grad_output, hlo::full_like(grad_output, count));
  }
  return broadcast_to(grad_output, dims);
}

namespace {

using MaybeValue = std::optional<Value>;

// A pair of operands in the dtype that is computed in, and the dtype of the result.
struct Operands {
  Value self;
  Value target;
  DType result;
};

Operands operands_of(Value self, Value target, std::string_view kernel) {
  const DType result = result_type({self, target});
  check_implemented(base::is_floating(result), kernel, result);
  const auto both = promote_to({self, target}, accumulate_dtype(result));
  return {both[0], both[1], result};
}

// A loss of each pair, or its derivative; `parameter` is beta or delta where it has one.
struct Pointwise {
  std::string_view kernel;  // what PyTorch's errors call it
  Value (*function)(Value self, Value target, double parameter);
};

Value loss_of(const Context& context, const Pointwise& loss, Value self, Value target,
              std::int64_t reduction, double parameter) {
  const Operands in = operands_of(self, target, loss.kernel);
  return convert(reduce_losses(context, loss.function(in.self, in.target, parameter), reduction),
                 in.result);
}

// `derivative` is that of the loss with respect to self.
Value gradient_of(const Pointwise& derivative, Value grad_output, Value self, Value target,
                  std::int64_t reduction, double parameter) {
  const Operands in = operands_of(self, target, derivative.kernel);
  const Value grad =
      gradient_of_losses(convert(grad_output, in.self.dtype()), in.self.dims(), reduction);
  return convert(hlo::multiply(derivative.function(in.self, in.target, parameter), grad),
                 self.dtype());
}

// ---- Regression ---------------------------------------------------------------------------------

Value squared_error(Value self, Value target, double) {
  const Value difference = hlo::subtract(self, target);
  return hlo::multiply(difference, difference);
}

Value squared_error_derivative(Value self, Value target, double) {
  return hlo::multiply(hlo::full_like(self, 2), hlo::subtract(self, target));
}

// Quadratic up to beta (where it has slope 1), linear after.
Value smooth_l1(Value self, Value target, double beta) {
  const Value distance = hlo::abs(hlo::subtract(self, target));
  if (beta == 0) return distance;
  const Value square =
      hlo::multiply(hlo::full_like(self, 0.5 / beta), hlo::multiply(distance, distance));
  const Value line = hlo::subtract(distance, hlo::full_like(self, 0.5 * beta));
  return hlo::select(hlo::lt(distance, hlo::full_like(self, beta)), square, line);
}

Value smooth_l1_derivative(Value self, Value target, double beta) {
  const Value difference = hlo::subtract(self, target);
  const Value one = hlo::full_like(self, 1);
  const Value minus_one = hlo::full_like(self, -1);
  if (beta == 0) {
    return hlo::select(hlo::le(difference, hlo::full_like(self, 0)), minus_one, one);
  }
  return hlo::clamp(minus_one, hlo::multiply(difference, hlo::full_like(self, 1 / beta)), one);
}

// Quadratic up to delta, then linear with slope delta.
Value huber(Value self, Value target, double delta) {
  base::check(delta > 0, "huber_loss does not support non-positive values for delta.");
  const Value distance = hlo::abs(hlo::subtract(self, target));
  const Value limit = hlo::full_like(self, delta);
  const Value half = hlo::full_like(self, 0.5);
  const Value square = hlo::multiply(half, hlo::multiply(distance, distance));
  const Value line =
      hlo::multiply(limit, hlo::subtract(distance, hlo::full_like(self, 0.5 * delta)));
  return hlo::select(hlo::le(distance, limit), square, line);
}

Value huber_derivative(Value self, Value target, double delta) {
  return hlo::clamp(hlo::full_like(self, -delta), hlo::subtract(self, target),
                    hlo::full_like(self, delta));
}

Value soft_margin(Value self, Value target, double) {
  return hlo::log_plus_one(hlo::exponential(hlo::multiply(hlo::negate(target), self)));
}

Value soft_margin_derivative(Value self, Value target, double) {
  const Value opposite = hlo::negate(target);
  return hlo::multiply(opposite, hlo::logistic(hlo::multiply(opposite, self)));
}

// A loss of (self, target, reduction) and its gradient.
void register_plain(Registry& m, const std::string& name, const Pointwise& loss,
                    const Pointwise& derivative) {
  m.impl(name, [loss](Context& context, Value self, Value target, std::int64_t reduction) {
    return loss_of(context, loss, self, target, reduction, 0);
  });
  m.impl(name + "_backward",
         [derivative](Value grad_output, Value self, Value target, std::int64_t reduction) {
           return gradient_of(derivative, grad_output, self, target, reduction, 0);
         });
}

// As above with a parameter, `beta` or `delta`, at the end.
void register_with_parameter(Registry& m, const std::string& name, const Pointwise& loss,
                             const Pointwise& derivative) {
  m.impl(name, [loss](Context& context, Value self, Value target, std::int64_t reduction,
                      double parameter) {
    return loss_of(context, loss, self, target, reduction, parameter);
  });
  m.impl(name + "_backward", [derivative](Value grad_output, Value self, Value target,
                                          std::int64_t reduction, double parameter) {
    return gradient_of(derivative, grad_output, self, target, reduction, parameter);
  });
}

// ---- Binary cross entropy -----------------------------------------------------------------------

Value weighted(Value losses, const MaybeValue& weight) {
  if (!weight.has_value()) return losses;
  return hlo::multiply(losses, broadcast_to(convert(*weight, losses.dtype()), losses.dims()));
}

// log(x), but at least -100, so that a certain and wrong prediction has a finite loss.
Value bounded_log(Value log) { return hlo::maximum(log, hlo::full_like(log, -100)); }

Value binary_cross_entropy(Context& context, Value self, Value target, const MaybeValue& weight,
                           std::int64_t reduction) {
  const Operands in = operands_of(self, target, "binary_cross_entropy");
  const Value log_one = bounded_log(hlo::log(in.self));
  const Value log_zero = bounded_log(hlo::log_plus_one(hlo::negate(in.self)));
  const Value zero_part =
      hlo::multiply(hlo::subtract(in.target, hlo::full_like(in.target, 1)), log_zero);
  const Value losses = hlo::subtract(zero_part, hlo::multiply(in.target, log_one));
  return convert(reduce_losses(context, weighted(losses, weight), reduction), in.result);
}

Value binary_cross_entropy_backward(Value grad_output, Value self, Value target,
                                    const MaybeValue& weight, std::int64_t reduction) {
  const Operands in = operands_of(self, target, "binary_cross_entropy_backward");
  const Value spread = hlo::multiply(hlo::subtract(hlo::full_like(in.self, 1), in.self), in.self);
  const Value slope = hlo::divide(hlo::subtract(in.self, in.target),
                                  hlo::maximum(spread, hlo::full_like(spread, 1e-12)));
  const Value grad =
      gradient_of_losses(convert(grad_output, in.self.dtype()), in.self.dims(), reduction);
  return convert(weighted(hlo::multiply(slope, grad), weight), self.dtype());
}

// (1 - target) * x + (1 + (pos_weight - 1) * target) * softplus(-x)
Value binary_cross_entropy_with_logits(Context& context, Value self, Value target,
                                       const MaybeValue& weight, const MaybeValue& pos_weight,
                                       std::int64_t reduction) {
  const Operands in = operands_of(self, target, "log_sigmoid_cpu");
  const Value zero = hlo::full_like(in.self, 0);
  const Value one = hlo::full_like(in.self, 1);
  const Value tail = hlo::log_plus_one(hlo::exponential(hlo::negate(hlo::abs(in.self))));
  Value softplus = hlo::add(tail, hlo::maximum(hlo::negate(in.self), zero));
  if (pos_weight.has_value()) {
    const Value factor = broadcast_to(convert(*pos_weight, one.dtype()), one.dims());
    const Value extra = hlo::multiply(hlo::subtract(factor, one), in.target);
    softplus = hlo::multiply(hlo::add(extra, one), softplus);
  }
  const Value losses = hlo::add(hlo::multiply(hlo::subtract(one, in.target), in.self), softplus);
  return convert(reduce_losses(context, weighted(losses, weight), reduction), in.result);
}

}  // namespace

void register_loss(Registry& m) {
  register_plain(m, "mse_loss", {"mse_cpu", squared_error},
                 {"mse_backward_cpu_out", squared_error_derivative});
  register_plain(m, "soft_margin_loss", {"exp_vml_cpu", soft_margin},
                 {"exp_vml_cpu", soft_margin_derivative});
  register_with_parameter(m, "smooth_l1_loss", {"smooth_l1_cpu", smooth_l1},
                          {"smooth_l1_backward_cpu_out", smooth_l1_derivative});
  register_with_parameter(m, "huber_loss", {"huber_cpu", huber},
                          {"huber_backward_cpu_out", huber_derivative});
  m.impl("binary_cross_entropy", binary_cross_entropy);
  m.impl("binary_cross_entropy_backward", binary_cross_entropy_backward);
  m.impl("binary_cross_entropy_with_logits", binary_cross_entropy_with_logits);
}

}  // namespace torch_xla::ops
