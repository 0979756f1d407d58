// Elementwise operators of three operands: selection, limits, interpolation, and products and
// quotients added to a tensor.
#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

Value where_self(Value condition, Value self, Value other) {
  const DType dtype = condition.dtype();
  base::check(dtype == DType::kBool || dtype == DType::kUInt8,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              scalar_type_name(dtype));
  const Dims dims = broadcast_dims({condition, self, other});
  const DType result = result_type({self, other});
  const auto fit = [&](Value v) { return broadcast_to(convert(v, result), dims); };
  return hlo::select(broadcast_to(convert(condition, DType::kBool), dims), fit(self), fit(other));
}

Value masked_fill(Value self, Value mask, Value value) {
  base::check(mask.dtype() == DType::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ",
              base::dtype_info(mask.dtype()).name);
  base::check(value.rank() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.rank(), " dimension(s).");
  const Dims dims = broadcast_dims({self, mask});
  return hlo::select(broadcast_to(mask, dims), broadcast_to(convert(value, self.dtype()), dims),
                     broadcast_to(self, dims));
}

// ---- Limits -------------------------------------------------------------------------------------

// NaN wins, be it in a limit or in `self`; `max` wins where it is below `min`.
Value clamp(Value self, std::optional<Value> min, std::optional<Value> max) {
  base::check(min.has_value() || max.has_value(),
              "torch.clamp: At least one of 'min' or 'max' must not be None");
  std::vector<Value> operands = {self};
  for (const std::optional<Value>& limit : {min, max}) {
    if (limit.has_value()) operands.push_back(*limit);
  }
  const DType dtype = result_type(operands);
  Dims dims;
  for (const Value& v : operands) dims = broadcast_dims(dims, v.dims());
  const Value x = broadcast_to(convert(self, dtype), dims);
  if (min.has_value() && max.has_value() && min->rank() == 0 && max->rank() == 0) {
    // XLA compares float16 one number after the other. The result is rounded, and with it the
    // limits.
    const DType wide = accumulate_dtype(dtype);
    return convert(hlo::clamp(convert(*min, wide), convert(x, wide), convert(*max, wide)), dtype);
  }
  Value result = x;
  if (min.has_value()) result = ops::max(result, broadcast_to(convert(*min, dtype), dims));
  if (max.has_value()) result = ops::min(result, broadcast_to(convert(*max, dtype), dims));
  return result;
}

}  // namespace

Value lerp(Value self, Value end, Value weight) {
  const DType wide = accumulate_dtype(self.dtype());
  const Dims dims = broadcast_dims({self, end, weight});
  const Value start = broadcast_to(convert(self, wide), dims);
  const Value stop = broadcast_to(convert(end, wide), dims);
  Value w = convert(weight, wide);
  if (w.rank() != 0) w = broadcast_to(w, dims);
  // Counted from the nearer end, so that weights 0 and 1 give the ends exactly. One factor of one
  // product serves both cases: (1 - w) away from `end` is w - 1 from it.
  const Value is_near_start = less(base::is_complex(wide) ? abs(w) : w, 0.5);
  const Value factor = where(is_near_start, w, w - 1.0);
  const Value nearer = where(is_near_start, start, stop);
  return convert(nearer + factor * (stop - start), self.dtype());
}

Value addcmul(Value self, Value tensor1, Value tensor2, const Factor& value) {
  const DType dtype = result_type({self, tensor1, tensor2});
  const std::vector<Value> v = promote_for_formula({self, tensor1, tensor2}, dtype);
  // In PyTorch's order, which overflows where it does.
  const Value scaled = value.is_one ? v[1] : v[1] * convert(value.value, v[1].dtype());
  return convert(v[0] + scaled * v[2], dtype);
}

Value addcdiv(Value self, Value tensor1, Value tensor2, const Factor& value) {
  const DType dtype = result_type({self, tensor1, tensor2});
  const std::vector<Value> v = promote_for_formula({self, tensor1, tensor2}, dtype);
  const Value scaled = value.is_one ? v[1] : v[1] * convert(value.value, v[1].dtype());
  return convert(v[0] + scaled / v[2], dtype);
}

Value clamp_min(Value self, Value min) { return clamp(self, min, std::nullopt); }
Value clamp_max(Value self, Value max) { return clamp(self, std::nullopt, max); }

void register_pointwise_ternary(Registry& m) {
  m.impl("where.self", where_self);
  m.impl({"masked_fill.Scalar", "masked_fill.Tensor"}, masked_fill,
         {.repeats = Repeats::kDeprecated});
  m.impl({"clamp", "clamp.Tensor"}, clamp);
  m.impl({"clamp_min", "clamp_min.Tensor"}, clamp_min);
  m.impl({"clamp_max", "clamp_max.Tensor"}, clamp_max);
  m.impl({"lerp.Tensor", "lerp.Scalar"}, lerp);
  m.impl("addcmul", [](Value self, Value tensor1, Value tensor2, Factor value) {
    return addcmul(self, tensor1, tensor2, value);
  });
  m.impl("addcdiv", [](Value self, Value tensor1, Value tensor2, Factor value) {
    return addcdiv(self, tensor1, tensor2, value);
  });
}

}  // namespace torch_xla::ops
