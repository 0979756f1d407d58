// `_grouped_mm`: products of groups of rows, or of columns, whose sizes are data. A loop goes over
// tiles of fixed size, each within one group, so that no shape depends on the data and the work is
// that of the rows, rounded up to a tile in each group. PyTorch's requirements on alignment and
// strides are left out: they are those of its kernels.
#include <algorithm>
#include <bit>
#include <functional>

#include "hlo/in_place.h"
#include "ops/expression.h"
#include "ops/linear_algebra.h"
#include "ops/matrix_batch.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

using base::check;

// Rows of a product that keep its kernel busy.
constexpr std::uint64_t kMaxTile = 256;

// The tile at `start`, of which those places count that are inside the group.
struct Tile {
  Value group, start, is_inside;
};
using TileStep = std::function<Value(const Tile& tile, Value out)>;

std::int64_t tile_size(std::int64_t length, std::int64_t groups) {
  const auto mean = static_cast<std::uint64_t>(length / groups + 1);
  return std::min(length, static_cast<std::int64_t>(std::min(std::bit_ceil(mean), kMaxTile)));
}

// Runs `step` for the tiles of consecutive groups, which end at `ends`, each on the last's result.
Value for_each_tile(Value ends, std::int64_t length, std::int64_t size, Value out,
                    const TileStep& step) {
  hlo::Builder& builder = ends.builder();
  const auto number = [&](std::int64_t n) {
    return scalar(builder, DType::kInt32, static_cast<double>(n));
  };
  const hlo::Values result = hlo::while_(
      {number(0), number(0), out},
      [&](std::span<const Value> v) { return less(v[0], static_cast<double>(ends.dim(0))); },
      [&](std::span<const Value> v) -> hlo::Values {
        const Value group = v[0];
        const Value begin = v[1];
        const Value bound = hlo::reshape(hlo::dynamic_slice(ends, {group}, {1}), {});
        const Value end = hlo::clamp(number(0), bound, number(length));
        // The last tile may overlap what is done.
        const Value start = min(begin, static_cast<double>(length - size));
        const Value place = position(builder, {size}, 0) + start;
        const Value next = start + static_cast<double>(size);
        const Value is_last = less_equal(end, next);
        const Tile tile{group, start, greater_equal(place, begin) & less(place, end)};
        return {where(is_last, group + 1.0, group), where(is_last, end, next), step(tile, v[2])};
      });
  return result[2];
}

// Rows [m, k] in groups, each times the matrix of its group [g, k, n]; zeros beyond the last end.
Value rows_by_group(Value rows, Value matrices, Value ends) {
  const Dims dims = {rows.dim(0), matrices.dim(2)};
  const Value out = hlo::full(rows.builder(), {rows.dtype(), dims}, 0);
  if (out.num_elements() == 0 || rows.dim(1) == 0 || ends.dim(0) == 0) return out;
  const Value zero = scalar(rows.builder(), DType::kInt32, 0);
  const std::int64_t size = tile_size(rows.dim(0), ends.dim(0));
  return for_each_tile(ends, rows.dim(0), size, out, [&](const Tile& tile, Value state) {
    const Dims part = {size, dims[1]};
    const Value lhs = hlo::dynamic_slice(rows, {tile.start, zero}, {size, rows.dim(1)});
    const Value rhs = hlo::dynamic_slice(matrices, {tile.group, zero, zero},
                                         {1, matrices.dim(1), matrices.dim(2)});
    const Value product =
        matrix_product(lhs, hlo::reshape(rhs, {matrices.dim(1), matrices.dim(2)}));
    const Value old = hlo::dynamic_slice(state, {tile.start, zero}, part);
    const Value is_inside = hlo::broadcast_in_dim(tile.is_inside, part, {0});
    const Value now = hlo::select(is_inside, product, old);
    return hlo::update_slice(state, now, {tile.start, zero});
  });
}

