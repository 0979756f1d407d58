// The one key function. Every list goes in with its length, so that none can pass for another.
#include "runtime/program_spec.h"

#include <cstdint>
#include <string_view>

namespace torch_xla::runtime {
namespace {

void add_shardings(base::Hasher& hasher, const std::vector<const base::Sharding*>& shardings) {
  hasher.add(shardings.size());
  for (const base::Sharding* const sharding : shardings) {
    hasher.add(sharding == nullptr ? base::Hash128() : sharding->key());
  }
}

template <typename Numbers>
void add_numbers(base::Hasher& hasher, const Numbers& numbers) {
  hasher.add(numbers.size());
  for (const auto number : numbers) hasher.add(static_cast<std::uint64_t>(number));
}

}  // namespace

base::Hash128 key_of(const ProgramSpec& spec) {
  base::Hasher hasher;
  hasher.add(spec.program);
  hasher.add(spec.options);
  hasher.add(spec.donations.size());
  for (const ops::Donation& donation : spec.donations) {
    hasher.add(static_cast<std::uint64_t>(donation.root) << 32 | donation.leaf);
  }
  add_shardings(hasher, spec.inputs);
  add_shardings(hasher, spec.results);
  hasher.add(static_cast<std::uint64_t>(spec.placement.num_partitions));
  add_numbers(hasher, spec.placement.device_assignment);
  hasher.add(spec.replica_groups.size());
  for (const auto& [name, rows] : spec.replica_groups) {
    hasher.add(std::string_view(name));
    hasher.add(rows.size());
    for (const base::Dims& row : rows) add_numbers(hasher, row);
  }
  hasher.add(spec.may_be_quick ? 1 : 0);
  return hasher.finish();
}

}  // namespace torch_xla::runtime
