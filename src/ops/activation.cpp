// Activation functions and their gradients. Formulas are computed in float32 for the half-precision
// types, as PyTorch's kernels do.
#include <cmath>
#include <numbers>

#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

const double kSqrtHalf = std::sqrt(0.5);

// `formula` of two or three operands in their common dtype.
template <typename Formula, typename... Values>
Value promoted(Formula formula, Value first, Values... rest) {
  const std::vector<Value> v = promote({first, rest...});
  if constexpr (sizeof...(rest) == 1) {
    return in_float32(formula, v[0], v[1]);
  } else {
    return in_float32(formula, v[0], v[1], v[2]);
  }
}

Value conj_of(Value x) { return base::is_complex(x.dtype()) ? conj(x) : x; }
Value is_inside(Value x, double low, double high) { return greater(x, low) & less(x, high); }

// ---- Rectifiers ---------------------------------------------------------------------------------

Value relu(Value self) {
  base::check(self.dtype() != DType::kBool, "Boolean inputs not supported for relu");
  return max(self, 0);
}

Value threshold(Value self, double threshold, double value) {
  return where(less_equal(self, threshold), value, self);
}

Value threshold_backward(Value grad, Value self, double threshold) {
  const std::vector<Value> v = promote({grad, self});
  return where(less_equal(v[1], threshold), 0, v[0]);
}

Value hardtanh(Value self, double low, double high) {
  if (self.dtype() == DType::kBool) {
    base::fail(base::ErrorKind::kRefusedBool, "Bool inputs not supported for hardtanh");
  }
  hlo::Builder& builder = self.builder();
  return hlo::clamp(scalar(builder, self.dtype(), low), self, scalar(builder, self.dtype(), high));
}

Value hardtanh_backward(Value grad, Value self, double low, double high) {
  const std::vector<Value> v = promote({grad, self});
  return where(less_equal(v[1], low) | greater_equal(v[1], high), 0, v[0]);
}

Value leaky_relu(Value self, double slope) {
  return in_float32([&](Value x) { return where(greater(x, 0), x, x * slope); }, self);
}

Value leaky_relu_backward(Value grad, Value self, double slope, bool) {
  return promoted([&](Value g, Value x) { return where(greater(x, 0), g, g * slope); }, grad, self);
}

Value prelu(Value self, Value weight) {
  return promoted([](Value x, Value w) { return where(greater(x, 0), x, w * x); }, self, weight);
}

std::tuple<Value, Value> prelu_backward(Value grad, Value self, Value weight) {
  const auto of_self = [](Value g, Value x, Value w) { return where(greater(x, 0), g, w * g); };
  const auto of_weight = [](Value g, Value x, Value) { return where(greater(x, 0), 0, x * g); };
  return {promoted(of_self, grad, self, weight), promoted(of_weight, grad, self, weight)};
}

Value rrelu_backward(Value grad, Value self, Value noise, double lower, double upper, bool training,
                     bool self_is_result) {
  if (training && upper - lower > 1e-6) return mul(noise, grad);
  return leaky_relu_backward(grad, self, (lower + upper) / 2, self_is_result);
}

// ---- Exponential units --------------------------------------------------------------------------

Value elu(Value self, double alpha, double scale, double input_scale) {
  return in_float32(
      [&](Value x) {
        const Value curve = exponential_minus_one(x * input_scale) * (alpha * scale);
        return where(greater(x, 0), x * scale, curve);
      },
      self);
}

Value celu(Value self, double alpha) {
  base::check(alpha != 0, "ZeroDivisionError: alpha cannot be 0 for CELU");
  return elu(self, alpha, 1, 1 / alpha);
}

Value elu_backward(Value grad, double alpha, double scale, double input_scale, bool is_result,
                   Value self_or_result) {
  const double coefficient = alpha * scale;
  return promoted(
      [&](Value g, Value x) {
        const Value slope = is_result ? (x + coefficient) * input_scale
                                      : exponential(x * input_scale) * (input_scale * coefficient);
        return where(less_equal(x, 0), g * slope, g * scale);
      },
      grad, self_or_result);
}

// ---- Sigmoid and its kin ------------------------------------------------------------------------

Value sigmoid_backward(Value grad, Value output) {
  return promoted([](Value g, Value y) { return g * conj_of(1.0 - y) * conj_of(y); }, grad, output);
}

Value tanh_backward(Value grad, Value output) {
  return promoted([](Value g, Value y) { return g * conj_of(1.0 - y * y); }, grad, output);
}

Value silu(Value self) {
  return in_float32([](Value x) { return x * logistic(x); }, self);
}

Value silu_backward(Value grad, Value self) {
  return promoted(
      [](Value g, Value x) {
        const Value sigmoid = logistic(x);
        return g * conj_of(sigmoid * (x * (1.0 - sigmoid) + 1.0));
      },
      grad, self);
}

