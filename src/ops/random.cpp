// Random numbers of a given distribution: the in-place fills (normal_, uniform_, bernoulli_, ...)
// and what is made of them. Permutations and samples are in random_sampling.cpp, distributions that
// try until they succeed in random_rejection.cpp. Numbers for float16 and bfloat16 are made in
// float32 and rounded.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/expression.h"
#include "ops/random_bits.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// How many binary digits a floating dtype's numbers have.
int digits_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 53;
    case DType::kFloat32: return 24;
    case DType::kFloat16: return 11;
    case DType::kBFloat16: return 8;
    case DType::kFloat8E4M3FN: return 4;
    case DType::kFloat8E5M2: return 3;
    default: return 0;
  }
}

// `make(key, dtype)` for a real dtype; for a complex one of two independent parts.
template <typename Make>
Value by_parts(DType dtype, Value key, const Make& make) {
  if (!base::is_complex(dtype)) return make(key, dtype);
  const DType part = base::real_dtype(dtype);
  return hlo::complex(make(derived_key(key, 1), part), make(derived_key(key, 2), part));
}

Value uniform(Value self, Value from, Value to, Value key) {
  return by_parts(self.dtype(), key, [&](Value k, DType dtype) {
    const DType wide = random_dtype(dtype);
    // No more digits than the result has: rounded up, a number could be `to`.
    const Value unit = random_uniform(k, wide, self.dims(), digits_of(dtype));
    const Value low = convert(from, wide);
    return convert(unit * (convert(to, wide) - low) + low, dtype);
  });
}

// Standard normal numbers in the dtype in which they are made; complex ones have variance 1.
Value standard_normal(DType dtype, const Dims& dims, Value key) {
  const Value out = by_parts(
      dtype, key, [&](Value k, DType part) { return random_normal(k, random_dtype(part), dims); });
  return base::is_complex(dtype) ? out * std::sqrt(0.5) : out;
}

Value normal(DType dtype, const Dims& dims, Value mean, Value std, Value key) {
  const Value numbers = standard_normal(dtype, dims, key);
  return convert(numbers * broadcast_to(convert(std, numbers.dtype()), dims) +
                     broadcast_to(convert(mean, numbers.dtype()), dims),
                 dtype);
}

Value exponential(Value self, Value lambd, Value key) {
  const DType wide = random_dtype(self.dtype());
  return convert(random_exponential(key, wide, self.dims()) / convert(lambd, wide), self.dtype());
}

Value cauchy(Value self, Value median, Value sigma, Value key) {
  const DType wide = random_dtype(self.dtype());
  const Value angle = (random_open_uniform(key, wide, self.dims()) - 0.5) * std::numbers::pi;
  return convert(hlo::tan(angle) * convert(sigma, wide) + convert(median, wide), self.dtype());
}

Value log_normal(Value self, Value mean, Value std, Value key) {
  const DType wide = random_dtype(self.dtype());
  return convert(hlo::exponential(normal(wide, self.dims(), mean, std, key)), self.dtype());
}

// The number of trials up to the first success.
Value geometric(Value self, Value p, Value key) {
  const DType wide = random_dtype(self.dtype());
  const Value trials =
      hlo::log(random_open_uniform(key, wide, self.dims())) / hlo::log_plus_one(-convert(p, wide));
  return convert(hlo::ceil(trials), self.dtype());
}

// True with probability `p`, a number or a tensor of the sizes.
Value is_success(Value p, const Dims& dims, Value key) {
  const DType wide = random_dtype(is_wrapped_number(p) ? DType::kFloat32 : p.dtype());
  return less(random_uniform(key, wide, dims), broadcast_to(convert(p, wide), dims));
}

Value bernoulli_tensor(Value self, Value p, Value key) {
  base::check(base::is_floating(p.dtype()),
              "expected probabilities tensor to have floating type, got ",
              scalar_type_name(p.dtype()));
  return convert(is_success(p, self.dims(), key), self.dtype());
}

// ---- Integers ----

// The greatest number that random_ without bounds gives: all numbers up to it are exact.
std::int64_t greatest_integer(DType dtype) {
  if (base::is_floating(dtype)) return std::int64_t{1} << digits_of(dtype);
  switch (dtype) {
    case DType::kBool: return 1;
    case DType::kUInt8: return std::numeric_limits<std::uint8_t>::max();
    case DType::kUInt16: return std::numeric_limits<std::uint16_t>::max();
    case DType::kUInt32: return std::numeric_limits<std::uint32_t>::max();
    case DType::kInt8: return std::numeric_limits<std::int8_t>::max();
    case DType::kInt16: return std::numeric_limits<std::int16_t>::max();
    case DType::kInt32: return std::numeric_limits<std::int32_t>::max();
    default: return std::numeric_limits<std::int64_t>::max();
  }
}

// Integers `low`, ..., `low` + `count` - 1, where a count of 0 (as uint64) stands for 2^64.
Value integers(Value self, Value low, Value count, Value key) {
  const Value bits = random_bits64(key, self.dims());
  const Value all = hlo::eq(count, hlo::full_like(count, 0));
  const Value divisor = hlo::select(all, hlo::full_like(count, 1), count);
  const Value below = where(all, bits, hlo::remainder(bits, broadcast_to(divisor, bits.dims())));
  return convert(convert(below + low, DType::kInt64), self.dtype());
}

