// Running what was recorded. `sync` is the barrier: it computes every live tensor of a device.
// `compute` is a read: it computes what some values need, and keeps what others will need again.
// Both walk the graph under the recording lock, then compile if the program is new, and launch it
// without a lock. Neither may be called with a lock or the GIL held. Next: `programs.h` for where
// programs come from, `launch.h` for what one execution is, `inspect.h` for what may be asked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"
#include "runtime/array.h"
#include "runtime/cause.h"
#include "runtime/compile_cache.h"
#include "runtime/device.h"
#include "runtime/kept_arguments.h"

namespace torch_xla::runtime {

// Computes all live tensors and makes them leaves. With `wait`, returns when every value is there,
// and throws the error of this barrier's program. `where` is the user's line, for errors. Throws if
// the program can't be lowered or compiled; then what can be computed without the part that can't
// is computed, and the rest is as after a launch that could not be started (`recovery.h`).
void sync(Device& device, bool wait, std::string_view where = {}, RunKind kind = RunKind::kBarrier);

// The arrays of `values`, in order, computed if they were not; they may still be pending. Values
// read outside the lock may have been dropped by a barrier of another thread since: use the other
// form where that may be.
std::vector<ArrayPtr> compute(Device& device, std::span<const graph::Value> values,
                              std::string_view where = {});
// As above for the values that `read` gives; it is called once, under the recording lock. What it
// adds to `garbage` is freed outside the lock.
using ReadValues = std::function<std::vector<graph::Value>(std::vector<graph::NodeRef>& garbage)>;
std::vector<ArrayPtr> compute(Device& device, const ReadValues& read, std::string_view where = {});

// What is the same in each call of a captured graph.
struct GraphCall {
  base::Hash128 key;  // of the graph, as the walk gives it
  std::string program;
  std::vector<base::Shape> outputs;
  std::shared_ptr<KeptArguments> kept = std::make_shared<KeptArguments>();
};
// As `compute`, for the arguments of a captured graph: then its program is the same whether they
// were there or not. False if all were.
bool compute_arguments(Device& device, const ReadValues& read, std::string_view where);
// As `compute`, for the results of one node that is a captured graph. Returns what later calls need
// to skip recording and walking, where that is right: each argument was there already, no two were
// one array, and the graph carries no numbers of its own.
std::optional<GraphCall> compute_graph(Device& device, const ReadValues& read,
                                       std::string_view where);
// The results of the same graph for the arrays that `read` gives, called under the recording lock:
// it points to the arguments in their order, or returns false when one is still to be computed. It
// is given the arguments that the graph keeps from the last call, and may point to these.
// Returns nothing, and has done nothing, when the long way has to be gone: for that reason, because
// the executable is not there, or because someone observes what runs.
using ReadLeaves =
    std::function<bool(const ArgumentListPtr& kept, std::vector<const graph::DataPtr*>& leaves)>;
std::optional<std::vector<ArrayPtr>> compute_again(Device& device, const GraphCall& call,
                                                   const ReadLeaves& read, std::string_view where);

// Blocks until all work that was queued before has ended. Errors stay with the arrays.
void wait(Device& device);

struct ResultType {
  base::Shape shape;
  const base::Sharding* sharding = nullptr;
};
// Runs a StableHLO module on `inputs`; the results may be pending. `key` must differ between
// modules: each is compiled once. `results` may be empty if each device has all of each result:
// else the plugin knows the parts alone.
std::vector<ArrayPtr> run_program(Device& device, const std::string& text, const base::Hash128& key,
                                  std::vector<graph::DataPtr> inputs,
                                  std::span<const ResultType> results = {});

// Compiles it, so that `run_program` finds it, with inputs that lie as these.
void compile_program(Device& device, const std::string& text, const base::Hash128& key,
                     std::span<const graph::DataPtr> inputs);

// For benchmarks: computes all live tensors with `count` launches of their program, one after the
// other, and returns the seconds of all but the last. Each launch takes the results of the one
// before in the place of the arrays that these replace: what the executable costs by itself.
std::vector<double> time_launches(Device& device, int count);

// Since the process began, on all devices.
struct ComputationStats {
  std::int64_t compiled = 0;
  std::int64_t executed = 0;  // counted when the launch is queued
};
ComputationStats computation_stats();

// What this thread ran last, by a barrier or a read.
struct LastRun {
  base::Hash128 key = {};                        // of the program; zero at first
  std::weak_ptr<const CompiledProgram> program;  // null if it was dropped or replaced
};
const LastRun& last_run();

// Drops all executables; those that are running end well.
void clear_compilation_cache();
// How many executables are kept.
std::size_t compilation_cache_size();

}  // namespace torch_xla::runtime