// log(1 + exp(x)) without overflow.
Value softplus_of(Value x) { return max(x, 0) + log_plus_one(exponential(-abs(x))); }

Value mish(Value self) {
  return in_float32([](Value x) { return x * tanh(softplus_of(x)); }, self);
}

Value mish_backward(Value grad, Value self) {
  return promoted(
      [](Value g, Value x) {
        const Value t = tanh(softplus_of(x));
        return g * (t + x * logistic(x) * (1.0 - t * t));
      },
      grad, self);
}

Value softplus(Value self, double beta, double threshold) {
  return in_float32(
      [&](Value x) {
        const Value scaled = x * beta;
        return where(greater(scaled, threshold), x, log_plus_one(exponential(scaled)) / beta);
      },
      self);
}

Value softplus_backward(Value grad, Value self, double beta, double threshold) {
  return promoted(
      [&](Value g, Value x) {
        const Value scaled = x * beta;
        return where(greater(scaled, threshold), g, g * logistic(scaled));
      },
      grad, self);
}

// The second result is what CUDA's kernel leaves empty and the CPU's keeps for the gradient, which
// here computes it again: an exponential costs less than the memory.
std::tuple<Value, Value> log_sigmoid_forward(Value self) {
  const Value output =
      in_float32([](Value x) { return min(x, 0) - log_plus_one(exponential(-abs(x))); }, self);
  return {output, hlo::full(self.builder(), {self.dtype(), {0}}, 0)};
}

Value log_sigmoid_backward(Value grad, Value self, Value) {
  return promoted([](Value g, Value x) { return g * logistic(-x); }, grad, self);
}

Value logit_backward(Value grad, Value self, std::optional<double> eps) {
  return promoted(
      [&](Value g, Value x) {
        const bool is_clamped = eps.has_value() && *eps >= 0;
        const double low = is_clamped ? *eps : 0;
        const Value is_outside = less(x, low) | greater(x, 1 - low);
        return where(is_outside, is_clamped ? 0 : std::nan(""), g / (x * (1.0 - x)));
      },
      grad, self);
}

// ---- Gaussian error units -----------------------------------------------------------------------

bool is_tanh_approximation(const std::string& approximate) {
  base::check(approximate == "none" || approximate == "tanh",
              "approximate argument must be either none or tanh.");
  return approximate == "tanh";
}

// What the approximation by tanh is the tanh of, with b (x + c x^3).
constexpr double kGeluCubic = 0.044715;
const double kGeluScale = std::sqrt(2 / std::numbers::pi);

Value gelu(Value self, const std::string& approximate) {
  const bool by_tanh = is_tanh_approximation(approximate);
  return in_float32(
      [&](Value x) {
        const Value t = by_tanh ? tanh((x + x * x * x * kGeluCubic) * kGeluScale)
                                : error_function(x * kSqrtHalf);
        return x * 0.5 * (t + 1.0);
      },
      self);
}

