// The fused optimizers, which update whole lists of parameters in one operator, and the two
// operators of gradient scaling. Factors that are the same for a whole tensor are computed once, in
// float64 as PyTorch's kernels do: 1 - beta^step loses most of float32's digits in the first steps.
#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

using Tensors = std::vector<Value>;

// What all fused optimizers take beside their own numbers.
struct Step {
  bool maximize;
  std::optional<Value> grad_scale;
  std::optional<Value> found_inf;
};

Value to_double(Value number) { return convert(number, DType::kFloat64); }

// The tensors of one parameter, in the dtype in which it is updated.
class Update {
 public:
  Update(Value param, Value grad, const Step& step)
      : step_(step), wide_(accumulate_dtype(param.dtype())), grad_(grad) {
    Value scaled = widen(grad);
    if (step.grad_scale.has_value()) {
      scaled = scaled / in_width(*step.grad_scale);
      unscaled_ = scaled;
    }
    gradient = step.maximize ? -scaled : scaled;
  }

  Value widen(Value tensor) const { return convert(tensor, wide_); }
  // A 0-dim number for formulas with this parameter's tensors.
  Value in_width(Value number) const { return convert(hlo::reshape(number, {}), wide_); }

  // The new value of a tensor that was `old`: in its own dtype, and `old` after an overflow.
  Value stored(Value old, Value updated) const {
    const Value converted = convert(updated, old.dtype());
    if (!step_.found_inf.has_value()) return converted;
    const Value overflowed = equal(hlo::reshape(*step_.found_inf, {}), 1);
    return where(overflowed, old, converted);
  }
  // The gradient is kept without its scale.
  Value stored_gradient() const { return unscaled_ ? stored(grad_, unscaled_) : grad_; }

  Value gradient;

 private:
  const Step& step_;
  DType wide_;
  Value grad_;
  Value unscaled_;
};

