// Programs whose replicas exchange by the plugin's own collectives: each runs on the device of
// another process. On the CPU there are none, since its collectives do not cross processes: there
// programs call the host in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "graph/walk.h"
#include "runtime/compile_cache.h"
#include "runtime/graph_parts.h"
#include "runtime/program_spec.h"

namespace torch_xla::runtime {

class Client;
class Device;

// What the replicas know of their groups, by the names that programs have for them.
struct ReplicaGroupCalls {
  // The ranks in the job of the members of this device's group.
  std::function<base::Dims(const std::string& group, int device)> members;
  // The same of all processes, each of which has a group of that name and size; else nothing, or
  // with `wait` what it throws when some have made none in time.
  std::function<std::vector<base::Dims>(const std::string& group, int device, int num_processes,
                                        bool wait)>
      partition;
  // Blocks until all members are about to do the first of `meeting.keys` from `start` on, or with
  // `is_well` false tells them that this one won't. Returns how many of these all of them are about
  // to do, one after the other. Throws, on each member alike, where they are about to do different
  // things, or one can't.
  std::function<std::size_t(const ReplicaMeeting& meeting, std::size_t start, int device,
                            bool is_well)>
      agree;
};
void set_replica_group_calls(ReplicaGroupCalls calls);

// Whether replicas must run programs that are alike in everything: where chips meet in one program.
// Elsewhere they meet in its collectives, as NVIDIA's and AMD's do by their libraries.
bool run_one_program(const Client& client);

// Says in the spec where the trace's program runs, if it exchanges something so.
void place_replicas(Client& client, const Device& device, const graph::Trace& trace,
                    ProgramSpec& spec);
// Where a graph is to be cut that exchanges in several groups which are no partitions of the job:
// XLA's programs have each replica in one group of each partition.
GraphCut cut_at_groups(Client& client, const Device& device, const graph::Trace& trace);
// What the replicas of that program compare.
std::vector<ReplicaMeeting> meetings_of(const Client& client, const graph::Trace& trace,
                                        const ProgramSpec& spec);

// One launch of such a program.
class ReplicaLaunch {
 public:
  ReplicaLaunch(const CompiledProgram& program, const Device& device)
      : meetings_(program.meetings), device_(device), agreed_(program.meetings.size()) {}
  bool is_needed() const { return !meetings_.empty(); }

  // Before the launch: blocks until the others are about to do what comes first in it. Returns the
  // number of the launch, where programs are alike the same on all replicas, and not 0.
  std::int32_t begin();
  // Behind it: blocks until they are about to do the rest, which they may launch in other programs.
  void finish();
  // In the place of both, where the launch fails before it.
  void miss() noexcept;

 private:
  void agree(std::size_t i);
  void agree_on_rest();

  const std::vector<ReplicaMeeting>& meetings_;
  const Device& device_;
  std::vector<std::size_t> agreed_;  // of each meeting, how many of its keys
  // The launch may block in what the others do in their next one, for which they ask first.
  std::future<void> rest_;
};

}  // namespace torch_xla::runtime
