// Elementwise operations, constants and shape operations on the real CPU plugin: that it accepts
// what src/hlo prints, infers the same types, and computes what the specification says. Operations
// with regions, and the larger ones, are in hlo_test_plugin_regions.cpp.
#include <cmath>
#include <limits>

#include "check.h"
#include "hlo_evaluate.h"

namespace torch_xla::hlo {
namespace {

using testing::Array;
using testing::evaluate;
using testing::f32;
using testing::i32;
using Vector = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

struct UnaryCase {
  Value (*op)(Value);
  double (*expected)(double);
};

double logistic_of(double x) { return 1 / (1 + std::exp(-x)); }
double rsqrt_of(double x) { return 1 / std::sqrt(x); }
double sign_of(double x) { return (x > 0) - (x < 0); }
double square_of(double x) { return x * x; }
double negative_of(double x) { return -x; }
double identity_of(double x) { return x; }
double zero_of(double /*x*/) { return 0; }

const std::vector<UnaryCase>& float_cases() {
  static const std::vector<UnaryCase> cases = {
      {abs, std::fabs},
      {cbrt, std::cbrt},
      {ceil, std::ceil},
      {cosine, std::cos},
      {exponential, std::exp},
      {exponential_minus_one, std::expm1},
      {floor, std::floor},
      {imag, zero_of},
      {log, std::log},
      {log_plus_one, std::log1p},
      {logistic, logistic_of},
      {negate, negative_of},
      {real, identity_of},
      {round_nearest_afz, std::round},
      {round_nearest_even, std::nearbyint},
      {rsqrt, rsqrt_of},
      {sign, sign_of},
      {sine, std::sin},
      {sqrt, std::sqrt},
      {tan, std::tan},
      {tanh, std::tanh},
      {acos, std::acos},
      {acosh, std::acosh},
      {asin, std::asin},
      {asinh, std::asinh},
      {atan, std::atan},
      {atanh, std::atanh},
      {conj, identity_of},
      {cosh, std::cosh},
      {erf, std::erf},
      {erfc, std::erfc},
      {lgamma, std::lgamma},
      {sinh, std::sinh},
      {square, square_of},
  };
  return cases;
}

// Every unary operation in one program, on `dtype`, computed in and read back as float32 or
// float64.
void expect_unary(DType dtype, double tolerance) {
  const bool is_narrow = base::size_bytes(dtype) < 4;
  const Vector inputs = {-2.5, -0.75, -0.0, 0.5, 1.5, 2.5};
  const DType host = is_narrow ? DType::kFloat32 : dtype;
  const std::vector<Array> results =
      evaluate({{{host, {6}}, inputs}}, [&](std::span<const Value> x) {
        Values out;
        for (const UnaryCase& c : float_cases()) {
          out.push_back(convert(c.op(convert(x[0], dtype)), host));
        }
        return out;
      });
  for (std::size_t i = 0; i < results.size(); ++i) {
    Vector expected;
    for (const double x : inputs) expected.push_back(float_cases()[i].expected(x));
    testing::expect_close(results[i].values, expected, tolerance,
                          ("unary operation " + std::to_string(i)).c_str(), 0);
  }
}

TEST(unary_operations_on_f32) { expect_unary(DType::kFloat32, 1e-5); }
TEST(unary_operations_on_f64) { expect_unary(DType::kFloat64, 1e-12); }
TEST(unary_operations_on_bf16) { expect_unary(DType::kBFloat16, 2e-2); }
TEST(unary_operations_on_f16) { expect_unary(DType::kFloat16, 2e-3); }

TEST(special_functions) {
  const auto out = evaluate({f32({2}, {0.5, 2}), f32({2}, {0.25, 3})}, [](auto x) {
    return Values{digamma(x[0]),
                  erf_inv(x[1]),
                  bessel_i1e(x[0]),
                  next_after(x[0], x[1]),
                  polygamma(full_like(x[0], 1), x[0]),
                  zeta(x[1], x[0])};
  });
  EXPECT_CLOSE(out[0].values, {-1.9635100, 0.4227843});
  EXPECT_CLOSE(out[1].values, {0.2253120, kNan});
  EXPECT_CLOSE(out[2].values, {0.1564208, 0.2152692});
  EXPECT_CLOSE(out[3].values, {0.5, 2});
  EXPECT(out[3].values[0] < 0.5 && out[3].values[1] > 2);
  EXPECT_CLOSE(out[4].values, {4.9348022, 0.6449341});
  EXPECT_CLOSE(out[5].values, {kNan, 0.2020569});
}

TEST(integer_unary_operations) {
  const auto out = evaluate({i32({3}, {5, -1, 0})}, [](auto x) {
    return Values{abs(x[0]), negate(x[0]), not_(x[0]), popcnt(x[0]), count_leading_zeros(x[0]),
                  sign(x[0])};
  });
  EXPECT_EQ(out[0].values, (Vector{5, 1, 0}));
  EXPECT_EQ(out[1].values, (Vector{-5, 1, 0}));
  EXPECT_EQ(out[2].values, (Vector{-6, 0, -1}));
  EXPECT_EQ(out[3].values, (Vector{2, 32, 0}));
  EXPECT_EQ(out[4].values, (Vector{29, 0, 32}));
  EXPECT_EQ(out[5].values, (Vector{1, -1, 0}));
}

TEST(binary_operations) {
  const auto out = evaluate({f32({3}, {7, -7, 2}), f32({3}, {2, 2, 0.5})}, [](auto x) {
    return Values{add(x[0], x[1]),     subtract(x[0], x[1]),  multiply(x[0], x[1]),
                  divide(x[0], x[1]),  remainder(x[0], x[1]), power(x[0], x[1]),
                  maximum(x[0], x[1]), minimum(x[0], x[1]),   atan2(x[0], x[1])};
  });
  EXPECT_CLOSE(out[0].values, {9, -5, 2.5});
  EXPECT_CLOSE(out[1].values, {5, -9, 1.5});
  EXPECT_CLOSE(out[2].values, {14, -14, 1});
  EXPECT_CLOSE(out[3].values, {3.5, -3.5, 4});
  EXPECT_CLOSE(out[4].values, {1, -1, 0});
  EXPECT_CLOSE(out[5].values, {49, 49, std::sqrt(2.0)});
  EXPECT_CLOSE(out[6].values, {7, 2, 2});
  EXPECT_CLOSE(out[7].values, {2, -7, 0.5});
  EXPECT_CLOSE(out[8].values, {std::atan2(7, 2), std::atan2(-7, 2), std::atan2(2, 0.5)});
}

TEST(integer_and_boolean_binary_operations) {
  const auto out = evaluate({i32({2}, {12, -12}), i32({2}, {2, 2})}, [](auto x) {
    const Value p = gt(x[0], x[1]);
    const Value q = ne(x[0], x[1]);
    return Values{and_(x[0], x[1]),
                  or_(x[0], x[1]),
                  xor_(x[0], x[1]),
                  shift_left(x[0], x[1]),
                  shift_right_arithmetic(x[0], x[1]),
                  convert(shift_right_logical(x[0], x[1]), DType::kInt64),
                  divide(x[0], x[1]),
                  add(p, q),
                  multiply(p, q),
                  xor_(p, q),
                  not_(p),
                  maximum(p, q),
                  minimum(p, q)};
  });
  EXPECT_EQ(out[0].values, (Vector{0, 0}));
  EXPECT_EQ(out[1].values, (Vector{14, -10}));
  EXPECT_EQ(out[2].values, (Vector{14, -10}));
  EXPECT_EQ(out[3].values, (Vector{48, -48}));
  EXPECT_EQ(out[4].values, (Vector{3, -3}));
  EXPECT_EQ(out[5].values, (Vector{3, 1073741821}));
  EXPECT_EQ(out[6].values, (Vector{6, -6}));
  EXPECT_EQ(out[7].values, (Vector{1, 1}));
  EXPECT_EQ(out[8].values, (Vector{1, 0}));
  EXPECT_EQ(out[9].values, (Vector{0, 1}));
  EXPECT_EQ(out[10].values, (Vector{0, 1}));
  EXPECT_EQ(out[11].values, (Vector{1, 1}));
  EXPECT_EQ(out[12].values, (Vector{1, 0}));
}

TEST(integers_divided_by_zero) {
  const auto out = evaluate({i32({3}, {7, -7, 0}), i32({3}, {0, 2, 0})}, [](auto x) {
    const Value zero = full_like(x[0], 0);
    const Value byte = full(x[0].builder(), {DType::kUInt8, {3}}, 0);
    return Values{divide(x[0], x[1]), remainder(x[0], x[1]), divide(zero, zero),
                  remainder(zero, subtract(zero, zero)), divide(byte, byte)};
  });
  EXPECT_EQ(out[0].values, (Vector{-1, -3, -1}));
  EXPECT_EQ(out[1].values, (Vector{7, -1, 0}));
  EXPECT_EQ(out[2].values, (Vector{-1, -1, -1}));
  EXPECT_EQ(out[3].values, (Vector{0, 0, 0}));
  EXPECT_EQ(out[4].values, (Vector{255, 255, 255}));
}

TEST(comparisons_of_every_kind) {
  const auto out = evaluate({f32({3}, {1, kNan, -0.0}), f32({3}, {1, 1, 0.0})}, [](auto x) {
    const Value u = convert(abs(x[0]), DType::kUInt8);
    return Values{eq(x[0], x[1]),
                  ne(x[0], x[1]),
                  le(x[0], x[1]),
                  compare(x[0], x[1], ComparisonDirection::kLt, true),
                  lt(full_like(u, 3), full_like(u, 200)),
                  ge(x[0], x[0]),
                  eq(complex(x[0], x[1]), complex(x[1], x[1])),
                  gt(eq(x[0], x[1]), ne(x[0], x[1])),
                  is_finite(divide(x[0], sign(x[0])))};
  });
  EXPECT_EQ(out[0].values, (Vector{1, 0, 1}));
  EXPECT_EQ(out[1].values, (Vector{0, 1, 0}));
  EXPECT_EQ(out[2].values, (Vector{1, 0, 1}));
  EXPECT_EQ(out[3].values, (Vector{0, 0, 1}));
  EXPECT_EQ(out[4].values, (Vector{1, 1, 1}));
  EXPECT_EQ(out[5].values, (Vector{1, 0, 1}));
  EXPECT_EQ(out[6].values, (Vector{1, 0, 1}));
  EXPECT_EQ(out[7].values, (Vector{1, 0, 1}));
  EXPECT_EQ(out[8].values, (Vector{1, 0, 0}));
}

TEST(select_and_clamp_take_scalars_too) {
  const auto out = evaluate({f32({3}, {-5, 0.5, 5})}, [](auto x) {
    Builder& b = x[0].builder();
    const Value zero = scalar(b, DType::kFloat32, 0.0);
    const Value one = scalar(b, DType::kFloat32, 1.0);
    return Values{clamp(zero, x[0], one), clamp(full_like(x[0], -1), x[0], full_like(x[0], 2)),
                  select(lt(x[0], full_like(x[0], 0)), negate(x[0]), x[0]),
                  select(scalar(b, DType::kBool, false), negate(x[0]), x[0])};
  });
  EXPECT_EQ(out[0].values, (Vector{0, 0.5, 1}));
  EXPECT_EQ(out[1].values, (Vector{-1, 0.5, 2}));
  EXPECT_EQ(out[2].values, (Vector{5, 0.5, 5}));
  EXPECT_EQ(out[3].values, (Vector{-5, 0.5, 5}));
}

TEST(convert_between_all_dtypes) {
  // 2 + 0i survives every type; the chain visits each pair of them.
  const auto out = evaluate({f32({2}, {2, 0})}, [](auto x) {
    Value sum = x[0];
    for (int from = 0; from < base::kNumDTypes; ++from) {
      for (int to = 0; to < base::kNumDTypes; ++to) {
        const Value there =
            convert(convert(x[0], static_cast<DType>(from)), static_cast<DType>(to));
        sum = add(sum, convert(there, DType::kFloat32));
      }
    }
    return Values{sum};
  });
  const double n = base::kNumDTypes;
  EXPECT_EQ(out[0].values, (Vector{2 + n + n + 2 * (n - 1) * (n - 1) - 1, 0}));
}

TEST(convert_to_bool_is_not_zero) {
  const auto out = evaluate({f32({4}, {0, 0.25, kNan, -3})}, [](auto x) {
    const Value zero = full_like(x[0], 0);
    return Values{convert(x[0], DType::kBool), convert(complex(zero, x[0]), DType::kBool),
                  convert(complex(x[0], zero), DType::kInt32)};
  });
  EXPECT_EQ(out[0].values, (Vector{0, 1, 1, 1}));
  EXPECT_EQ(out[1].values, (Vector{0, 1, 1, 1}));
  EXPECT_EQ(out[2].values, (Vector{0, 0, 0, -3}));
}

TEST(bitcast_convert_changes_rank_with_width) {
  const auto out = evaluate({f32({2}, {1, -2})}, [](auto x) {
    const Value bytes = bitcast_convert(x[0], DType::kUInt8);
    return Values{bitcast_convert(x[0], DType::kInt32), bytes,
                  bitcast_convert(bytes, DType::kFloat32)};
  });
  EXPECT_EQ(out[0].values, (Vector{0x3F800000, -1073741824}));
  EXPECT_EQ(out[1].type.dims, (Dims{2, 4}));
  EXPECT_EQ(out[1].values, (Vector{0, 0, 128, 63, 0, 0, 0, 192}));
  EXPECT_EQ(out[2].values, (Vector{1, -2}));
}

TEST(complex_operations) {
  const auto out = evaluate({{{DType::kComplex64, {2}}, {3, 4, 0, -1}}}, [](auto x) {
    return Values{abs(x[0]),         real(x[0]),
                  imag(x[0]),        conj(x[0]),
                  exponential(x[0]), multiply(x[0], full_like(x[0], std::complex<double>(0, 1)))};
  });
  EXPECT_CLOSE(out[0].values, {5, 1});
  EXPECT_CLOSE(out[1].values, {3, 0});
  EXPECT_CLOSE(out[2].values, {4, -1});
  EXPECT_CLOSE(out[3].values, {3, -4, 0, 1});
  EXPECT_CLOSE(out[4].values,
               {std::exp(3) * std::cos(4), std::exp(3) * std::sin(4), std::cos(1), -std::sin(1)});
  EXPECT_CLOSE(out[5].values, {-4, 3, 1, 0});
}

TEST(complex_unary_operations_compile) {
  const auto out = evaluate({{{DType::kComplex64, {2}}, {0.3, 0.4, 0.1, -0.2}}}, [](auto x) {
    Values results;
    for (Value (*op)(Value) : {cosine, exponential,  exponential_minus_one,
                               log,    log_plus_one, logistic,
                               negate, rsqrt,        sign,
                               sine,   sqrt,         tan,
                               tanh,   acos,         acosh,
                               asin,   asinh,        atan,
                               atanh,  cosh,         sinh,
                               square}) {
      results.push_back(abs(op(x[0])));
    }
    results.push_back(power(x[0], x[0]));
    results.push_back(divide(x[0], x[0]));
    results.push_back(select(scalar(x[0].builder(), DType::kBool, true), x[0], x[0]));
    return results;
  });
  EXPECT_CLOSE(out[10].values, {std::sqrt(0.5), std::pow(0.05, 0.25)});
}

TEST(constants_arrive_exactly) {
  const std::vector<double> doubles = {0.1, -1e300, 5e-324, 1.0 / 3, 1e17};
  std::vector<double> many(40);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::sqrt(static_cast<double>(i));
  const auto out = evaluate({}, [&](std::span<const Value> x) {
    Builder& b = x[0].builder();
    const std::vector<std::complex<double>> c = {{1.5, -2}, {kInf, 0.1}};
    return Values{constant(b, {DType::kFloat64, {5}}, std::span<const double>(doubles)),
                  constant(b, {DType::kFloat64, {40}}, std::span<const double>(many)),
                  constant(b, {DType::kFloat32, {3}}, {kInf, -kInf, kNan}),
                  constant(b, {DType::kComplex128, {2}}, std::span<const std::complex<double>>(c)),
                  constant(b, {DType::kUInt64, {2}}, {-1, 7}),
                  constant(b, {DType::kInt8, {2, 2}}, {127, -128, 255, 3}),
                  constant(b, {DType::kBool, {3}}, {1, 0, 5}),
                  constant(b, {DType::kInt32, {2, 0}}, std::span<const double>()),
                  scalar(b, DType::kInt64, std::int64_t{-9223372036854775807})};
  });
  EXPECT_EQ(out[0].values, doubles);
  EXPECT_EQ(out[1].values, many);
  EXPECT_CLOSE(out[2].values, {kInf, -kInf, kNan});
  EXPECT_EQ(out[3].values, (Vector{1.5, -2, kInf, 0.1}));
  EXPECT_EQ(out[4].values, (Vector{18446744073709551615.0, 7}));
  EXPECT_EQ(out[5].values, (Vector{127, -128, -1, 3}));
  EXPECT_EQ(out[6].values, (Vector{1, 0, 1}));
  EXPECT_EQ(out[7].type.dims, (Dims{2, 0}));
  EXPECT_EQ(out[8].values, (Vector{-9223372036854775807.0}));
}

TEST(long_constants_of_every_dtype) {
  std::vector<double> numbers(24);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 7);
  const auto out = evaluate({}, [&](std::span<const Value> x) {
    Values results;
    for (int d = 0; d < base::kNumDTypes; ++d) {
      const Type type{static_cast<DType>(d), {4, 6}};
      const Value c = constant(x[0].builder(), type, std::span<const double>(numbers));
      results.push_back(convert(c, DType::kFloat32));
    }
    return results;
  });
  std::vector<double> booleans = numbers;
  for (double& number : booleans) number = number != 0;
  EXPECT_EQ(out[0].values, booleans);
  for (std::size_t d = 1; d < out.size(); ++d) EXPECT_EQ(out[d].values, numbers);
}

TEST(narrow_floats_round_to_nearest_even) {
  const std::vector<double> numbers = {1.0009765, 65504,   65520, 6e-8,  3.14159, 448,  465,  464,
                                       -0.0019,   0.00098, 57344, 61440, -kInf,   kNan, 1e-9, 0.3};
  const std::vector<DType> dtypes = {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN,
                                     DType::kFloat8E5M2};
  const auto out = evaluate({f32({16}, numbers)}, [&](auto x) {
    Values results;
    for (const DType dtype : dtypes) {
      const Value c = constant(x[0].builder(), {dtype, {16}}, std::span<const double>(numbers));
      results.push_back(convert(c, DType::kFloat32));
      results.push_back(convert(convert(x[0], dtype), DType::kFloat32));
    }
    return results;
  });
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    testing::expect_close(out[2 * i].values, out[2 * i + 1].values, 0,
                          base::dtype_info(dtypes[i]).name.data(), 0);
  }
}

