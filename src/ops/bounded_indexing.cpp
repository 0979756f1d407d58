// Reads and writes by indices, where there are as many of them, or of what they choose from, as
// data say.
#include <algorithm>

#include "ops/at.h"
#include "ops/bounded_emission.h"

namespace torch_xla::ops {
namespace {

// (self, indices, ...): what lies behind the indices looks at element 0.
void hide_indices(Emission& e) {
  const std::size_t self = e.place(0);
  const std::vector<std::int32_t>& indices = std::get<graph::OperandList>(e.arg(1)).indices;
  for (std::size_t dim = 0; dim < indices.size(); ++dim) {
    if (indices[dim] < 0) continue;
    const std::size_t place = at(indices[dim]);
    e.require(place != self && base::is_integral(e.operand(place).dtype()) &&
              e.operand(place).dtype() != DType::kBool &&
              e.operand(place).dtype() != DType::kUInt8);
    // What counts from the end does so from that of the elements.
    if (const std::int32_t variable = e.variables(self)[dim]; variable != kNoVariable) {
      e.require(std::ranges::count(indices, indices[dim]) == 1);
      Value& index = e.operand(place);
      const Value size =
          hlo::broadcast_in_dim(convert(e.size(variable), index.dtype()), index.dims(), {});
      const Value is_negative = hlo::lt(index, hlo::full_like(index, 0));
      index = hlo::select(is_negative, hlo::add(index, size), index);
    }
    e.hide(place, e.zero(place));
  }
}

Results index(Emission& e) {
  e.require_fixed();
  hide_indices(e);
  return e.ordinary();
}

// (self, indices, values, accumulate, ...), of one vector of indices: behind it zeros are added.
Results index_put(Emission& e) {
  e.require_fixed();
  const std::vector<std::int32_t>& indices = std::get<graph::OperandList>(e.arg(1)).indices;
  const std::size_t dim =
      at(std::ranges::find_if(indices, [](std::int32_t i) { return i >= 0; }) - indices.begin());
  const std::size_t values = e.place(2);
  Variables expected = e.variables(e.place(0));
  e.require(std::get<graph::Number>(e.arg(3)).constant.to<bool>() &&
            std::ranges::count_if(indices, [](std::int32_t i) { return i >= 0; }) == 1 &&
            values != e.place(0) && static_cast<std::int32_t>(values) != indices[dim]);
  const Variables& index = e.variables(at(indices[dim]));
  e.require(index.size() == 1);
  expected[dim] = index[0];
  e.require(e.variables(values) == expected);
  hide_indices(e);
  e.hide(values, e.zero(values));
  return e.ordinary();
}

// (self, dim, index, ...)
Results index_along(Emission& e) {
  e.require_fixed();
  e.require(e.place(2) != e.place(0));
  e.hide(e.place(2), e.zero(e.place(2)));
  return e.ordinary();
}

// (self, dim, index, source): nothing behind the elements may be written.
Results index_copy(Emission& e) {
  e.require_fixed();
  const Variables& source = e.variables(e.place(3));
  e.require(e.is_fixed(e.place(2)) && !source.empty() &&
            source[at(e.dim_of_first(1))] == kNoVariable);
  return e.ordinary();
}

}  // namespace

const Rules& indexing_rules() {
  static const Rules table = {
      {"index.Tensor", index},       {"index_put", index_put}, {"_index_put_impl", index_put},
      {"index_select", index_along}, {"gather", index_along},  {"index_copy", index_copy},
  };
  return table;
}

}  // namespace torch_xla::ops
