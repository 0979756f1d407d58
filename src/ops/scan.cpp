// Scans by blocks: XLA's own rule for a window as long as the dimension has blocks of 128, which
// costs an addition per element of the block, and fails for more than one operand.
#include "ops/scan.h"

#include <utility>

#include "hlo/partitioned.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// The length of the blocks that are scanned by a window each. The work per element grows with it,
// the number of operations shrinks.
constexpr std::int64_t kBlock = 8;

hlo::Values scan_by_window(const hlo::Values& inputs, const hlo::Values& identities,
                           std::int64_t dim, const hlo::Region& combine) {
  const auto axis = static_cast<std::size_t>(dim);
  const std::int64_t size = inputs[0].dim(dim);
  hlo::Window window;
  window.dimensions = Dims(inputs[0].dims().size(), 1);
  window.dimensions[axis] = size;
  window.padding = hlo::Padding(inputs[0].dims().size(), {0, 0});
  window.padding[axis] = {size - 1, 0};
  return hlo::reduce_window(inputs, identities, window, combine);
}

// Adds `low` elements of padding before and `high` after along `dim`; negative takes away.
Value pad_along(Value x, Value padding, std::int64_t dim, std::int64_t low, std::int64_t high) {
  Dims before(x.dims().size());
  Dims after = before;
  before[static_cast<std::size_t>(dim)] = low;
  after[static_cast<std::size_t>(dim)] = high;
  return hlo::pad(x, padding, before, after);
}

// Each step combines with what stands twice as far before.
hlo::Values scan_by_doubling(hlo::Values values, const hlo::Values& identities, std::int64_t dim,
                             const hlo::Region& combine) {
  const std::int64_t size = values[0].dim(dim);
  for (std::int64_t distance = 1; distance < size; distance *= 2) {
    hlo::Values operands;
    for (std::size_t i = 0; i < values.size(); ++i) {
      operands.push_back(pad_along(values[i], identities[i], dim, distance, -distance));
    }
    operands.insert(operands.end(), values.begin(), values.end());
    values = combine(operands);
  }
  return values;
}

Dims with_size(Dims dims, std::int64_t dim, std::int64_t size) {
  dims[static_cast<std::size_t>(dim)] = size;
  return dims;
}

}  // namespace

hlo::Values scan(const hlo::Values& inputs, const hlo::Values& identities, std::int64_t dim,
                 const hlo::Region& combine) {
  const Dims& dims = inputs[0].dims();
  const std::int64_t size = inputs[0].dim(dim);
  if (size <= 1 || inputs[0].num_elements() == 0) return inputs;
  // The partitioner can't divide windows over several operands (hlo::reduce_window).
  if (hlo::is_partitioned() && inputs.size() > 1) {
    return scan_by_doubling(inputs, identities, dim, combine);
  }
  if (size <= 2 * kBlock) return scan_by_window(inputs, identities, dim, combine);
  const std::int64_t blocks = (size + kBlock - 1) / kBlock;
  Dims blocked = with_size(dims, dim, blocks);
  blocked.insert(blocked.begin() + dim + 1, kBlock);
  hlo::Values local;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value padded = pad_along(inputs[i], identities[i], dim, 0, blocks * kBlock - size);
    local.push_back(hlo::reshape(padded, blocked));
  }
  local = scan_by_window(local, identities, dim + 1, combine);
  hlo::Values totals;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value last = pad_along(local[i], identities[i], dim + 1, 1 - kBlock, 0);
    totals.push_back(hlo::reshape(last, with_size(dims, dim, blocks)));
  }
  totals = scan(totals, identities, dim, combine);
  hlo::Values operands;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value carried = pad_along(totals[i], identities[i], dim, 1, -1);
    operands.push_back(spread(carried, blocked, {dim + 1}));
  }
  operands.insert(operands.end(), local.begin(), local.end());
  hlo::Values results = combine(operands);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value flat = hlo::reshape(results[i], with_size(dims, dim, blocks * kBlock));
    results[i] = pad_along(flat, identities[i], dim, 0, size - blocks * kBlock);
  }
  return results;
}

}  // namespace torch_xla::ops
