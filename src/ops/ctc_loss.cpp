// Connectionist temporal classification. The loss sums over all alignments of a target with the
// inputs by dynamic programming over time, one loop of the program; the gradient runs the same
// recursion backwards. A target of n labels becomes 2n + 1 states: the labels with blanks around.
#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "hlo/in_place.h"
#include "ops/expression.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What is known of the batch before it is seen: the sizes, and masks over (batch, state).
struct Alignment {
  std::int64_t steps;  // of log_probs
  std::int64_t batch;
  std::int64_t states;  // of the longest target
  Dims input_lengths;
  Dims target_lengths;

  Dims state_dims() const { return {batch, states}; }
  Dims step_dims() const { return {steps, batch, states}; }

  // Over (batch, state), int64: the state, and a number of each batch element.
  Value state(hlo::Builder& builder) const {
    return hlo::iota(builder, {DType::kInt64, state_dims()}, 1);
  }
  Value repeated(hlo::Builder& builder, const Dims& numbers) const {
    const Value per_batch =
        hlo::constant(builder, {DType::kInt64, {batch}}, std::span<const std::int64_t>(numbers));
    return hlo::broadcast_in_dim(per_batch, state_dims(), {0});
  }
  // The last state that a target has: the blank after its last label.
  Value last_state(hlo::Builder& builder) const { return repeated(builder, target_lengths) * 2.0; }
  // The states in which a complete alignment may end: the last label and the blank after it.
  Value is_final(hlo::Builder& builder) const {
    const Value last = last_state(builder);
    return equal(state(builder), last) | equal(state(builder), last - 1.0);
  }
  // The states that the target has.
  Value is_state(hlo::Builder& builder) const {
    return less_equal(state(builder), last_state(builder));
  }
  // The input lengths along (batch, state), int64.
  Value lengths(hlo::Builder& builder) const { return repeated(builder, input_lengths); }
};

Alignment alignment_of(Value log_probs, Value targets, const Dims& input_lengths,
                       const Dims& target_lengths) {
  base::check(log_probs.rank() == 3, "log_probs must be 3-D, got ", log_probs.rank(), "-D");
  base::check(targets.rank() == 1 || targets.rank() == 2, "targets must be 1-D or 2-D");
  const std::int64_t batch = log_probs.dim(1);
  base::check(static_cast<std::int64_t>(input_lengths.size()) == batch,
              "input_lengths must be of size batch_size");
  base::check(static_cast<std::int64_t>(target_lengths.size()) == batch,
              "target_lengths must be of size batch_size");
  std::int64_t longest = 0;
  for (const std::int64_t length : target_lengths) longest = std::max(longest, length);
  for (const std::int64_t length : input_lengths) {
    base::check(length >= 0 && length <= log_probs.dim(0),
                "Expected input_lengths to have value at most ", log_probs.dim(0),
                ", but got value ", length);
  }
  return {log_probs.dim(0), batch, 2 * longest + 1, input_lengths, target_lengths};
}

// The label of each state, int32 of (batch, state). `targets` are the labels one target after
// another, or a matrix with a row for each.
Value labels_of(const Alignment& a, Value targets, std::int64_t blank) {
  hlo::Builder& builder = targets.builder();
  const Value blanks = hlo::full(builder, {DType::kInt32, a.state_dims()}, blank);
  if (targets.num_elements() == 0 || a.states == 1) return blanks;
  Dims starts;
  std::int64_t start = 0;
  for (std::size_t b = 0; b < a.target_lengths.size(); ++b) {
    if (targets.rank() == 2) start = static_cast<std::int64_t>(b) * targets.dim(1);
    starts.push_back(start);
    start += a.target_lengths[b];
  }
  const Value flat = hlo::reshape(convert(targets, DType::kInt32), {targets.num_elements()});
  hlo::GatherDimensionNumbers numbers;
  numbers.collapsed_slice_dims = {0};
  numbers.start_index_map = {0};
  numbers.index_vector_dim = 2;
  const Value state = a.state(builder);
  const Value index = min(a.repeated(builder, starts) + state / 2.0,
                          static_cast<double>(targets.num_elements() - 1));
  const Value is_label = equal(hlo::remainder(state, hlo::full_like(state, 2)), 1);
  return hlo::select(is_label, hlo::gather(flat, index, numbers, {1}), blanks);
}

// The log probability of each state's label: (step, batch, state).
Value state_log_probs(const Alignment& a, Value log_probs, Value labels) {
  hlo::GatherDimensionNumbers numbers;
  numbers.offset_dims = {0};
  numbers.collapsed_slice_dims = {2};
  numbers.operand_batching_dims = {1};
  numbers.start_indices_batching_dims = {0};
  numbers.start_index_map = {2};
  numbers.index_vector_dim = 2;
  return hlo::gather(log_probs, labels, numbers, {a.steps, 1, 1});
}

// x moved by `by` states (up if positive), with -inf where there was none.
Value shifted(Value x, std::int64_t by) {
  const Value nothing = hlo::scalar(x.builder(), x.dtype(), -kInfinity);
  return hlo::pad(x, nothing, {0, by}, {0, -by});
}

