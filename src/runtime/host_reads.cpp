// Which reads these are.
#include "runtime/host_reads.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "runtime/host_kernels.h"
#include "runtime/observe.h"
#include "runtime/plan.h"

namespace torch_xla::runtime {
namespace {

constexpr std::size_t kMaxSteps = 48;
constexpr std::int64_t kMaxElements = 4096;

HostEvaluation evaluation = nullptr;

bool is_small(const base::Shape& shape) {
  return base::is_integral(shape.dtype) && shape.num_elements() <= kMaxElements;
}

bool is_small(const graph::Trace::Step& step) {
  const graph::Entry& entry = *step.node->entry();
  return entry.op->region == nullptr && !entry.op->is_write &&
         std::ranges::all_of(entry.outputs, [](const graph::TensorType* type) {
           return type != nullptr && is_small(type->shape);
         });
}

// Values may be kept in another dtype than they have.
bool is_kept_as_it_is(const Plan& plan, std::size_t root) {
  const graph::Source& source = plan.trace.roots[root];
  return !source.is_leaf &&
         plan.outputs[root]->shape() ==
             plan.trace.steps[source.index].node->entry()->outputs[source.output]->shape;
}

bool is_small(const Plan& plan) {
  const graph::Trace& trace = plan.trace;
  for (std::size_t root = 0; root < trace.roots.size(); ++root) {
    if (!is_kept_as_it_is(plan, root)) return false;
  }
  return !trace.steps.empty() && trace.steps.size() <= kMaxSteps &&
         std::ranges::all_of(trace.leaves,
                             [](const graph::DataPtr& leaf) { return is_small(leaf->shape()); }) &&
         std::ranges::all_of(trace.steps,
                             [](const graph::Trace::Step& step) { return is_small(step); });
}

std::vector<std::vector<std::byte>> evaluate(const graph::Trace& trace) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Download> downloads;
  std::vector<HostArray> leaves;
  for (const graph::DataPtr& leaf : trace.leaves) {
    memory.emplace_back(static_cast<std::size_t>(leaf->shape().num_bytes()));
    downloads.push_back({static_cast<Array*>(leaf.get()), memory.back().data()});
    leaves.push_back({memory.back().data(), leaf->shape()});
  }
  const ReadsForOperator reads;
  download(downloads);
  return evaluation(trace, leaves);
}

// From here on there is no way back: some of the plan's outputs may have their values.
void give(Array& output, const void* value) noexcept {
  try {
    output.set_uploaded(value);
  } catch (const std::exception&) {
    output.set_failed(std::current_exception());
  }
}

}  // namespace

void set_host_evaluation(HostEvaluation the_evaluation) { evaluation = the_evaluation; }

bool compute_on_host(Device& device, Plan& plan) {
  static base::Counter& count = base::counter("HostRead");
  if (evaluation == nullptr || !base::settings().host_reads() || !has_host_kernels() ||
      device.num_devices() > 1 || is_observed() || !is_small(plan)) {
    return false;
  }
  std::vector<std::vector<std::byte>> values;
  try {
    values = evaluate(plan.trace);
  } catch (const base::Error&) {
    return false;  // the program's launch will tell, or go well
  }
  if (values.empty()) return false;
  plan.place = {};
  for (std::size_t i = 0; i < values.size(); ++i) give(*plan.outputs[i], values[i].data());
  count.add();
  return true;
}

}  // namespace torch_xla::runtime
