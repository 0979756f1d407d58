// Losses over classes: negative log likelihood and the margin losses, with gradients. A class is
// picked by comparing with an iota rather than by gather and scatter, so that XLA fuses it with
// what produces and consumes the scores.
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "ops/loss.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

using MaybeValue = std::optional<Value>;
using Pair = std::tuple<Value, Value>;

std::int64_t class_dim(Value scores) { return scores.rank() == 1 ? 0 : 1; }

// The scores' sizes without the classes.
Dims sample_dims(Value scores) {
  return reduced_dims(scores.dims(), {class_dim(scores)}, /*keepdim=*/false);
}

// True where an element of `scores` is of its sample's class; `classes` are int32, one per sample.
Value is_of_class(Value scores, Value classes) {
  const std::int64_t dim = class_dim(scores);
  const Value index = hlo::iota(scores.builder(), {DType::kInt32, scores.dims()}, dim);
  return hlo::eq(index, spread(classes, scores.dims(), {dim}));
}

// Each sample's score of its class.
Value score_of_class(Value scores, Value classes) {
  const std::int64_t dim = class_dim(scores);
  hlo::GatherDimensionNumbers numbers;
  numbers.collapsed_slice_dims = {dim};
  numbers.operand_batching_dims = all_but(dim, scores.rank());
  numbers.start_indices_batching_dims = wrap_dims({}, classes.rank());
  numbers.start_index_map = {dim};
  numbers.index_vector_dim = classes.rank();
  return hlo::gather(scores, classes, numbers, Dims(scores.dims().size(), 1));
}

// Each sample's weight, in `dtype`: that of its class, or 1.
Value weight_of_class(const MaybeValue& weight, Value classes, DType dtype) {
  if (!weight.has_value()) return hlo::full(classes.builder(), {dtype, classes.dims()}, 1);
  hlo::GatherDimensionNumbers numbers;
  numbers.collapsed_slice_dims = {0};
  numbers.start_index_map = {0};
  numbers.index_vector_dim = classes.rank();
  return hlo::gather(convert(*weight, dtype), classes, numbers, {1});
}

// ---- Negative log likelihood --------------------------------------------------------------------

// What forward and backward need of each sample.
struct Samples {
  Value scores;      // in the dtype that is computed in
  Value classes;     // int32
  Value is_counted;  // false where the target is ignore_index
  Value weight;      // 0 where not counted
};

Samples samples_of(Value self, Value target, const MaybeValue& weight, std::int64_t ignore_index) {
  base::check(target.dtype() == DType::kInt64 || target.dtype() == DType::kUInt8,
              "expected target dtype to be Long or Byte, but got ",
              scalar_type_name(target.dtype()));
  check_implemented(base::is_floating(self.dtype()), "nll_loss_out_frame", self.dtype());
  Samples s;
  s.scores = convert(self, accumulate_dtype(self.dtype()));
  target = hlo::reshape(convert(target, DType::kInt64), sample_dims(self));
  s.classes = convert(target, DType::kInt32);
  s.is_counted = hlo::ne(target, hlo::full_like(target, ignore_index));
  const Value of_class = weight_of_class(weight, s.classes, s.scores.dtype());
  s.weight = hlo::select(s.is_counted, of_class, hlo::full_like(of_class, 0));
  return s;
}

Pair nll_loss(Value self, Value target, const MaybeValue& weight, std::int64_t reduction,
              std::int64_t ignore_index) {
  const Samples s = samples_of(self, target, weight, ignore_index);
  const Value score = hlo::negate(score_of_class(s.scores, s.classes));
  // Not a product alone: an infinite score of an ignored sample counts nothing.
  const Value losses =
      hlo::select(s.is_counted, hlo::multiply(score, s.weight), hlo::full_like(score, 0));
  if (reduction == kNone && self.rank() > 1) {
    return {convert(losses, self.dtype()), hlo::scalar(self.builder(), self.dtype(), 0)};
  }
  const Dims all = wrap_dims({}, losses.rank());
  const Value total_weight = reduce_sum(s.weight, all);
  Value total = reduce_sum(losses, all);
  if (reduction == kMean) total = hlo::divide(total, total_weight);
  return {convert(total, self.dtype()), convert(total_weight, self.dtype())};
}