Value gelu_backward(Value grad, Value self, const std::string& approximate) {
  if (!is_tanh_approximation(approximate)) {
    return promoted(
        [](Value g, Value x) {
          const Value cdf = (error_function(x * kSqrtHalf) + 1.0) * 0.5;
          const double peak = 1 / std::sqrt(2 * std::numbers::pi);
          return g * (cdf + x * exponential(x * x * -0.5) * peak);
        },
        grad, self);
  }
  return promoted(
      [](Value g, Value x) {
        const Value square = x * x;
        const Value t = tanh((x + square * x * kGeluCubic) * kGeluScale);
        const Value slope = (square * (3 * kGeluCubic) + 1.0) * kGeluScale;
        return g * ((t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * slope);
      },
      grad, self);
}

// ---- Piecewise linear ---------------------------------------------------------------------------

Value hardsigmoid(Value self) {
  return in_float32([](Value x) { return min(max(x + 3.0, 0), 6) / 6.0; }, self);
}

Value hardsigmoid_backward(Value grad, Value self) {
  return promoted([](Value g, Value x) { return where(is_inside(x, -3, 3), g / 6.0, 0); }, grad,
                  self);
}

Value hardswish(Value self) {
  return in_float32([](Value x) { return x * min(max(x + 3.0, 0), 6) / 6.0; }, self);
}

Value hardswish_backward(Value grad, Value self) {
  return promoted(
      [](Value g, Value x) {
        const Value inside = where(greater_equal(x, 3), g, g * (x / 3.0 + 0.5));
        return where(less_equal(x, -3), 0, inside);
      },
      grad, self);
}

Value is_shrunk(Value x, double lambda) {
  return greater_equal(x, -lambda) & less_equal(x, lambda);
}

Value hardshrink(Value self, double lambda) { return where(is_shrunk(self, lambda), 0, self); }

Value softshrink(Value self, double lambda) {
  const double greatest = greatest_finite(self.dtype());
  base::check(lambda >= 0 && lambda <= greatest, "lambda must be in range [0, ", greatest,
              "] for input dtype ", scalar_type_name(self.dtype()), ", but found ", lambda);
  return in_float32(
      [&](Value x) {
        // A product, so that NaN stays NaN.
        const Value below = where(less(x, -lambda), x + lambda, x * 0.0);
        return where(greater(x, lambda), x - lambda, below);
      },
      self);
}

Value shrink_backward(Value grad, Value self, double lambda) {
  const std::vector<Value> v = promote({grad, self});
  return where(is_shrunk(v[1], lambda), 0, v[0]);
}

// ---- Gated linear unit --------------------------------------------------------------------------

struct Halves {
  Value first;
  Value second;
};

Halves halves_of(Value x, std::int64_t dim) {
  const auto d = static_cast<std::size_t>(dim);
  Dims start(x.dims().size(), 0);
  Dims limit = x.dims();
  const Dims strides(x.dims().size(), 1);
  limit[d] /= 2;
  const Value first = hlo::slice(x, start, limit, strides);
  start[d] = limit[d];
  return {first, hlo::slice(x, start, x.dims(), strides)};
}

Value glu(Value self, std::int64_t dim) {
  return in_float32(
      [&](Value x) {
        const Halves h = halves_of(x, wrap_dim(dim, x.rank()));
        return h.first * logistic(h.second);
      },
      self);
}

Value glu_backward(Value grad, Value self, std::int64_t dim) {
  return in_float32(
      [&](Value g, Value x) {
        const std::int64_t d = wrap_dim(dim, x.rank());
        const Halves h = halves_of(x, d);
        const Value gate = logistic(h.second);
        const Value grad_first = g * gate;
        return hlo::concatenate({grad_first, grad_first * (1.0 - gate) * h.first}, d);
      },
      grad, self);
}

Value glu_jvp(Value glu, Value x, Value dx, std::int64_t dim) {
  const std::int64_t d = wrap_dim(dim, x.rank());
  const Halves h = halves_of(x, d);
  const Halves tangent = halves_of(dx, d);
  const Value gate = logistic(h.second);
  return tangent.first * gate + tangent.second * (glu - glu * gate);
}

Value glu_backward_jvp(Value, Value grad, Value x, Value dgrad, Value dx, std::int64_t dim) {
  const std::int64_t d = wrap_dim(dim, x.rank());
  const Halves h = halves_of(x, d);
  const Halves tangent = halves_of(dx, d);
  const Value gate = logistic(h.second);
  const Value slope = gate * (1.0 - gate);
  const Value bend = slope * (1.0 - gate * 2.0);
  const Value first = dgrad * gate + grad * slope * tangent.second;
  const Value second = dgrad * h.first * slope + grad * (tangent.first * slope) +
                       grad * h.first * bend * tangent.second;
  return hlo::concatenate({first, second}, d);
}

void register_forward(Registry& m) {
  m.impl("relu", relu);
  m.impl("threshold", threshold, {.repeats = Repeats::kAllowed});
  m.impl("hardtanh", hardtanh);
  m.impl("leaky_relu", leaky_relu);
  m.impl("_prelu_kernel", prelu);
  m.impl("elu", elu);
  m.impl("celu", celu);
  m.impl("silu", silu);
  m.impl("mish", mish);
  m.impl("softplus", softplus);
  m.impl("log_sigmoid_forward", log_sigmoid_forward);
  m.impl("gelu", gelu);
  m.impl("hardsigmoid", hardsigmoid);
  m.impl("hardswish", hardswish);
  m.impl("hardshrink", hardshrink);
  m.impl("softshrink", softshrink);
  m.impl("glu", glu);
  m.impl("glu_jvp", glu_jvp);
  m.impl("glu_backward_jvp", glu_backward_jvp);
}

}  // namespace

void register_activation(Registry& m) {
  register_forward(m);
  m.impl("threshold_backward", threshold_backward);
  m.impl("hardtanh_backward", hardtanh_backward);
  m.impl("leaky_relu_backward", leaky_relu_backward);
  m.impl("_prelu_kernel_backward", prelu_backward);
  m.impl("rrelu_with_noise_backward", rrelu_backward);
  m.impl("elu_backward", elu_backward);
  m.impl("sigmoid_backward", sigmoid_backward);
  m.impl("tanh_backward", tanh_backward);
  m.impl("silu_backward", silu_backward);
  m.impl("mish_backward", mish_backward);
  m.impl("softplus_backward", softplus_backward);
  m.impl("log_sigmoid_backward", log_sigmoid_backward);
  m.impl("logit_backward", logit_backward);
  m.impl("gelu_backward", gelu_backward);
  m.impl("hardsigmoid_backward", hardsigmoid_backward);
  m.impl("hardswish_backward", hardswish_backward);
  m.impl("hardshrink_backward", shrink_backward);
  m.impl("softshrink_backward", shrink_backward);
  m.impl("glu_backward", glu_backward);
}

}  // namespace torch_xla::ops
