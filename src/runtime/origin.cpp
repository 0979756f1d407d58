// Recording again, and handing what was computed to the arrays that were to hold it.
#include "runtime/origin.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ops/regions.h"
#include "runtime/device.h"
#include "runtime/executor.h"

namespace torch_xla::runtime {
namespace {

constexpr std::size_t kMostDepth = 8;

}  // namespace

OriginPtr make_origin(const Device& device, graph::Recipe recipe,
                      std::vector<graph::DataPtr> leaves) {
  if (recipe.is_empty() || device.num_devices() > 1) return nullptr;
  std::size_t depth = 0;
  for (const graph::DataPtr& leaf : leaves) {
    const Array* const array = as_array(leaf);
    if (array == nullptr) return nullptr;  // of a function that is being captured
    if (array->is_failed()) {
      const OriginPtr origin = array->origin().of;
      if (origin == nullptr || origin->depth == kMostDepth) return nullptr;
      depth = std::max(depth, origin->depth + 1);
    }
  }
  const bool meets_others = std::ranges::any_of(
      recipe.entries, [](const graph::Entry* entry) { return ops::exchanges(*entry); });
  if (meets_others) return nullptr;
  return std::make_shared<const Origin>(Origin{std::move(recipe), std::move(leaves), depth});
}

OriginPtr make_origin(const Device& device, graph::Trace trace) {
  std::vector<graph::DataPtr> leaves = std::move(trace.leaves);
  return make_origin(device, graph::recipe_of(std::move(trace)), std::move(leaves));
}

void revive(Device& device, std::span<Array* const> arrays) {
  std::map<OriginPtr, std::vector<Array*>> of_origins;
  for (Array* const array : arrays) {
    // Another thread may have revived it meanwhile.
    if (const OriginPtr origin = array->origin().of) of_origins[origin].push_back(array);
  }
  std::vector<Array*> lost;
  std::vector<graph::Value> values;
  for (const auto& [origin, members] : of_origins) {
    // What they read has failed with them, and that was told with their own error.
    for (const graph::DataPtr& leaf : origin->leaves) static_cast<Array&>(*leaf).set_raised();
    std::vector<graph::Source> roots;
    for (const Array* const array : members) roots.push_back(array->origin().root);
    for (graph::Value& value : graph::record_again(origin->recipe, origin->leaves, roots)) {
      values.push_back(std::move(value));
    }
    lost.insert(lost.end(), members.begin(), members.end());
  }
  const std::vector<ArrayPtr> computed = compute(device, values);
  for (const ArrayPtr& array : computed) array->wait_launched();
  for (std::size_t i = 0; i < lost.size(); ++i) lost[i]->become(*computed[i]);
}

}  // namespace torch_xla::runtime
