// A program of one group has its members as replicas. One of several groups has all of the job, of
// which each group's name then stands for several groups.
#include "runtime/replica_programs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "ops/lines.h"
#include "runtime/client.h"
#include "runtime/device.h"

namespace torch_xla::runtime {
namespace {

struct Known {
  std::mutex mutex;
  ReplicaGroupCalls calls;                      // under mutex
  std::map<std::int64_t, std::int32_t> counts;  // of launches, by program, under mutex
};

Known& known() {
  static auto* const instance = new Known();
  return *instance;
}

ReplicaGroupCalls calls() {
  const std::lock_guard lock(known().mutex);
  return known().calls;
}

// Each launch asks, so that no lines are made.
std::set<std::string> groups_of(const graph::Trace& trace) {
  std::set<std::string> groups;
  for (const graph::Trace::Step& step : trace.steps) {
    for (std::string& group : ops::groups_of(*step.node)) groups.insert(std::move(group));
  }
  return groups;
}

// How often programs of that key were launched, as a number that is likely to be no other's.
std::int32_t count_launch(std::int64_t key) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  base::Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(key));
  const std::lock_guard lock(known().mutex);
  hasher.add(static_cast<std::uint64_t>(++known().counts[key]));
  return static_cast<std::int32_t>(hasher.finish().lo % kMost) + 1;
}

}  // namespace

void set_replica_group_calls(ReplicaGroupCalls the_calls) {
  const std::lock_guard lock(known().mutex);
  known().calls = std::move(the_calls);
}

bool run_one_program(const Client& client) { return client.platform() == "tpu"; }

void place_replicas(Client& client, const Device& device, const graph::Trace& trace,
                    ProgramSpec& spec) {
  if (!client.spans_processes() || device.num_devices() > 1) return;
  const std::set<std::string> groups = groups_of(trace);
  if (groups.empty()) return;
  const ReplicaGroupCalls of = calls();
  const std::vector<int>& devices = client.devices_by_process();
  base::Dims replicas = of.members(*groups.begin(), device.ordinal());
  if (groups.size() == 1) {
    base::Dims& numbers = spec.replica_groups[*groups.begin()].emplace_back(replicas.size());
    std::iota(numbers.begin(), numbers.end(), 0);
  } else {
    replicas.resize(devices.size());
    std::iota(replicas.begin(), replicas.end(), 0);
    for (const std::string& group : groups) {
      spec.replica_groups[group] =
          of.partition(group, device.ordinal(), static_cast<int>(devices.size()), true);
    }
  }
  for (const std::int64_t rank : replicas) {
    spec.placement.device_assignment.push_back(devices.at(static_cast<std::size_t>(rank)));
  }
  spec.may_be_quick = false;
}

GraphCut cut_at_groups(Client& client, const Device& device, const graph::Trace& trace) {
  GraphCut cut;
  // Programs that must be alike must be cut alike, which is not known of the others.
  if (!client.spans_processes() || device.num_devices() > 1 || run_one_program(client)) return cut;
  const std::set<std::string> groups = groups_of(trace);
  if (groups.size() < 2) return cut;
  const ReplicaGroupCalls of = calls();
  const auto num_processes = static_cast<int>(client.devices_by_process().size());
  const auto is_partition = [&](const std::string& group) {
    return !of.partition(group, device.ordinal(), num_processes, false).empty();
  };
  if (std::ranges::all_of(groups, is_partition)) return cut;
  std::string before;
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    const std::vector<std::string> own = ops::groups_of(*trace.steps[i].node);
    if (own.empty()) continue;
    if (!before.empty() && own.front() != before) {
      std::vector<graph::Source> read;
      for (const graph::Source& source : sources_of(trace, i)) {
        if (!source.is_leaf) read.push_back(source);
      }
      cut.parts.push_back(values_of(trace, read));
    }
    before = own.back();
  }
  cut.reason = base::str("Cut into ", cut.parts.size() + 1,
                         " programs: groups of the replicas are not of one size");
  return cut;
}

std::vector<ReplicaMeeting> meetings_of(const Client& client, const graph::Trace& trace,
                                        const ProgramSpec& spec) {
  std::vector<ReplicaMeeting> meetings;
  if (spec.replica_groups.empty()) return meetings;
  if (run_one_program(client)) {
    const auto key = static_cast<std::int64_t>(key_of(spec).lo);
    const std::string lines = ops::lines_of(trace, spec.donations);
    for (const auto& [group, rows] : spec.replica_groups) {
      meetings.push_back({group, {key}, {lines}});
    }
    return meetings;
  }
  for (auto& [group, lines] : ops::lines_of_collectives(trace)) {
    ReplicaMeeting meeting{group, {}, {}};
    for (const std::string& line : lines) meeting.keys.push_back(ops::key_of_line(line));
    meeting.lines = std::move(lines);
    meetings.push_back(std::move(meeting));
  }
  return meetings;
}

void ReplicaLaunch::agree(std::size_t i) {
  agreed_[i] += calls().agree(meetings_[i], agreed_[i], device_.ordinal(), true);
}

// Each group in turn: all replicas that have several of them have them in this order.
std::int32_t ReplicaLaunch::begin() {
  for (std::size_t i = 0; i < meetings_.size(); ++i) agree(i);
  for (std::size_t i = 0; i < meetings_.size(); ++i) {
    if (agreed_[i] == meetings_[i].keys.size()) continue;
    rest_ = std::async(std::launch::async, [this] { agree_on_rest(); });
    break;
  }
  return count_launch(meetings_[0].keys[0]);
}

void ReplicaLaunch::finish() {
  if (rest_.valid()) rest_.get();
}

void ReplicaLaunch::agree_on_rest() {
  for (std::size_t i = 0; i < meetings_.size(); ++i) {
    while (agreed_[i] < meetings_[i].keys.size()) agree(i);
  }
}

void ReplicaLaunch::miss() noexcept {
  for (const ReplicaMeeting& meeting : meetings_) {
    try {
      calls().agree(meeting, 0, device_.ordinal(), false);
    } catch (const std::exception&) {
      // The failure that is told is the one that kept it from launching.
    }
  }
}

}  // namespace torch_xla::runtime
