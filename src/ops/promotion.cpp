// Type promotion and broadcasting over StableHLO values.
#include "ops/promotion.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

thread_local DType default_float = DType::kFloat32;

bool is_wide_unsigned(DType dtype) {
  return dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

// PyTorch has no integer type to which these and another one would go.
DType promoted_dtype(DType a, DType b) {
  base::check(a == b || !base::is_integral(a) || !base::is_integral(b) ||
                  (!is_wide_unsigned(a) && !is_wide_unsigned(b)),
              "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote ",
              scalar_type_name(a), " and ", scalar_type_name(b));
  return base::promote_types(a, b);
}

// The operands of one priority in PyTorch's result_type: the promotion of those seen so far.
struct Group {
  std::optional<DType> dtype;
  void add(DType d) { dtype = dtype.has_value() ? promoted_dtype(*dtype, d) : d; }
};

int category(DType dtype) {
  switch (base::kind_of(dtype)) {
    case base::DTypeKind::kBool: return 0;
    case base::DTypeKind::kUnsigned:
    case base::DTypeKind::kSigned: return 1;
    case base::DTypeKind::kFloating: return 2;
    case base::DTypeKind::kComplex: return 3;
  }
  return 0;
}

DType combine(const Group& higher, const Group& lower) {
  if (!higher.dtype.has_value()) return *lower.dtype;
  if (!lower.dtype.has_value()) return *higher.dtype;
  if (category(*lower.dtype) <= category(*higher.dtype)) return *higher.dtype;
  // The parts of a complex result have the higher priority's width.
  if (base::is_complex(*lower.dtype) && base::is_floating(*higher.dtype)) {
    return base::complex_dtype(*higher.dtype);
  }
  return promoted_dtype(*higher.dtype, *lower.dtype);
}

template <typename Range>
DType result_type_of(const Range& values) {
  Group dimensioned;
  Group zero_dim;
  Group wrapped;
  for (const Value& v : values) {
    if (is_wrapped_number(v)) {
      wrapped.add(number_dtype(v.dtype()));
    } else if (v.rank() == 0) {
      zero_dim.add(v.dtype());
    } else {
      dimensioned.add(v.dtype());
    }
  }
  Group tensors;
  if (dimensioned.dtype.has_value() || zero_dim.dtype.has_value()) {
    tensors.dtype = combine(dimensioned, zero_dim);
  }
  return combine(tensors, wrapped);
}

Value broadcast_in_dims(Value value, const Dims& dims) {
  Dims mapping(static_cast<std::size_t>(value.rank()));
  std::iota(mapping.begin(), mapping.end(), static_cast<std::int64_t>(dims.size()) - value.rank());
  return hlo::broadcast_in_dim(value, dims, mapping);
}

}  // namespace

DefaultFloat::DefaultFloat(DType dtype) : outer_(std::exchange(default_float, dtype)) {}
DefaultFloat::~DefaultFloat() { default_float = outer_; }
DType DefaultFloat::now() { return default_float; }

DType number_dtype(DType number) {
  if (number == DType::kFloat64) return default_float;
  if (number == DType::kComplex128) return base::complex_dtype(default_float);
  return number;
}

DType result_type(std::initializer_list<Value> values) { return result_type_of(values); }
DType result_type(std::span<const Value> values) { return result_type_of(values); }

DType float_result_type(std::initializer_list<Value> values) {
  const DType dtype = result_type_of(values);
  return base::is_integral(dtype) ? default_float : dtype;
}

Dims broadcast_dims(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims out = longer;
  const std::size_t offset = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    const std::int64_t x = a[a.size() - shorter.size() + i];
    const std::int64_t y = b[b.size() - shorter.size() + i];
    base::check(x == y || x == 1 || y == 1, "The size of tensor a (", x,
                ") must match the size of tensor b (", y, ") at non-singleton dimension ",
                i + offset);
    out[i + offset] = x == 1 ? y : x;
  }
  return out;
}

Dims broadcast_dims(std::initializer_list<Value> values) {
  Dims out;
  for (const Value& v : values) out = broadcast_dims(out, v.dims());
  return out;
}

Value broadcast_to(Value value, const Dims& dims) {
  if (value.dims() == dims) return value;
  base::internal_check(static_cast<std::size_t>(value.rank()) <= dims.size(),
                       "broadcast to fewer dimensions");
  // broadcast_in_dim stretches dimensions of size 1 itself.
  return broadcast_in_dims(value, dims);
}

std::vector<Value> promote_to(std::initializer_list<Value> values, DType dtype) {
  const Dims dims = broadcast_dims(values);
  std::vector<Value> out;
  for (const Value& v : values) out.push_back(broadcast_to(convert(v, dtype), dims));
  return out;
}

std::vector<Value> promote(std::initializer_list<Value> values) {
  return promote_to(values, result_type(values));
}

Value full(hlo::Builder& builder, const Shape& shape, const Scalar& number) {
  if (number.is_complex()) return hlo::full(builder, shape, number.to<std::complex<double>>());
  if (number.is_floating()) return hlo::full(builder, shape, number.to<double>());
  if (number.is_bool()) return hlo::full(builder, shape, number.to<bool>());
  return hlo::full(builder, shape, number.to<std::int64_t>());
}

Value full_like(Value like, const Scalar& number) {
  return full(like.builder(), like.type(), number);
}

Value scalar(hlo::Builder& builder, DType dtype, const Scalar& number) {
  return full(builder, Shape{dtype, {}}, number);
}

Value lowest(hlo::Builder& builder, DType dtype) { return hlo::lowest(builder, Shape{dtype, {}}); }
Value highest(hlo::Builder& builder, DType dtype) {
  return hlo::highest(builder, Shape{dtype, {}});
}

DType accumulate_dtype(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

std::int64_t wrap_dim(std::int64_t dim, std::int64_t rank) {
  const std::int64_t n = std::max<std::int64_t>(rank, 1);
  if (dim < -n || dim >= n) {
    base::fail(base::ErrorKind::kIndex, "Dimension out of range (expected to be in range of [", -n,
               ", ", n - 1, "], but got ", dim, ")");
  }
  return dim < 0 ? dim + n : dim;
}

Dims wrap_dims(const Dims& dims, std::int64_t rank) {
  Dims out;
  if (dims.empty()) {
    out.resize(static_cast<std::size_t>(rank));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  for (const std::int64_t dim : dims) {
    const std::int64_t wrapped = wrap_dim(dim, rank);
    base::check(std::find(out.begin(), out.end(), wrapped) == out.end(), "dim ", wrapped,
                " appears multiple times in the list of dims");
    if (rank > 0) out.push_back(wrapped);
  }
  return out;
}

Dims all_but(std::int64_t dim, std::int64_t rank) {
  Dims out;
  for (std::int64_t i = 0; i < rank; ++i) {
    if (i != dim) out.push_back(i);
  }
  return out;
}

namespace {

std::ptrdiff_t num_leading(const Dims& dims, std::size_t count) {
  if (dims.size() < count) {
    base::fail(base::ErrorKind::kInvalidArgument, "expected at least ", count,
               " dimensions, but got a tensor of sizes ", base::to_string(dims));
  }
  return static_cast<std::ptrdiff_t>(dims.size() - count);
}

}  // namespace

Dims leading_dims(const Dims& dims, std::size_t count) {
  return Dims(dims.begin(), dims.begin() + num_leading(dims, count));
}

Dims trailing_dims(const Dims& dims, std::size_t count) {
  return Dims(dims.begin() + num_leading(dims, count), dims.end());
}

}  // namespace torch_xla::ops