Value log_sum(const std::vector<Value>& terms) {
  Value peak = terms[0];
  for (const Value& term : terms) peak = hlo::maximum(peak, term);
  peak = hlo::select(hlo::is_finite(peak), peak, hlo::full_like(peak, 0));
  Value sum = hlo::full_like(peak, 0);
  for (const Value& term : terms) {
    sum = hlo::add(sum, hlo::exponential(hlo::subtract(term, peak)));
  }
  return hlo::add(hlo::log(sum), peak);
}

// True where a path may step over the blank between two labels: `direction` 1 from state s - 2 into
// s, -1 from s + 2.
Value may_skip(Value labels, std::int64_t direction) {
  const Value none = hlo::scalar(labels.builder(), DType::kInt32, -1);
  const Value other = hlo::pad(labels, none, {0, 2 * direction}, {0, -2 * direction});
  return hlo::and_(hlo::ne(labels, other), hlo::ne(other, hlo::full_like(other, -1)));
}

// One recursion over all steps: `next(t, before, log_probs)` makes the scores of step t. Steps run
// upwards or downwards; the scores of all are returned, (step, batch, state).
using Step = std::function<Value(Value t, Value before, Value log_probs)>;

Value run_steps(const Alignment& a, Value log_probs, bool upwards, const Step& next) {
  hlo::Builder& builder = log_probs.builder();
  const auto number = [&](std::int64_t value) {
    return hlo::scalar(builder, DType::kInt64, value);
  };
  const Value zero = number(0);
  const Value nothing = hlo::full(builder, {log_probs.dtype(), a.state_dims()}, -kInfinity);
  const Value all = hlo::full(builder, {log_probs.dtype(), a.step_dims()}, -kInfinity);
  if (a.steps == 0 || a.batch == 0) return all;
  const hlo::Values results = hlo::while_(
      {zero, nothing, all},
      [&](std::span<const Value> args) { return hlo::lt(args[0], number(a.steps)); },
      [&](std::span<const Value> args) -> hlo::Values {
        const Value t = upwards ? args[0] : hlo::subtract(number(a.steps - 1), args[0]);
        const Value here = hlo::dynamic_slice(log_probs, {t, zero, zero}, {1, a.batch, a.states});
        const Value scores = next(t, args[1], hlo::reshape(here, a.state_dims()));
        const Value update = hlo::reshape(scores, {1, a.batch, a.states});
        return {hlo::add(args[0], number(1)), scores,
                hlo::update_slice(args[2], update, {t, zero, zero})};
      });
  return results[2];
}

// The log probability of all paths up to each step and state.
Value forward_scores(const Alignment& a, Value log_probs, Value labels) {
  hlo::Builder& builder = log_probs.builder();
  // The blank before the first label, and that label if there is one.
  const Value is_start = less_equal(a.state(builder), min(a.last_state(builder), 1));
  const Value is_state = a.is_state(builder);
  const Value skips = may_skip(labels, 1);
  const Value lengths = a.lengths(builder);
  return run_steps(a, log_probs, /*upwards=*/true, [&](Value t, Value before, Value now) {
    const Value nothing = hlo::full_like(before, -kInfinity);
    const Value skipped = hlo::select(skips, shifted(before, 2), nothing);
    const Value reached = log_sum({before, shifted(before, 1), skipped});
    const Value is_first = hlo::eq(t, hlo::full_like(t, 0));
    const Value started = hlo::select(is_start, hlo::full_like(before, 0), nothing);
    const Value scores = hlo::add(hlo::select(is_first, started, reached), now);
    const Value is_inside = hlo::lt(broadcast_to(t, lengths.dims()), lengths);
    return hlo::select(is_inside, hlo::select(is_state, scores, nothing), nothing);
  });
}

// The log probability of all paths from each step and state to the end.
Value backward_scores(const Alignment& a, Value log_probs, Value labels) {
  hlo::Builder& builder = log_probs.builder();
  const Value is_final = a.is_final(builder);
  const Value skips = may_skip(labels, -1);
  const Value lengths = a.lengths(builder);
  return run_steps(a, log_probs, /*upwards=*/false, [&](Value t, Value after, Value now) {
    const Value nothing = hlo::full_like(after, -kInfinity);
    const Value skipped = hlo::select(skips, shifted(after, -2), nothing);
    const Value reached = log_sum({after, shifted(after, -1), skipped});
    const Value end = hlo::subtract(lengths, hlo::full_like(lengths, 1));
    const Value step = broadcast_to(t, lengths.dims());
    const Value ended = hlo::select(is_final, hlo::full_like(after, 0), nothing);
    const Value scores = hlo::add(hlo::select(hlo::eq(step, end), ended, reached), now);
    return hlo::select(hlo::le(step, end), scores, nothing);
  });
}

