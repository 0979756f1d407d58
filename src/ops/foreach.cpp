// The `_foreach_` operators: an operator of one tensor, applied to every tensor of a list. Where
// the schema has a list of numbers, element i takes number i.
#include <cmath>
#include <limits>
#include <set>

#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// Those of `unary_operators` that PyTorch has over lists.
const std::set<std::string_view> kUnaryNames = {
    "abs",  "acos", "asin",       "atan",  "ceil",  "cos",     "cosh",  "erf",
    "erfc", "exp",  "expm1",      "floor", "frac",  "log",     "log10", "log1p",
    "log2", "neg",  "reciprocal", "round", "rsqrt", "sigmoid", "sign",  "sin",
    "sinh", "sqrt", "tan",        "tanh",  "trunc", "zero",    "lgamma"};

Dims all_dims(Value value) { return wrap_dims({}, value.rank()); }

Value maximum_of(Value self) {
  base::check(self.num_elements() > 0,
              "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  return reduce_max(self, all_dims(self));
}

// The sum or norm is accumulated in float32 for the half-precision types.
template <typename Reduction>
Value accumulated(Value self, std::optional<DType> dtype, Reduction reduction) {
  const DType computed = dtype.value_or(float_result_type({self}));
  const Value sum = reduction(convert(self, accumulate_dtype(computed)));
  return convert(sum, base::real_dtype(computed));
}

// As PyTorch's `linalg.vector_norm` does.
void check_dtype_of_norm(DType self, std::optional<DType> dtype) {
  if (!dtype.has_value()) return;
  const std::string_view kind = base::is_complex(self) ? "complex" : "real";
  base::check(base::is_floating(*dtype) || base::is_complex(*dtype),
              "linalg.vector_norm: dtype should be floating point or complex, but got ",
              scalar_type_name(*dtype));
  base::check(base::is_complex(*dtype) == base::is_complex(self),
              "linalg.vector_norm: dtype should be ", kind, " for ", kind, " inputs, but got ",
              scalar_type_name(*dtype));
  base::check(base::promote_types(self, *dtype) == *dtype,
              "linalg.vector_norm: the dtype of the input (", scalar_type_name(self),
              ") should be convertible without narrowing to the specified dtype (",
              scalar_type_name(*dtype), ")");
}

Value norm(Value self, double ord, std::optional<DType> dtype) {
  check_dtype_of_norm(self.dtype(), dtype);
  return accumulated(self, dtype, [&](Value x) {
    const bool has_identity = ord >= 0 && !std::isinf(ord);
    base::check(has_identity || x.num_elements() > 0, "linalg.vector_norm cannot compute the ", ord,
                " norm on an empty tensor because the operation does not have an identity");
    return vector_norm(x, ord, all_dims(x));
  });
}

// The norm's power: sum(|x|^ord).
Value powsum(Value self, double ord, std::optional<DType> dtype) {
  if (dtype.has_value()) check_implemented(!base::is_integral(*dtype), "powsum_cpu", *dtype);
  return accumulated(self, dtype, [&](Value x) {
    const Value magnitude = abs(x);
    const Value powers = ord == 1   ? magnitude
                         : ord == 2 ? magnitude * magnitude
                                    : power(magnitude, hlo::full_like(magnitude, ord));
    return reduce_sum(powers, all_dims(x));
  });
}

Value sub_of_list(Value self, Value other, const Factor& alpha) {
  check_no_masks(self, other);
  return sub(self, other, alpha);
}

Value mm(Value self, Value mat2) {
  return hlo::dot_general(self, mat2,
                          {.lhs_batching_dimensions = {},
                           .rhs_batching_dimensions = {},
                           .lhs_contracting_dimensions = {1},
                           .rhs_contracting_dimensions = {0}});
}

// Element `i` of a 1-dim tensor of numbers.
Value element(Value numbers, std::size_t i) {
  const auto start = static_cast<std::int64_t>(i);
  return hlo::reshape(hlo::slice(numbers, {start}, {start + 1}, {1}), {});
}

using WithProduct = Value (*)(Value, Value, Value, const Factor&);

// addcmul and addcdiv with the factors in one tensor.
template <WithProduct F>
std::vector<Value> with_factors(const std::vector<Value>& self, const std::vector<Value>& tensors1,
                                const std::vector<Value>& tensors2, Value scalars) {
  base::check(scalars.rank() == 1, "Expected packed scalar Tensor to be of dimension 1. Got ",
              scalars.rank(), " instead.");
  base::check(scalars.dim(0) == static_cast<std::int64_t>(self.size()),
              "Expected length of scalars to match input of length ", self.size(), " but got ",
              scalars.dim(0), " instead.");
  std::vector<Value> results;
  for (std::size_t i = 0; i < self.size(); ++i) {
    results.push_back(F(self[i], tensors1[i], tensors2[i], Factor{.value = element(scalars, i)}));
  }
  return results;
}

void register_arithmetic(Registry& m) {
  for (const char* overload : {".List", ".Scalar", ".ScalarList"}) {
    m.foreach (base::str("_foreach_mul", overload), mul);
    m.foreach (base::str("_foreach_div", overload), div);
    m.foreach (base::str("_foreach_clamp_min", overload), clamp_min);
    m.foreach (base::str("_foreach_maximum", overload), clamp_min);
    m.foreach (base::str("_foreach_clamp_max", overload), clamp_max);
    m.foreach (base::str("_foreach_minimum", overload), clamp_max);
    m.foreach (base::str("_foreach_lerp", overload), lerp);
  }
  const Factor one{.value = {}, .is_one = true};
  for (const char* overload : {".Scalar", ".ScalarList"}) {
    m.foreach (base::str("_foreach_add", overload),
               [one](Value self, Value other) { return add(self, other, one); });
    m.foreach (base::str("_foreach_sub", overload),
               [one](Value self, Value other) { return sub_of_list(self, other, one); });
    m.foreach (base::str("_foreach_pow", overload),
               [](Value self, Promotable exponent) { return pow(self, exponent); });
    m.foreach (base::str("_foreach_addcmul", overload), addcmul);
    m.foreach (base::str("_foreach_addcdiv", overload), addcdiv);
  }
  m.foreach ("_foreach_add.List", add);
  m.foreach ("_foreach_add.Tensor", add);
  m.foreach ("_foreach_sub.List", sub_of_list);
  m.foreach ("_foreach_mul.Tensor", mul);
  m.foreach ("_foreach_div.Tensor", div);
  m.foreach ("_foreach_pow.List", [](Value self, Value exponent) { return pow(self, exponent); });
  m.impl("_foreach_pow.ScalarAndTensor", [](Value self, std::vector<Value> exponents) {
    for (Value& exponent : exponents) exponent = pow(self, exponent);
    return exponents;
  });
  m.impl("_foreach_addcmul.Tensor", with_factors<addcmul>);
  m.impl("_foreach_addcdiv.Tensor", with_factors<addcdiv>);
}

}  // namespace

void register_foreach(Registry& m) {
  for (const UnaryOperator& op : unary_operators()) {
    if (kUnaryNames.contains(op.name)) {
      m.foreach (base::str("_foreach_", op.name), op.emit, {.repeats = op.repeats});
    }
  }
  register_arithmetic(m);
  m.foreach ("_foreach_clone", [](Value self) { return self; });
  m.foreach ("_foreach_copy", copy);
  m.foreach ("_foreach_max", maximum_of);
  m.foreach ("_foreach_norm.Scalar", norm);
  m.foreach ("_foreach_powsum.Scalar", powsum);
  m.foreach ("_foreach_mm", mm);
}

}  // namespace torch_xla::ops