Value nll_loss_backward(Value grad_output, Value self, Value target, const MaybeValue& weight,
                        std::int64_t reduction, std::int64_t ignore_index, Value total_weight) {
  const Samples s = samples_of(self, target, weight, ignore_index);
  Value grad = convert(grad_output, s.scores.dtype());
  if (reduction == kMean) grad = hlo::divide(grad, convert(total_weight, grad.dtype()));
  const Value product = hlo::multiply(broadcast_to(grad, s.weight.dims()), s.weight);
  // Not the product alone: where no sample is counted, the mean's gradient is infinite.
  const Value slope = hlo::negate(hlo::select(s.is_counted, product, hlo::full_like(product, 0)));
  const Value everywhere = spread(slope, self.dims(), {class_dim(self)});
  const Value result =
      hlo::select(is_of_class(s.scores, s.classes), everywhere, hlo::full_like(everywhere, 0));
  return convert(result, self.dtype());
}

void check_nll_loss2d(Value self, Value target, const MaybeValue& weight) {
  base::check(target.rank() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of ",
              "dimension: ", target.rank());
  base::check(self.rank() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of ",
              "dimension: ", self.rank());
  base::check(!weight.has_value() || weight->num_elements() == self.dim(1),
              "weight tensor should be defined either for all or no classes");
  base::check(sample_dims(self) == target.dims(),
              "size mismatch (got input: ", base::to_string(self.dims()),
              " , target: ", base::to_string(target.dims()));
}

void register_nll(Registry& m) {
  m.impl("nll_loss_forward", nll_loss);
  m.impl("nll_loss_backward", nll_loss_backward);
  m.impl("nll_loss2d_forward", [](Value self, Value target, const MaybeValue& weight,
                                  std::int64_t reduction, std::int64_t ignore_index) {
    check_nll_loss2d(self, target, weight);
    return nll_loss(self, target, weight, reduction, ignore_index);
  });
  m.impl("nll_loss2d_backward", nll_loss_backward);
}

// ---- Margin over classes ------------------------------------------------------------------------

// One loss per sample has the target's sizes: a 0-dim target gives a 0-dim loss.
Value as_losses(Value losses, Value target, std::int64_t reduction) {
  return reduction == kNone ? hlo::reshape(losses, target.dims()) : losses;
}

// margin - score of the class + score, where it is positive and another class's.
struct Margins {
  Value scores;
  Value is_class;
  Value excess;  // max(0, margin - ...), 0 for the class itself
  Value weight;  // per sample, already divided by the number of classes
};

// PyTorch's kernels ask whether a distance is positive, which a NaN is not.
Value positive_part(Value distance) {
  const Value zero = hlo::full_like(distance, 0);
  return hlo::select(hlo::gt(distance, zero), distance, zero);
}

void check_dtype_is(DType dtype, Value value) {
  base::check(value.dtype() == dtype, "expected scalar type ", scalar_type_name(dtype),
              " but found ", scalar_type_name(value.dtype()));
}