Value random_between(Value self, Promotable from, std::optional<Promotable> to, Value key) {
  hlo::Builder& b = self.builder();
  // Differences wrap as uint64, so a range of more than 2^63 numbers is right too.
  const Value low = convert(from.value(b, DType::kInt64), DType::kUInt64);
  Value end;
  if (to.has_value()) {
    end = convert(to->value(b, DType::kInt64), DType::kUInt64);
  } else {
    end = scalar(b, DType::kUInt64, greatest_integer(self.dtype())) + 1.0;
  }
  return integers(self, low, end - low, key);
}

Value random_below(Value self, Promotable to, Value key) {
  return random_between(self, Promotable(Scalar(0)), to, key);
}

Value random_any(Value self, Value key) {
  return random_between(self, Promotable(Scalar(0)), std::nullopt, key);
}

// ---- Layers ----

std::tuple<Value, Value> native_dropout(Value input, Value p, std::optional<bool> train,
                                        Value key) {
  const Shape mask_shape{DType::kBool, input.dims()};
  if (train.has_value() && !*train) {
    return {input, hlo::full(input.builder(), mask_shape, true)};
  }
  const Value keep = 1.0 - convert(p, DType::kFloat32);
  const Value mask = less(random_uniform(key, DType::kFloat32, input.dims()), keep);
  const DType wide = accumulate_dtype(input.dtype());
  // Where nothing is kept the scale is infinite, and zero is meant.
  const Value scale = where(equal(keep, 0.0), 0.0, 1.0 / keep);
  const Value scaled = convert(input, wide) * convert(scale, wide);
  return {convert(scaled * convert(mask, wide), input.dtype()), mask};
}

Value native_dropout_backward(Value grad_output, Value mask, Value scale) {
  const DType dtype = float_result_type({grad_output});
  const DType wide = accumulate_dtype(dtype);
  const Value scaled = convert(grad_output, wide) * convert(mask, wide) * convert(scale, wide);
  return convert(scaled, dtype);
}

// A leaky ReLU whose slope is drawn for each negative element; the slopes are the noise.
std::tuple<Value, Value> rrelu_with_noise(Value self, Value noise, Value lower, Value upper,
                                          bool training, Value key) {
  const DType dtype = self.dtype();
  const Value is_negative = less_equal(self, 0.0);
  if (!training) {
    const DType wide = accumulate_dtype(dtype);
    const Value slope = (convert(lower, wide) + convert(upper, wide)) / 2.0;
    const Value x = convert(self, wide);
    return {convert(where(is_negative, x * slope, x), dtype), noise};
  }
  const Value slopes = uniform(self, lower, upper, key);
  return {where(is_negative, self * slopes, self), where(is_negative, slopes, 1.0)};
}

void register_integers_and_layers(Registry& m) {
  m.impl("random", random_any, {.overwrites = true});
  m.impl("random.from", random_between, {.overwrites = true});
  m.impl("random.to", random_below, {.overwrites = true});
  m.impl("native_dropout", native_dropout, {.is_random = true});
  m.impl("native_dropout_backward", native_dropout_backward);
  m.impl({"rrelu_with_noise", "rrelu_with_noise_functional"}, rrelu_with_noise);
}

}  // namespace

void register_random(Registry& m) {
  m.impl("uniform", uniform, {.overwrites = true});
  m.impl({"normal_", "normal_functional"},
         [](Value self, Value mean, Value std, Value key) {
           return normal(self.dtype(), self.dims(), mean, std, key);
         },
         {.overwrites = true});
  m.impl("normal.Tensor_float", [](Value mean, Value std, Value key) {
    return normal(mean.dtype(), mean.dims(), mean, std, key);
  });
  m.impl("normal.float_Tensor", [](Value mean, Value std, Value key) {
    return normal(std.dtype(), std.dims(), mean, std, key);
  });
  m.impl("normal.Tensor_Tensor", [](Value mean, Value std, Value key) {
    return normal(mean.dtype(), broadcast_dims({mean, std}), mean, std, key);
  });
  m.impl("exponential", exponential, {.overwrites = true});
  m.impl("cauchy", cauchy, {.overwrites = true});
  m.impl("log_normal", log_normal, {.overwrites = true});
  m.impl("geometric", geometric, {.overwrites = true});
  m.impl("bernoulli", [](Value self, Value key) { return bernoulli_tensor(self, self, key); });
  m.impl({"bernoulli.p", "bernoulli_.float"},
         [](Value self, Value p, Value key) {
           return convert(is_success(p, self.dims(), key), self.dtype());
         },
         {.overwrites = true});
  m.impl("bernoulli.Tensor", bernoulli_tensor, {.overwrites = true});
  register_integers_and_layers(m);
  register_random_sampling(m);
  register_random_rejection(m);
}

}  // namespace torch_xla::ops