// A product [m, n] for each group of the columns of `lhs` and the rows of `rhs`.
Value product_of_each_group(Value lhs, Value rhs, Value ends) {
  const std::int64_t length = std::min(lhs.dim(1), rhs.dim(0));
  const Dims dims = {ends.dim(0), lhs.dim(0), rhs.dim(1)};
  const Value out = hlo::full(lhs.builder(), {accumulate_dtype(lhs.dtype()), dims}, 0);
  if (out.num_elements() == 0 || length == 0) return convert(out, lhs.dtype());
  const Value zero = scalar(lhs.builder(), DType::kInt32, 0);
  const std::int64_t size = tile_size(length, ends.dim(0));
  const auto inside = [&](const Tile& tile, Value part, std::int64_t dim) {
    const Value is_inside = hlo::broadcast_in_dim(tile.is_inside, part.dims(), {dim});
    return hlo::select(is_inside, part, full_like(part, 0));
  };
  const TileStep step = [&](const Tile& tile, Value state) {
    const Value columns = hlo::dynamic_slice(lhs, {zero, tile.start}, {dims[1], size});
    const Value rows = hlo::dynamic_slice(rhs, {tile.start, zero}, {size, dims[2]});
    const Value product =
        contract(inside(tile, columns, 1), inside(tile, rows, 0), {{}, {}, {1}, {0}});
    const Dims part = {1, dims[1], dims[2]};
    const Value sum =
        hlo::dynamic_slice(state, {tile.group, zero, zero}, part) + hlo::reshape(product, part);
    return hlo::update_slice(state, sum, {tile.group, zero, zero});
  };
  return convert(for_each_tile(ends, length, size, out, step), lhs.dtype());
}

void check_operands(Value self, Value mat2, const std::optional<Value>& offs) {
  const DType dtype = self.dtype();
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
        "Expected mat_a to be Float32, BFloat16 or Float16 matrix, got ", scalar_type_name(dtype));
  check(self.rank() == 2 || self.rank() == 3, "mat_a has to be 2 or 3d");
  check(mat2.rank() == 2 || mat2.rank() == 3, "mat_b has to be 2 or 3d");
  check(self.rank() + mat2.rank() == 4 || self.dim(self.rank() - 1) == mat2.dim(mat2.rank() - 2),
        "contraction dimension of mat_a and mat_b must match");
  check(offs.has_value() == (self.rank() == 2 || mat2.rank() == 2),
        "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  if (!offs.has_value()) {
    check(self.dim(0) == mat2.dim(0), "batched dimension has to match");
    return;
  }
  check(offs->rank() == 1, "offs has to be 1D");
  check(offs->dtype() == DType::kInt32, "Offsets have to be int32");
  for (const Value& matrices : {self, mat2}) {
    check(matrices.rank() == 2 || matrices.dim(0) == offs->dim(0),
          "matrix batch sizes have to match");
  }
}

Value grouped_mm(Value self, Value mat2, std::optional<Value> offs, std::optional<Value> bias,
                 std::optional<DType> out_dtype) {
  check_operands(self, mat2, offs);
  check(!bias.has_value(), "Bias not supported yet");
  check(out_dtype.value_or(self.dtype()) == self.dtype(),
        "Grouped gemm output dtype must match `mat_a` dtype");
  check_product_dtypes(self, mat2);
  if (!offs.has_value()) return matrix_product(self, mat2);
  if (mat2.rank() == 3) return rows_by_group(self, mat2, *offs);
  if (self.rank() == 2) return product_of_each_group(self, mat2, *offs);
  // Groups of columns are groups of rows of what is transposed.
  return matrix_transpose(rows_by_group(matrix_transpose(mat2), matrix_transpose(self), *offs));
}

}  // namespace

void register_grouped_products(Registry& m) { m.impl("_grouped_mm", grouped_mm); }

}  // namespace torch_xla::ops
