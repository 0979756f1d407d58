// Every operation of hlo/ops.h with every element type: each is refused by its own check, or the
// plugin compiles and runs it, over parameters and over constants that it folds. What a check lets
// through and the compiler was not written for may end the process, so the names are said before.
// Not `collective_broadcast`, which XLA's CPU compiler has not; and not under sanitizers, which see
// nothing of the plugin.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "hlo_evaluate.h"

namespace torch_xla::hlo {
namespace {

constexpr std::int64_t kSize = 4;
const Type kSquare{DType::kFloat32, {kSize, kSize}};

// Of a matrix of kSize rows and columns.
using Operation = std::function<Values(Value)>;
struct Case {
  std::string name;
  Operation body;
};

Values all(const RngBits& bits) { return {bits.output_state, bits.output}; }
Values all(const std::pair<Value, Value>& pair) { return {pair.first, pair.second}; }
Values all(const BatchNorm& x) { return {x.output, x.mean, x.variance}; }
Values all(const BatchNormGradient& x) { return {x.grad_operand, x.grad_scale, x.grad_offset}; }

Value row(Value x) { return reshape(slice(x, {0, 0}, {1, kSize}, {1, 1}), {kSize}); }
Value cell(Value x) { return reshape(slice(x, {0, 0}, {1, 1}, {1, 1}), {}); }
Value index(Value x) { return scalar(x.builder(), DType::kInt32, 1); }
Value zero(Value x) { return scalar(x.builder(), x.dtype(), 0); }

std::vector<Case> cases_of_elementwise() {
  std::vector<Case> cases;
  using Unary = Value (*)(Value);
  const std::pair<const char*, Unary> unary[] = {
      {"abs", abs},
      {"acos", acos},
      {"acosh", acosh},
      {"asin", asin},
      {"asinh", asinh},
      {"atan", atan},
      {"atanh", atanh},
      {"bessel_i1e", bessel_i1e},
      {"cbrt", cbrt},
      {"ceil", ceil},
      {"conj", conj},
      {"cosh", cosh},
      {"cosine", cosine},
      {"count_leading_zeros", count_leading_zeros},
      {"digamma", digamma},
      {"erf", erf},
      {"erf_inv", erf_inv},
      {"erfc", erfc},
      {"exponential", exponential},
      {"exponential_minus_one", exponential_minus_one},
      {"floor", floor},
      {"imag", imag},
      {"is_finite", is_finite},
      {"lgamma", lgamma},
      {"log", log},
      {"log_plus_one", log_plus_one},
      {"logistic", logistic},
      {"negate", negate},
      {"not", not_},
      {"popcnt", popcnt},
      {"real", real},
      {"round_nearest_afz", round_nearest_afz},
      {"round_nearest_even", round_nearest_even},
      {"rsqrt", rsqrt},
      {"sign", sign},
      {"sine", sine},
      {"sinh", sinh},
      {"sqrt", sqrt},
      {"square", square},
      {"tan", tan},
      {"tanh", tanh},
  };
  for (const auto& [name, op] : unary) {
    cases.push_back({name, [op](Value x) { return Values{op(x)}; }});
  }
  using Binary = Value (*)(Value, Value);
  const std::pair<const char*, Binary> binary[] = {
      {"add", add},
      {"and", and_},
      {"atan2", atan2},
      {"complex", complex},
      {"divide", divide},
      {"maximum", maximum},
      {"minimum", minimum},
      {"multiply", multiply},
      {"next_after", next_after},
      {"or", or_},
      {"polygamma", polygamma},
      {"power", power},
      {"remainder", remainder},
      {"shift_left", shift_left},
      {"shift_right_arithmetic", shift_right_arithmetic},
      {"shift_right_logical", shift_right_logical},
      {"subtract", subtract},
      {"xor", xor_},
      {"zeta", zeta},
      {"eq", eq},
      {"ne", ne},
      {"ge", ge},
      {"gt", gt},
      {"le", le},
      {"lt", lt},
  };
  for (const auto& [name, op] : binary) {
    cases.push_back({name, [op](Value x) { return Values{op(x, x)}; }});
    cases.push_back({std::string(name) + " with zeros",
                     [op](Value x) { return Values{op(x, full_like(x, 0))}; }});
  }
  return cases;
}

std::vector<Case> cases_of_others_of_elements() {
  std::vector<Case> cases;
  for (int i = 0; i < base::kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(base::dtype_info(dtype).name);
    cases.push_back({"convert to " + name, [=](Value x) { return Values{convert(x, dtype)}; }});
    if (dtype == DType::kBool) continue;
    cases.push_back({"bitcast_convert to " + name, [=](Value x) {
                       // The last dimension becomes one wider element.
                       const std::int64_t width =
                           base::size_bytes(dtype) / base::size_bytes(x.dtype());
                       const Value groups =
                           width > 1 ? broadcast_in_dim(x, {kSize, kSize, width}, {0, 1}) : x;
                       return Values{bitcast_convert(groups, dtype)};
                     }});
  }
  cases.push_back({"compare in total order", [](Value x) {
                     return Values{compare(x, x, ComparisonDirection::kLt, /*total_order=*/true)};
                   }});
  cases.push_back({"select", [](Value x) { return Values{select(ne(x, x), x, x)}; }});
  cases.push_back({"clamp", [](Value x) { return Values{clamp(cell(x), x, x)}; }});
  cases.push_back({"reduce_precision", [](Value x) { return Values{reduce_precision(x, 4, 3)}; }});
  cases.push_back({"lowest", [](Value x) { return Values{lowest(x.builder(), x.type())}; }});
  cases.push_back({"highest", [](Value x) { return Values{highest(x.builder(), x.type())}; }});
  cases.push_back({"iota", [](Value x) { return Values{iota(x.builder(), x.type(), 1)}; }});
  return cases;
}

std::vector<Case> cases_of_shapes() {
  std::vector<Case> cases;
  cases.push_back({"broadcast_in_dim",
                   [](Value x) { return Values{broadcast_in_dim(x, {2, kSize, kSize}, {1, 2})}; }});
  cases.push_back({"transpose", [](Value x) { return Values{transpose(x, {1, 0})}; }});
  cases.push_back({"reverse", [](Value x) { return Values{reverse(x, {0})}; }});
  cases.push_back({"concatenate", [](Value x) { return Values{concatenate({x, x}, 0)}; }});
  cases.push_back(
      {"pad", [](Value x) { return Values{pad(x, cell(x), {1, -1}, {0, 2}, {1, 0})}; }});
  cases.push_back({"dynamic_slice",
                   [](Value x) { return Values{dynamic_slice(x, {index(x), index(x)}, {2, 2})}; }});
  cases.push_back({"dynamic_slice at this",
                   [](Value x) { return Values{dynamic_slice(x, {cell(x), cell(x)}, {2, 2})}; }});
  cases.push_back({"dynamic_update_slice", [](Value x) {
                     const Value part = slice(x, {0, 0}, {2, 2}, {1, 1});
                     return Values{dynamic_update_slice(x, part, {index(x), index(x)})};
                   }});
  cases.push_back({"gather", [](Value x) {
                     const Value rows = iota(x.builder(), {DType::kInt32, {kSize}}, 0);
                     return Values{gather(x, rows,
                                          {.offset_dims = {1},
                                           .collapsed_slice_dims = {0},
                                           .start_index_map = {0},
                                           .index_vector_dim = 1},
                                          {1, kSize})};
                   }});
  cases.push_back({"gather at these", [](Value x) {
                     return Values{gather(x, row(x),
                                          {.offset_dims = {1},
                                           .collapsed_slice_dims = {0},
                                           .start_index_map = {0},
                                           .index_vector_dim = 1},
                                          {1, kSize})};
                   }});
  using Binary = Value (*)(Value, Value);
  for (const auto& [name, op] : {std::pair<const char*, Binary>{"add", add},
                                 {"multiply", multiply},
                                 {"maximum", maximum},
                                 {"minimum", minimum}}) {
    cases.push_back({std::string("scatter with ") + name, [op](Value x) {
                       const Value rows = iota(x.builder(), {DType::kInt32, {kSize}}, 0);
                       return Values{scatter(x, rows, x,
                                             {.update_window_dims = {1},
                                              .inserted_window_dims = {0},
                                              .scatter_dims_to_operand_dims = {0},
                                              .index_vector_dim = 1},
                                             op)};
                     }});
  }
  return cases;
}

std::vector<Case> cases_of_reductions() {
  std::vector<Case> cases;
  using Binary = Value (*)(Value, Value);
  for (const auto& [name, op] : {std::pair<const char*, Binary>{"add", add},
                                 {"multiply", multiply},
                                 {"maximum", maximum},
                                 {"minimum", minimum},
                                 {"and", and_},
                                 {"or", or_}}) {
    cases.push_back({std::string("reduce with ") + name,
                     [op](Value x) { return Values{reduce(x, cell(x), {1}, op)}; }});
    cases.push_back({std::string("reduce_window with ") + name, [op](Value x) {
                       return Values{reduce_window(
                           x, zero(x), {.dimensions = {2, 2}, .padding = {{1, 0}, {0, 1}}}, op)};
                     }});
  }
  cases.push_back({"select_and_scatter", [](Value x) {
                     const Value source = slice(x, {0, 0}, {2, 2}, {1, 1});
                     return Values{select_and_scatter(
                         x, source, zero(x), {.dimensions = {2, 2}, .strides = {2, 2}}, ge, add)};
                   }});
  cases.push_back({"sort", [](Value x) { return Values{sort(x, 1, true, lt)}; }});
  cases.push_back({"top_k", [](Value x) { return all(top_k(x, 2)); }});
  cases.push_back({"batch_norm_training",
                   [](Value x) { return all(batch_norm_training(x, row(x), row(x), 1e-5, 1)); }});
  cases.push_back({"batch_norm_inference", [](Value x) {
                     return Values{
                         batch_norm_inference(x, row(x), row(x), row(x), row(x), 1e-5, 1)};
                   }});
  cases.push_back({"batch_norm_grad", [](Value x) {
                     return all(batch_norm_grad(x, row(x), row(x), row(x), x, 1e-5, 1));
                   }});
  return cases;
}

std::vector<Case> cases_of_linear_algebra() {
  std::vector<Case> cases;
  const auto product = [](Value x, std::optional<DType> result) {
    return dot_general(x, x, {.lhs_contracting_dimensions = {1}, .rhs_contracting_dimensions = {0}},
                       result);
  };
  const auto correlation = [](Value x, std::optional<DType> result) {
    const Value image = reshape(x, {1, 1, kSize, kSize});
    const Value kernel = slice(image, {0, 0, 0, 0}, {1, 1, 2, 2}, {1, 1, 1, 1});
    return convolution(image, kernel, {}, ConvolutionDimensionNumbers::channels_first(2), 1, 1,
                       result);
  };
  cases.push_back({"dot_general", [=](Value x) { return Values{product(x, {})}; }});
  cases.push_back({"convolution", [=](Value x) { return Values{correlation(x, {})}; }});
  for (const DType dtype :
       {DType::kBool, DType::kInt32, DType::kFloat8E5M2, DType::kFloat32, DType::kComplex128}) {
    const std::string name(base::dtype_info(dtype).name);
    cases.push_back({"dot_general to " + name, [=](Value x) { return Values{product(x, dtype)}; }});
    cases.push_back(
        {"convolution to " + name, [=](Value x) { return Values{correlation(x, dtype)}; }});
  }
  cases.push_back({"cholesky", [](Value x) { return Values{cholesky(x, true)}; }});
  cases.push_back({"triangular_solve", [](Value x) {
                     return Values{triangular_solve(x, x, true, true, false, TransposeA::kAdjoint)};
                   }});
  for (const auto& [name, type] : {std::pair{"fft", FftType::kFft},
                                   {"ifft", FftType::kIfft},
                                   {"rfft", FftType::kRfft},
                                   {"irfft", FftType::kIrfft}}) {
    cases.push_back({name, [type](Value x) {
                       const bool is_halved = type == FftType::kIrfft;
                       return Values{fft(x, type, {is_halved ? 2 * (kSize - 1) : kSize})};
                     }});
  }
  return cases;
}

std::vector<Case> cases_of_control() {
  std::vector<Case> cases;
  cases.push_back({"while", [](Value x) {
                     return while_(
                         {x}, [](auto v) { return ne(cell(v[0]), cell(v[0])); },
                         [](auto v) { return Values{v[0]}; });
                   }});
  cases.push_back({"if on this", [](Value x) {
                     return if_(cell(x), [&] { return Values{x}; }, [&] { return Values{x}; });
                   }});
  cases.push_back({"case on this", [](Value x) {
                     return case_(cell(x), {[&] { return Values{x}; }, [&] { return Values{x}; }});
                   }});
  cases.push_back({"optimization_barrier", [](Value x) { return optimization_barrier({x}); }});
  cases.push_back({"rng_bit_generator", [](Value x) {
                     const Value state = full(x.builder(), {DType::kUInt64, {2}}, 1);
                     return all(rng_bit_generator(state, RngAlgorithm::kThreeFry, x.type()));
                   }});
  const Collective alone{.replica_groups = {{0}}};
  cases.push_back({"all_reduce", [=](Value x) { return all_reduce({x}, alone, add); }});
  cases.push_back({"all_gather", [=](Value x) { return Values{all_gather(x, 0, alone)}; }});
  cases.push_back(
      {"reduce_scatter", [=](Value x) { return Values{reduce_scatter(x, 0, alone, add)}; }});
  cases.push_back({"all_to_all", [=](Value x) { return Values{all_to_all(x, 0, 1, 1, alone)}; }});
  cases.push_back(
      {"collective_permute", [](Value x) { return Values{collective_permute(x, {{0, 0}})}; }});
  return cases;
}

// The dtypes that `operation` does not refuse.
std::vector<DType> accepted(const Case& tried) {
  std::vector<DType> out;
  for (int i = 0; i < base::kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    Builder builder;
    try {
      tried.body(builder.parameter({dtype, kSquare.dims}));
      out.push_back(dtype);
    } catch (const base::Error& error) {
      if (error.kind() == base::ErrorKind::kUnimplemented) continue;
      EXPECT_EQ(error.kind(), base::ErrorKind::kInvalidArgument);
    }
  }
  return out;
}

// Adds what `tried` makes of each dtype that it takes: of what is known at run time only, which is
// `number`, and of constants.
void add_results(Values& results, const Case& tried, const Value& number) {
  const std::vector<DType> dtypes = accepted(tried);
  EXPECT(!dtypes.empty());
  for (const DType dtype : dtypes) {
    for (const Value& one : {convert(number, dtype), scalar(number.builder(), dtype, 1)}) {
      const Values made = tried.body(broadcast_in_dim(one, kSquare.dims, {}));
      results.insert(results.end(), made.begin(), made.end());
    }
  }
}

void compile_and_run(const std::string& program) {
  pjrt::CompileOptions options;
  options.env_option_overrides["xla_backend_optimization_level"] = std::int64_t{0};
  const auto executable = testing::cpu_client().compile(program, options);
  pjrt::Buffer input =
      testing::to_device(testing::f32({}, {1}), executable->addressable_devices()[0]);
  pjrt::Buffer* const arguments[] = {&input};
  const pjrt::ExecuteResult result = executable->execute(arguments, {});
  for (const pjrt::Buffer& buffer : result.outputs[0]) buffer.ready_event().await();
}

// A few at a time: a program costs more than what is in it.
void run_all(std::span<const Case> cases) {
  constexpr std::size_t kAtATime = 8;
  while (!cases.empty()) {
    Builder builder;
    const Value number = builder.parameter({DType::kFloat32, {}});
    Values results = {number};
    for (const Case& tried : cases.first(std::min(kAtATime, cases.size()))) {
      std::cerr << tried.name << "\n";
      add_results(results, tried, number);
    }
    compile_and_run(builder.finish(results));
    cases = cases.subspan(std::min(kAtATime, cases.size()));
  }
}

TEST(every_dtype_is_refused_or_compiled_elementwise) { run_all(cases_of_elementwise()); }
TEST(every_dtype_is_refused_or_compiled_others_of_elements) {
  run_all(cases_of_others_of_elements());
}
TEST(every_dtype_is_refused_or_compiled_shapes) { run_all(cases_of_shapes()); }
TEST(every_dtype_is_refused_or_compiled_reductions) { run_all(cases_of_reductions()); }
TEST(every_dtype_is_refused_or_compiled_linear_algebra) { run_all(cases_of_linear_algebra()); }
TEST(every_dtype_is_refused_or_compiled_control) { run_all(cases_of_control()); }

}  // namespace
}  // namespace torch_xla::hlo

#endif
