// Random permutations, and samples of categories by their weights.
#include "ops/expression.h"
#include "ops/random_bits.h"
#include "ops/reduce.h"
#include "ops/scan.h"
#include "ops/sequence_dtypes.h"

namespace torch_xla::ops {
namespace {

// The numbers below n in the order of random keys. With 64 bits no two keys are equal.
Value randperm(hlo::Builder& builder, std::int64_t n, DType dtype, Value key) {
  base::check(n >= 0, "n must be non-negative, got", n);
  check_implemented(can_count(dtype), "randperm", dtype);
  const Value numbers = hlo::iota(builder, {DType::kInt64, {n}}, 0);
  const hlo::Values sorted =
      hlo::sort({random_bits64(key, {n}), numbers}, 0, /*is_stable=*/false,
                [](std::span<const Value> v) { return hlo::lt(v[0], v[1]); });
  return convert(sorted[1], dtype);
}

Value running_sum(Value value, std::int64_t dim) {
  const Value zero = scalar(value.builder(), value.dtype(), 0);
  return scan({value}, {zero}, dim,
              [](std::span<const Value> v) { return hlo::Values{hlo::add(v[0], v[1])}; })[0];
}

// [rows, categories] to [rows, samples], independent draws: the category in whose part of the
// running sum a uniform number falls.
Value sample_with_replacement(Value weights, std::int64_t num_samples, Value key) {
  const std::int64_t rows = weights.dim(0);
  const std::int64_t categories = weights.dim(1);
  const Dims dims = {rows, num_samples, categories};
  const Value sums = running_sum(weights, 1);
  const Value total = hlo::slice(sums, {0, categories - 1}, {rows, categories}, {1, 1});
  const Value points = random_uniform(key, weights.dtype(), {rows, num_samples}) *
                       broadcast_to(total, {rows, num_samples});
  const auto count = [](Value condition, std::int64_t dim) {
    return reduce_sum(convert(condition, DType::kInt64), {dim});
  };
  const Value passed = hlo::le(hlo::broadcast_in_dim(sums, dims, {0, 2}),
                               hlo::broadcast_in_dim(points, dims, {0, 1}));
  // A product that was rounded up to the total belongs to the last category with any weight.
  const Value last = count(hlo::lt(sums, broadcast_to(total, sums.dims())), 1);
  return min(count(passed, 2), hlo::broadcast_in_dim(last, {rows, num_samples}, {0}));
}

// Without replacement: the categories with the greatest weight per exponential number, which are
// distributed as drawn one after another.
Value sample_without_replacement(Value weights, std::int64_t num_samples, Value key) {
  const Value scores = weights / random_exponential(key, weights.dtype(), weights.dims());
  if (num_samples == 1) {
    return hlo::reshape(reduce_with_index(scores, 1, /*greatest=*/true).second,
                        {weights.dim(0), 1});
  }
  const Value numbers = hlo::iota(weights.builder(), {DType::kInt64, weights.dims()}, 1);
  const hlo::Values sorted =
      hlo::sort({scores, numbers}, 1, /*is_stable=*/true,
                [](std::span<const Value> v) { return hlo::gt(v[0], v[1]); });
  return hlo::slice(sorted[1], {0, 0}, {weights.dim(0), num_samples}, {1, 1});
}

Value multinomial(Value self, std::int64_t num_samples, bool replacement, Value key) {
  base::check(self.rank() == 1 || self.rank() == 2, "prob_dist must be 1 or 2 dim");
  base::check(base::is_floating(self.dtype()),
              "multinomial only supports floating-point dtypes for input, got: ",
              scalar_type_name(self.dtype()));
  const std::int64_t categories = self.dim(self.rank() - 1);
  base::check(num_samples > 0, "cannot sample n_sample <= 0 samples");
  base::check(replacement || num_samples <= categories,
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  base::check(categories <= 1 << 24, "number of categories cannot exceed 2^24");
  Dims result = self.dims();
  result.back() = num_samples;
  if (base::num_elements(result) == 0) return full(self.builder(), {DType::kInt64, result}, 0);
  const std::int64_t rows = self.rank() == 2 ? self.dim(0) : 1;
  const Value weights = hlo::reshape(convert(self, random_dtype(self.dtype())), {rows, categories});
  const Value samples = replacement && num_samples > 1
                            ? sample_with_replacement(weights, num_samples, key)
                            : sample_without_replacement(weights, num_samples, key);
  return hlo::reshape(samples, result);
}

}  // namespace

void register_random_sampling(Registry& m) {
  m.impl("randperm",
         [](Context& context, std::int64_t n, std::optional<DType> dtype, Value key) {
           return randperm(context.builder, n, dtype.value_or(DType::kInt64), key);
         },
         {.is_random = true});
  m.impl("randperm.generator",
         [](Context& context, std::int64_t n, Value key, std::optional<DType> dtype) {
           return randperm(context.builder, n, dtype.value_or(DType::kInt64), key);
         });
  m.impl("multinomial", multinomial);
}

}  // namespace torch_xla::ops
