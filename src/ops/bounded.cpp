// The calls of a bounded program: integers are read in the order in which `graph::sizes_of` wrote
// them.
#include "ops/bounded.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "graph/sizes.h"

namespace torch_xla::ops {
namespace {

bool has_variable(const Variables& variables) {
  return std::ranges::any_of(variables, [](std::int32_t variable) { return variable >= 0; });
}

double elements(const graph::TensorType* type) {
  return type == nullptr ? 0 : static_cast<double>(type->shape.num_elements());
}

bool is_product(std::string_view name) {
  if (name.starts_with("cumm")) return false;
  constexpr std::string_view kParts[] = {"mm", "matmul", "conv", "linear", "attention", "mv"};
  return std::ranges::any_of(kParts,
                             [&](std::string_view part) { return name.find(part) != name.npos; });
}

}  // namespace

BoundedTrace::BoundedTrace(const graph::Trace& trace, const Bounds& bounds)
    : trace_(trace), bounds_(bounds) {
  for (const graph::DataPtr& leaf : trace.leaves)
    leaves_.push_back(take(leaf->shape().dims.size()));
  calls_.reserve(trace.steps.size());
  for (const graph::Trace::Step& step : trace.steps) add_call(step);
  base::internal_check(next_ == bounds.variables.size(), "a graph of ", next_, " integers has ",
                       bounds.variables.size(), " that are variables or not");
}

Variables BoundedTrace::take(std::size_t count) {
  const auto first = bounds_.variables.begin() + static_cast<std::ptrdiff_t>(next_);
  next_ += count;
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

Variables BoundedTrace::variables_of(const graph::Source& source) const {
  return source.is_leaf ? leaves_[source.index] : calls_[source.index].outputs[source.output];
}

base::Dims BoundedTrace::with_bounds(base::Dims dims, const Variables& variables) const {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (variables[i] >= 0) dims[i] = bounds_.bounds[static_cast<std::size_t>(variables[i])];
  }
  return dims;
}

void BoundedTrace::add_call(const graph::Trace::Step& step) {
  BoundedCall call;
  call.entry = *step.node->entry();
  graph::Entry& entry = call.entry;
  for (graph::Attribute& arg : entry.args) {
    Variables& of_arg = call.args.emplace_back();
    graph::for_each_integer(arg, [&](std::int64_t& value) {
      const std::int32_t variable = take(1)[0];
      of_arg.push_back(variable);
      if (variable >= 0) value = bounds_.bounds[static_cast<std::size_t>(variable)];
    });
  }
  const auto bound = [&](const graph::TensorType*& type, const Variables& variables) {
    if (!has_variable(variables)) return;
    base::Shape shape = type->shape;
    shape.dims = with_bounds(std::move(shape.dims), variables);
    type = graph::intern_contiguous(std::move(shape));
  };
  for (std::size_t i = 0; i < entry.operands.size(); ++i) {
    call.operands.push_back(variables_of(trace_.sources[step.first_source + i]));
    bound(entry.operands[i], call.operands.back());
  }
  for (const graph::TensorType*& type : entry.outputs) {
    call.outputs.push_back(type == nullptr ? Variables() : take(type->shape.dims.size()));
    if (type != nullptr) bound(type, call.outputs.back());
  }
  call.is_bounded = std::ranges::any_of(call.args, has_variable) ||
                    std::ranges::any_of(call.operands, has_variable) ||
                    std::ranges::any_of(call.outputs, has_variable);
  calls_.push_back(std::move(call));
}

base::Dims BoundedTrace::leaf_dims(std::size_t leaf) const {
  return with_bounds(trace_.leaves[leaf]->shape().dims, leaves_[leaf]);
}

double BoundedTrace::work() const {
  double sum = 0;
  for (const BoundedCall& call : calls_) {
    const graph::Entry& entry = call.entry;
    double read = 0;
    double written = 0;
    for (const graph::TensorType* type : entry.operands) read += elements(type);
    for (const graph::TensorType* type : entry.outputs) written += elements(type);
    sum += read + written;
    if (entry.operands.size() >= 2 && is_product(entry.op->name)) {
      // m k, k n and m n elements have m k n products.
      const auto n = entry.operands.size() - 1;
      const double largest = std::max(elements(entry.operands[1]), elements(entry.operands[n]));
      sum += std::sqrt(elements(entry.operands[0]) * largest * written);
    }
  }
  return sum;
}

base::Dims BoundedTrace::root_dims(std::size_t root) const {
  const graph::Source& source = trace_.roots[root];
  if (source.is_leaf) return leaf_dims(source.index);
  return calls_[source.index].entry.outputs[source.output]->shape.dims;
}

}  // namespace torch_xla::ops