// `self` is at least 1-dim.
Margins margins_of(Value self, Value target, std::int64_t p, double margin,
                   const MaybeValue& weight) {
  base::check(p == 1 || p == 2, "only p == 1 and p == 2 supported");
  base::check(self.rank() <= 2 && (self.rank() == 0 || self.dim(self.rank() - 1) > 0),
              "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ",
              base::to_string(self.dims()));
  const Dims samples = sample_dims(self);
  base::check(target.rank() <= 1 && target.num_elements() == base::num_elements(samples),
              "multi_margin_loss: target tensor should be 1-D with size equal to the number of "
              "input samples (batch size). Expected target size [",
              base::num_elements(samples), "], but got ", base::to_string(target.dims()),
              ". Input has shape ", base::to_string(self.dims()), ".");
  const std::int64_t num_classes = self.dim(class_dim(self));
  if (weight.has_value()) {
    base::check(weight->rank() <= 1 && weight->num_elements() == num_classes,
                "inconsistent weight size, expected ", num_classes, " but got ",
                base::to_string(weight->dims()));
  }
  check_dtype_is(DType::kInt64, target);
  if (weight.has_value()) check_dtype_is(self.dtype(), *weight);
  Margins m;
  m.scores = convert(self, accumulate_dtype(self.dtype()));
  const Value classes = hlo::reshape(convert(target, DType::kInt32), samples);
  m.is_class = is_of_class(m.scores, classes);
  const Value own = spread(score_of_class(m.scores, classes), self.dims(), {class_dim(self)});
  const Value zero = hlo::full_like(m.scores, 0);
  const Value distance = hlo::add(hlo::subtract(hlo::full_like(m.scores, margin), own), m.scores);
  m.excess = hlo::select(m.is_class, zero, positive_part(distance));
  const Value weights = weight_of_class(weight, classes, m.scores.dtype());
  m.weight = hlo::divide(weights, hlo::full_like(weights, static_cast<double>(num_classes)));
  return m;
}

Value multi_margin_loss(Context& context, Value self, Value target, std::int64_t p, double margin,
                        const MaybeValue& weight, std::int64_t reduction) {
  const Margins m = margins_of(at_least_1d(self), target, p, margin, weight);
  const Value terms = p == 1 ? m.excess : hlo::multiply(m.excess, m.excess);
  const Value losses = hlo::multiply(reduce_sum(terms, {class_dim(m.scores)}), m.weight);
  return convert(as_losses(reduce_losses(context, losses, reduction), target, reduction),
                 self.dtype());
}

Value multi_margin_loss_backward(Value grad_output, Value self, Value target, std::int64_t p,
                                 double margin, const MaybeValue& weight, std::int64_t reduction) {
  const Margins m = margins_of(at_least_1d(self), target, p, margin, weight);
  const Dims& dims = m.scores.dims();
  const std::int64_t dim = class_dim(m.scores);
  Value grad = convert(grad_output, m.scores.dtype());
  if (grad.num_elements() == 1) grad = hlo::reshape(grad, {});
  const Value per_sample =
      hlo::multiply(gradient_of_losses(grad, m.weight.dims(), reduction), m.weight);
  const Value is_active = convert(hlo::gt(m.excess, hlo::full_like(m.excess, 0)), grad.dtype());
  const Value slope = p == 1 ? is_active : hlo::multiply(hlo::full_like(m.excess, 2), m.excess);
  const Value others = hlo::multiply(slope, spread(per_sample, dims, {dim}));
  const Value own = spread(hlo::negate(reduce_sum(others, {dim})), dims, {dim});
  return convert(hlo::reshape(hlo::select(m.is_class, own, others), self.dims()), self.dtype());
}

// ---- Margin over several labels -----------------------------------------------------------------

// With every row as (sample, class): `labels` are those before the first negative one.
struct Labels {
  Value scores;     // (sample, class)
  Value is_label;   // (sample, position, class): the class stands at this position of the labels
  Value is_target;  // (sample, class)
  // (sample, position, class): 1 - score of the label at the position + score of the class, where
  // positive, the position has a label, and the class is none.
  Value excess;
  double scale;  // one over the number of classes
};