Tensors concatenated(std::initializer_list<Tensors> lists) {
  Tensors out;
  for (const Tensors& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

// ---- Adam ---------------------------------------------------------------------------------------

struct AdamOptions {
  Value lr;
  double beta1;
  double beta2;
  double weight_decay;
  double eps;
  bool amsgrad;
  bool is_decoupled;  // AdamW: the decay acts on the parameter, not by way of the gradient
};

struct AdamState {
  Value param;
  Value grad;
  Value exp_avg;
  Value exp_avg_sq;
  Value max_exp_avg_sq;  // none without amsgrad
};

AdamState adam_step(const AdamState& state, Value step_count, const AdamOptions& options,
                    const Step& step) {
  const Update update(state.param, state.grad, step);
  Value param = update.widen(state.param);
  Value grad = update.gradient;
  const Value lr = to_double(options.lr);
  if (options.weight_decay != 0) {
    if (options.is_decoupled) {
      param = param * update.in_width(1.0 - lr * options.weight_decay);
    } else {
      grad = grad + param * options.weight_decay;
    }
  }
  const Value old_avg = update.widen(state.exp_avg);
  const Value exp_avg = old_avg + (grad - old_avg) * (1 - options.beta1);
  const Value exp_avg_sq =
      update.widen(state.exp_avg_sq) * options.beta2 + grad * grad * (1 - options.beta2);
  const Value largest =
      options.amsgrad ? max(update.widen(state.max_exp_avg_sq), exp_avg_sq) : Value{};

  const Value count = to_double(hlo::reshape(step_count, {}));
  const auto correction = [&](double beta) {
    return 1.0 - power(hlo::full_like(count, beta), count);
  };
  const Value step_size = update.in_width(lr / correction(options.beta1));
  const Value scale = update.in_width(sqrt(correction(options.beta2)));
  const Value denominator = sqrt(options.amsgrad ? largest : exp_avg_sq) / scale + options.eps;
  param = param - exp_avg * step_size / denominator;
  return {update.stored(state.param, param), update.stored_gradient(),
          update.stored(state.exp_avg, exp_avg), update.stored(state.exp_avg_sq, exp_avg_sq),
          options.amsgrad ? update.stored(state.max_exp_avg_sq, largest) : Value{}};
}

template <bool IsDecoupled>
Tensors fused_adam(const Tensors& self, const Tensors& grads, const Tensors& exp_avgs,
                   const Tensors& exp_avg_sqs, const Tensors& max_exp_avg_sqs,
                   const Tensors& state_steps, Value lr, double beta1, double beta2,
                   double weight_decay, double eps, bool amsgrad, bool maximize,
                   std::optional<Value> grad_scale, std::optional<Value> found_inf) {
  const AdamOptions options{lr, beta1, beta2, weight_decay, eps, amsgrad, IsDecoupled};
  const Step step{maximize, grad_scale, found_inf};
  Tensors params, new_grads, avgs, avg_sqs, max_avg_sqs;
  for (std::size_t i = 0; i < self.size(); ++i) {
    const AdamState state{self[i], grads[i], exp_avgs[i], exp_avg_sqs[i],
                          amsgrad ? max_exp_avg_sqs[i] : Value{}};
    const AdamState next = adam_step(state, state_steps[i], options, step);
    params.push_back(next.param);
    new_grads.push_back(next.grad);
    avgs.push_back(next.exp_avg);
    avg_sqs.push_back(next.exp_avg_sq);
    if (amsgrad) max_avg_sqs.push_back(next.max_exp_avg_sq);
  }
  if (!amsgrad) max_avg_sqs = max_exp_avg_sqs;
  return concatenated({params, new_grads, avgs, avg_sqs, max_avg_sqs});
}

// ---- SGD ----------------------------------------------------------------------------------------

Tensors fused_sgd(const Tensors& self, const Tensors& grads, const Tensors& momentum_buffers,
                  double weight_decay, double momentum, Value lr, double dampening, bool nesterov,
                  bool maximize, bool is_first_step, std::optional<Value> grad_scale,
                  std::optional<Value> found_inf) {
  const Step step{maximize, grad_scale, found_inf};
  Tensors params, new_grads, buffers;
  for (std::size_t i = 0; i < self.size(); ++i) {
    const Update update(self[i], grads[i], step);
    const Value param = update.widen(self[i]);
    Value grad = update.gradient;
    if (weight_decay != 0) grad = grad + param * weight_decay;
    if (momentum != 0) {
      const Value buffer =
          is_first_step ? grad
                        : update.widen(momentum_buffers[i]) * momentum + grad * (1 - dampening);
      buffers.push_back(update.stored(momentum_buffers[i], buffer));
      grad = nesterov ? grad + buffer * momentum : buffer;
    }
    params.push_back(update.stored(self[i], param - grad * update.in_width(lr)));
    new_grads.push_back(update.stored_gradient());
  }
  return concatenated({params, new_grads, momentum != 0 ? buffers : momentum_buffers});
}

// ---- Adagrad ------------------------------------------------------------------------------------

struct AdagradResult {
  Tensors params;
  Tensors grads;
  Tensors state_sums;
};

AdagradResult adagrad(const Tensors& self, const Tensors& grads, const Tensors& state_sums,
                      const Tensors& state_steps, Value lr, double lr_decay, double weight_decay,
                      double eps, const Step& step) {
  AdagradResult result;
  for (std::size_t i = 0; i < self.size(); ++i) {
    const Update update(self[i], grads[i], step);
    const Value param = update.widen(self[i]);
    Value grad = update.gradient;
    if (weight_decay != 0) grad = grad + param * weight_decay;
    const Value sum = update.widen(state_sums[i]) + grad * grad;
    const Value count = to_double(hlo::reshape(state_steps[i], {}));
    const Value rate = update.in_width(to_double(lr) / ((count - 1.0) * lr_decay + 1.0));
    result.params.push_back(update.stored(self[i], param - grad * rate / (sqrt(sum) + eps)));
    result.grads.push_back(update.stored_gradient());
    result.state_sums.push_back(update.stored(state_sums[i], sum));
  }
  return result;
}

// ---- Gradient scaling ---------------------------------------------------------------------------

Tensors check_and_unscale(const Tensors& self, Value found_inf, Value inv_scale) {
  Tensors results;
  Value found = hlo::reshape(found_inf, {});
  for (const Value& grad : self) {
    const Value wide = convert(grad, accumulate_dtype(grad.dtype()));
    const Dims all = wrap_dims({}, grad.rank());
    const Value is_bad = reduce_or(~is_finite(wide), all);
    found = max(found, convert(is_bad, found.dtype()));
    const Value factor = convert(hlo::reshape(inv_scale, {}), wide.dtype());
    results.push_back(convert(wide * factor, grad.dtype()));
  }
  results.push_back(hlo::reshape(found, found_inf.dims()));
  return results;
}

std::tuple<Value, Value> update_scale(Value scale, Value growth_tracker, Value found_inf,
                                      double growth_factor, double backoff_factor,
                                      std::int64_t growth_interval) {
  const Value overflowed = not_equal(hlo::reshape(found_inf, scale.dims()), 0);
  const Value successes = growth_tracker + 1;
  const Value is_due = equal(successes, static_cast<double>(growth_interval));
  const Value grown = scale * growth_factor;
  const Value next = where(hlo::reshape(is_due, scale.dims()) & is_finite(grown), grown, scale);
  return {where(overflowed, scale * backoff_factor, next),
          where(hlo::reshape(overflowed, growth_tracker.dims()) | is_due, 0, successes)};
}

}  // namespace

void register_optimizer(Registry& m) {
  m.impl({"_fused_adam", "_fused_adam.tensor_lr"}, fused_adam<false>);
  m.impl({"_fused_adamw", "_fused_adamw.tensor_lr"}, fused_adam<true>);
  m.impl({"_fused_sgd", "_fused_sgd.tensor_lr"}, fused_sgd);
  m.impl("_fused_adagrad",
         [](const Tensors& self, const Tensors& grads, const Tensors& state_sums,
            const Tensors& state_steps, Value lr, double lr_decay, double weight_decay, double eps,
            bool maximize, std::optional<Value> grad_scale, std::optional<Value> found_inf) {
           const AdagradResult r = adagrad(self, grads, state_sums, state_steps, lr, lr_decay,
                                           weight_decay, eps, {maximize, grad_scale, found_inf});
           return concatenated({r.params, r.grads, r.state_sums, state_steps});
         });
  m.impl("_fused_adagrad.tensor_lr",
         [](const Tensors& self, const Tensors& grads, const Tensors& state_sums,
            const Tensors& state_steps, Value lr, double lr_decay, double weight_decay, double eps,
            bool maximize, std::optional<Value> grad_scale, std::optional<Value> found_inf) {
           const AdagradResult r = adagrad(self, grads, state_sums, state_steps, lr, lr_decay,
                                           weight_decay, eps, {maximize, grad_scale, found_inf});
           return concatenated({r.params, r.grads, r.state_sums});
         });
  m.impl("_amp_foreach_non_finite_check_and_unscale", check_and_unscale);
  m.impl("_amp_update_scale", update_scale);
}

}  // namespace torch_xla::ops