// Minus the log probability of the targets, one per batch element.
Value negative_log_likelihood(const Alignment& a, Value scores) {
  hlo::Builder& builder = scores.builder();
  const Value step = hlo::iota(builder, {DType::kInt64, a.step_dims()}, 0);
  const Value lengths = hlo::broadcast_in_dim(a.lengths(builder), a.step_dims(), {1, 2});
  const Value is_last = hlo::eq(step, hlo::subtract(lengths, hlo::full_like(lengths, 1)));
  const Value is_final = hlo::broadcast_in_dim(a.is_final(builder), a.step_dims(), {1, 2});
  const Value chosen =
      hlo::select(hlo::and_(is_last, is_final), scores, hlo::full_like(scores, -kInfinity));
  Value peak = reduce_max(chosen, {0, 2});
  peak = hlo::select(hlo::is_finite(peak), peak, hlo::full_like(peak, 0));
  const Value powers = hlo::exponential(hlo::subtract(chosen, spread(peak, chosen.dims(), {0, 2})));
  const Value loss = hlo::negate(hlo::add(hlo::log(reduce_sum(powers, {0, 2})), peak));
  // No input has the probability 1 of no target.
  std::vector<std::int64_t> is_empty;
  for (std::size_t b = 0; b < a.input_lengths.size(); ++b) {
    is_empty.push_back(a.input_lengths[b] == 0 && a.target_lengths[b] == 0);
  }
  const Value empty =
      hlo::constant(builder, {DType::kBool, {a.batch}}, std::span<const std::int64_t>(is_empty));
  return hlo::select(empty, hlo::full_like(loss, 0), loss);
}

std::tuple<Value, Value> ctc_loss(Value log_probs, Value targets, const Dims& input_lengths,
                                  const Dims& target_lengths, std::int64_t blank,
                                  bool /*zero_infinity*/) {
  base::check(blank >= 0 && blank < log_probs.dim(2), "blank must be in label range");
  const Alignment a = alignment_of(log_probs, targets, input_lengths, target_lengths);
  const Value labels = labels_of(a, targets, blank);
  const Value scores = forward_scores(a, state_log_probs(a, log_probs, labels), labels);
  return {negative_log_likelihood(a, scores), hlo::transpose(scores, {1, 0, 2})};
}

Value ctc_loss_backward(Value grad, Value log_probs, Value targets, const Dims& input_lengths,
                        const Dims& target_lengths, Value neg_log_likelihood, Value log_alpha,
                        std::int64_t blank, bool zero_infinity) {
  const Alignment a = alignment_of(log_probs, targets, input_lengths, target_lengths);
  hlo::Builder& builder = log_probs.builder();
  const Value labels = labels_of(a, targets, blank);
  const Value probs = state_log_probs(a, log_probs, labels);
  // How probable it is to be in a state at a step, given the target. Both scores count the step's
  // own probability.
  const Value after = backward_scores(a, probs, labels);
  const Value joint = hlo::add(hlo::transpose(log_alpha, {1, 0, 2}), after);
  const Value loss = hlo::broadcast_in_dim(neg_log_likelihood, a.step_dims(), {1});
  const Value posterior = hlo::exponential(hlo::subtract(hlo::add(joint, loss), probs));
  // `log_alpha` of another device says nothing of what cannot reach the end.
  const Value nothing = hlo::full_like(joint, -kInfinity);
  const Value is_possible = hlo::and_(hlo::ne(after, nothing), hlo::ne(joint, nothing));
  const Value presence = hlo::select(is_possible, posterior, hlo::full_like(posterior, 0));
  // Summed over the states of each label.
  const Dims one_hot_dims = {a.batch, a.states, log_probs.dim(2)};
  const Value classes = hlo::iota(builder, {DType::kInt32, one_hot_dims}, 2);
  const Value one_hot = convert(
      hlo::eq(classes, hlo::broadcast_in_dim(labels, one_hot_dims, {0, 1})), log_probs.dtype());
  const Value by_class = hlo::transpose(hlo::dot_general(presence, one_hot,
                                                         {.lhs_batching_dimensions = {1},
                                                          .rhs_batching_dimensions = {0},
                                                          .lhs_contracting_dimensions = {2},
                                                          .rhs_contracting_dimensions = {1}}),
                                        {1, 0, 2});
  const auto per_batch = [&](Value v) { return spread(v, log_probs.dims(), {0, 2}); };
  const Value slope = hlo::subtract(hlo::exponential(log_probs), by_class);
  // A target that no path gives has no gradient.
  const double instead = zero_infinity ? 0 : std::numeric_limits<double>::quiet_NaN();
  const Value has_path = hlo::ne(neg_log_likelihood, hlo::full_like(neg_log_likelihood, kInfinity));
  const Value zero = hlo::full_like(slope, 0);
  const Value weighted = hlo::select(per_batch(has_path), hlo::multiply(slope, per_batch(grad)),
                                     hlo::full_like(slope, instead));
  const Value lengths = hlo::constant(builder, {DType::kInt64, {a.batch}},
                                      std::span<const std::int64_t>(input_lengths));
  const Value step = hlo::iota(builder, {DType::kInt64, log_probs.dims()}, 0);
  return hlo::select(hlo::lt(step, per_batch(lengths)), weighted, zero);
}

}  // namespace

void register_ctc_loss(Registry& m) {
  m.impl("_ctc_loss", ctc_loss);
  m.impl("_ctc_loss_backward", ctc_loss_backward);
}

}  // namespace torch_xla::ops
