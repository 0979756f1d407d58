// What of a graph are sizes: every integer of its calls and of its arrays' shapes, apart from the
// graph's form, which is all the rest. Graphs of one form may share a program in which some of
// these integers are data (runtime/bounded_graphs.h).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "graph/walk.h"

namespace torch_xla::graph {

struct Sizes {
  // Of the operators, how they are connected, dtypes, ranks, and arguments that are no integers;
  // and which dimensions are 0 or 1, of which there is nothing to compute or which broadcast.
  base::Hash128 form;
  // The leaves' dimensions; then for each step the integers of its arguments and the dimensions of
  // its results. Traces of one form have as many.
  std::vector<std::int64_t> integers;
  // Which of them are dimensions.
  std::vector<bool> is_dimension;
};

// None of a graph with regions: what is in them has sizes of its own. Of calls see inlined.h.
std::optional<Sizes> sizes_of(const Trace& trace);

// Calls `visit` with a reference to each integer of an argument: sizes, dimensions, numbers that do
// not travel with the node.
template <typename Attr, typename F>
void for_each_integer(Attr& attribute, const F& visit) {
  const auto visit_number = [&visit](auto& number) {
    if (number.slot >= 0 || !number.constant.is_int()) return;
    auto value = number.constant.template to<std::int64_t>();
    const std::int64_t before = value;
    visit(value);
    if constexpr (!std::is_const_v<Attr>) {
      if (value != before) number.constant = base::Scalar(value);
    }
  };
  if (auto* const dims = std::get_if<base::Dims>(&attribute)) {
    for (auto& dim : *dims) visit(dim);
  } else if (auto* const number = std::get_if<Number>(&attribute)) {
    visit_number(*number);
  } else if (auto* const numbers = std::get_if<std::vector<Number>>(&attribute)) {
    for (auto& of_list : *numbers) visit_number(of_list);
  }
}

}  // namespace torch_xla::graph