TEST(extremes_are_the_identities_of_max_and_min) {
  const auto out = evaluate({}, [](std::span<const Value> x) {
    Values results;
    for (const DType dtype :
         {DType::kBool, DType::kInt8, DType::kUInt16, DType::kFloat32, DType::kFloat8E4M3FN}) {
      results.push_back(convert(lowest(x[0].builder(), {dtype, {}}), DType::kFloat32));
      results.push_back(convert(highest(x[0].builder(), {dtype, {}}), DType::kFloat32));
    }
    return results;
  });
  Vector got;
  for (const Array& array : out) got.push_back(array.values[0]);
  EXPECT_EQ(got, (Vector{0, 1, -128, 127, 0, 65535, -kInf, kInf, -448, 448}));
}

TEST(iota_counts_along_its_dimension) {
  const auto out = evaluate({}, [](std::span<const Value> x) {
    Builder& b = x[0].builder();
    return Values{iota(b, {DType::kInt64, {2, 3}}, 1), iota(b, {DType::kComplex64, {2}}, 0),
                  convert(iota(b, {DType::kBFloat16, {3}}, 0), DType::kFloat32)};
  });
  EXPECT_EQ(out[0].values, (Vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(out[1].values, (Vector{0, 0, 1, 0}));
  EXPECT_EQ(out[2].values, (Vector{0, 1, 2}));
}

TEST(shape_operations) {
  const auto out = evaluate({f32({2, 3}, {0, 1, 2, 3, 4, 5})}, [](auto x) {
    return Values{broadcast_in_dim(x[0], {3, 2, 2}, {2, 0}),
                  reshape(x[0], {3, 2}),
                  transpose(x[0], {1, 0}),
                  reverse(x[0], {0, 1}),
                  concatenate({x[0], x[0]}, 0),
                  slice(x[0], {0, 0}, {2, 3}, {1, 2})};
  });
  EXPECT_EQ(out[0].type.dims, (Dims{3, 2, 2}));
  EXPECT_EQ(out[0].values, (Vector{0, 3, 0, 3, 1, 4, 1, 4, 2, 5, 2, 5}));
  EXPECT_EQ(out[1].values, (Vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(out[2].values, (Vector{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(out[3].values, (Vector{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(out[4].values, (Vector{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(out[5].values, (Vector{0, 2, 3, 5}));
}

TEST(dynamic_slices_are_clamped) {
  const auto out = evaluate({f32({4}, {0, 1, 2, 3}), i32({}, {9}), f32({2}, {7, 8})}, [](auto x) {
    return Values{dynamic_slice(x[0], {x[1]}, {2}), dynamic_update_slice(x[0], x[2], {x[1]}),
                  dynamic_update_slice(x[2], x[2], {x[1]})};
  });
  EXPECT_EQ(out[0].values, (Vector{2, 3}));
  EXPECT_EQ(out[1].values, (Vector{0, 1, 7, 8}));
  EXPECT_EQ(out[2].values, (Vector{7, 8}));
}

TEST(pad_grows_shrinks_and_spreads) {
  const auto out = evaluate({f32({3}, {1, 2, 3})}, [](auto x) {
    const Value zero = scalar(x[0].builder(), DType::kFloat32, 0);
    return Values{pad(x[0], zero, {1}, {2}), pad(x[0], zero, {-1}, {-1}),
                  pad(x[0], zero, {0}, {0}, {1}), pad(x[0], zero, {1}, {-1})};
  });
  EXPECT_EQ(out[0].values, (Vector{0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(out[1].values, (Vector{2}));
  EXPECT_EQ(out[2].values, (Vector{1, 0, 2, 0, 3}));
  EXPECT_EQ(out[3].values, (Vector{0, 1, 2}));
}

TEST(shape_operations_of_empty_and_0d_tensors) {
  const auto out = evaluate({f32({0, 3}, {}), f32({}, {4})}, [](auto x) {
    const Value zero = scalar(x[0].builder(), DType::kFloat32, 0);
    return Values{reshape(x[0], {3, 0}),
                  transpose(x[0], {1, 0}),
                  concatenate({x[0], x[0]}, 0),
                  pad(x[0], zero, {1, 0}, {1, 0}),
                  broadcast_in_dim(x[1], {0, 2}, {}),
                  broadcast_in_dim(x[1], {2}, {}),
                  reshape(x[1], {1, 1}),
                  transpose(x[1], {}),
                  slice(x[1], {}, {}, {}),
                  add(x[0], x[0]),
                  reverse(x[0], {0})};
  });
  EXPECT_EQ(out[3].values, (Vector(6, 0)));
  EXPECT_EQ(out[5].values, (Vector{4, 4}));
  EXPECT_EQ(out[8].values, (Vector{4}));
}

TEST(reduce_precision_drops_bits) {
  const auto out = evaluate({f32({}, {1.0009765625})},
                            [](auto x) { return Values{reduce_precision(x[0], 8, 7)}; });
  EXPECT_EQ(out[0].values, (Vector{1}));
}

}  // namespace
}  // namespace torch_xla::hlo