Labels labels_of(Value self, Value target) {
  base::check(self.rank() <= 2 && (self.rank() == 0 || self.dim(self.rank() - 1) > 0),
              "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ",
              base::to_string(self.dims()));
  base::check(self.num_elements() == target.num_elements() && target.rank() <= self.rank(),
              "inconsistent target size: ", base::to_string(target.dims()),
              " for input of size: ", base::to_string(self.dims()));
  const std::int64_t classes = self.rank() == 0 ? 1 : self.dim(self.rank() - 1);
  const Dims rows = {self.num_elements() / classes, classes};
  const Dims cube = {rows[0], classes, classes};
  Labels l;
  l.scale = 1.0 / static_cast<double>(classes);
  l.scores = hlo::reshape(convert(self, accumulate_dtype(self.dtype())), rows);
  const Value label = hlo::reshape(convert(target, DType::kInt32), rows);
  // A position has a label if no position up to it is negative.
  hlo::Builder& builder = self.builder();
  const Value position = hlo::iota(builder, {DType::kInt32, rows}, 1);
  const Value end = reduce_min(hlo::select(hlo::lt(label, hlo::full_like(label, 0)), position,
                                           hlo::full_like(position, classes)),
                               {1});
  const Value has_label = hlo::lt(position, spread(end, rows, {1}));
  const Value known = hlo::select(has_label, label, hlo::full_like(label, -1));
  const Value class_index = hlo::iota(builder, {DType::kInt32, cube}, 2);
  l.is_label = hlo::eq(class_index, hlo::broadcast_in_dim(known, cube, {0, 1}));
  l.is_target = reduce_or(l.is_label, {1});
  const Value scores = hlo::broadcast_in_dim(l.scores, cube, {0, 2});
  const Value zero = hlo::full_like(scores, 0);
  const Value of_label = spread(reduce_sum(hlo::select(l.is_label, scores, zero), {2}), cube, {2});
  const Value distance = hlo::add(hlo::subtract(hlo::full_like(scores, 1), of_label), scores);
  const Value applies = hlo::and_(hlo::broadcast_in_dim(has_label, cube, {0, 1}),
                                  hlo::not_(hlo::broadcast_in_dim(l.is_target, cube, {0, 2})));
  l.excess = hlo::select(applies, positive_part(distance), zero);
  return l;
}

Pair multilabel_margin_loss(Context& context, Value self, Value target, std::int64_t reduction) {
  base::check(target.dtype() == DType::kInt64, "expected scalar type Long but found ",
              scalar_type_name(target.dtype()));
  const Labels l = labels_of(self, target);
  const Value sums = reduce_sum(l.excess, {1, 2});
  const Value losses = hlo::multiply(sums, hlo::full_like(sums, l.scale));
  Value output = reduce_losses(context, losses, reduction);
  if (self.rank() < 2) output = hlo::reshape(output, {});
  return {convert(output, self.dtype()),
          hlo::reshape(convert(l.is_target, self.dtype()), target.dims())};
}

Value multilabel_margin_loss_backward(Value grad_output, Value self, Value target,
                                      std::int64_t reduction, Value /*is_target*/) {
  const Labels l = labels_of(self, target);
  const DType dtype = l.scores.dtype();
  Value grad = convert(grad_output, dtype);
  if (self.rank() < 2) grad = hlo::reshape(grad, {});
  grad = gradient_of_losses(grad, {l.scores.dim(0)}, reduction);
  grad = hlo::multiply(grad, hlo::full_like(grad, l.scale));
  const Value active = convert(hlo::gt(l.excess, hlo::full_like(l.excess, 0)), dtype);
  const Value raised = reduce_sum(active, {1});
  const Value per_label = spread(reduce_sum(active, {2}), l.excess.dims(), {2});
  const Value lowered =
      reduce_sum(hlo::select(l.is_label, per_label, hlo::full_like(per_label, 0)), {1});
  const Value slope = hlo::subtract(raised, lowered);
  const Value result = hlo::multiply(slope, spread(grad, slope.dims(), {1}));
  return convert(hlo::reshape(result, self.dims()), self.dtype());
}

}  // namespace

void register_class_loss(Registry& m) {
  register_nll(m);
  m.impl("multi_margin_loss", multi_margin_loss);
  m.impl("multi_margin_loss_backward", multi_margin_loss_backward);
  m.impl("multilabel_margin_loss_forward", multilabel_margin_loss);
  m.impl("multilabel_margin_loss_backward", multilabel_margin_loss_backward);
}

}  // namespace torch_xla::ops
