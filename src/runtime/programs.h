// The programs of one client: from what is to be computed to its executable, which is in memory, on
// the disk, or compiled now. Next: `program_spec.h` for what a program is known by,
// `compile_cache.h` and `persistent_cache.h` for where it is kept, `compile.h` for the compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "graph/walk.h"
#include "runtime/bounded_graphs.h"
#include "runtime/compile_cache.h"
#include "runtime/graph_cuts.h"
#include "runtime/layers.h"
#include "runtime/persistent_cache.h"
#include "runtime/program_spec.h"
#include "runtime/tiers.h"

namespace torch_xla::runtime {

class Client;
class Device;

// Of a program that reads these arrays of the device: everything but what it computes. Its results
// are whole on each of the device's devices, unless that is changed.
ProgramSpec spec_of(const Device& device, std::span<const graph::DataPtr> inputs,
                    std::span<const ops::Donation> donations = {});
// The same, by the trace whose leaves they are: with the replicas that it meets.
ProgramSpec spec_with_replicas(const Device& device, const graph::Trace& trace,
                               std::span<const ops::Donation> donations = {});

// A program that is there or on its way.
struct FoundProgram {
  CompileCache::Future program;
  base::Hash128 key;
  // When it is there: null or negative if it was not compiled for this.
  std::shared_ptr<const double> compile_seconds = nullptr;
  // Of a bounded program: what its launch is given in the place of the trace's numbers. Those of
  // its calls' regions are among them, and its variables' values.
  std::vector<std::uint64_t> numbers = {};

  bool was_compiled() const { return compile_seconds != nullptr && *compile_seconds >= 0; }
};
// Blocks until it is there, and counts it. Interruptible; throws what the compilation threw.
CompiledProgramPtr await_program(const FoundProgram& found);

// Thread-safe. No lock is held while something is compiled or waited for.
class Programs {
 public:
  // Of the client that has it as a member.
  explicit Programs(Client& client) : client_(client), persistent_cache_(client) {}
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  // Of a graph, with those of its numbers as data that were seen to change, and those as one that
  // never were seen to differ: `spec.program` is found out here. Lowers it in this thread, once it
  // has called `before_compiling`, if the program is new. Throws if it can't be lowered.
  // Where `may_be_bounded`, a graph that came with other sizes before may be given a program for
  // all sizes up to a bound.
  FoundProgram find(const graph::Trace& trace, ProgramSpec spec,
                    const std::function<void()>& before_compiling = {},
                    bool may_be_bounded = false);
  // Of a StableHLO module, for which `spec.program` stands; compiled with all optimizations.
  CompiledProgramPtr find(const std::string& text, ProgramSpec spec);
  // What one of them gave before, or null. Blocks while it is compiled.
  CompiledProgramPtr find(const base::Hash128& key) { return cache_.find(key); }

  GraphCuts& graph_cuts() { return graph_cuts_; }
  LayerCuts& layer_cuts() { return layer_cuts_; }
  PersistentCache& persistent_cache() { return persistent_cache_; }
  std::size_t size() const { return cache_.size(); }
  // Those that run end well.
  void clear() {
    full_compilations_.clear();
    cache_.clear();
    bounded_graphs_.clear();
    graph_cuts_.clear();
    layer_cuts_.clear();
  }
  // At a shutdown: ends what goes on by itself, and drops all programs.
  void close();

 private:
  struct Lowered;

  CompileCache::Compile begin_compiling(const graph::Trace& trace, const ProgramSpec& spec,
                                        const ops::Numbers& numbers,
                                        const std::shared_ptr<double>& seconds,
                                        const ops::Bounds* bounds = nullptr);
  bool find_bounded(const graph::Trace& trace, ProgramSpec spec,
                    const std::function<void()>& before_compiling, FoundProgram& found);
  std::shared_ptr<QuickProgram> quick_program(std::shared_ptr<const Lowered> lowered,
                                              const base::Hash128& key);
  void compile_fully(const Lowered& lowered, const base::Hash128& key) noexcept;

  Client& client_;
  CompileCache cache_;
  BoundedGraphs bounded_graphs_;
  GraphCuts graph_cuts_;
  LayerCuts layer_cuts_;
  FullCompilations full_compilations_;
  PersistentCache persistent_cache_;
};

// How many XLA has compiled since the process began.
std::int64_t num_compiled();

// Whether a number of the program that differs from call to call stays a constant, of a new program
// for each value; by default it becomes data.
void set_constants_stay(bool stay);

// Whether sizes that change, however they do, become bounded in this thread; none: as the settings
// say. Returns what held.
std::optional<bool> set_thread_bounded_sizes(std::optional<bool> are_bounded);

// Whether this process is one of several replicas, whose programs are to be the same though each
// has numbers of its own (seen_numbers.h). They are compiled once, with all optimizations.
void set_is_replica(bool is_one);

// Says whether results must be the same in each run; asked for each launch. Then no program is
// compiled quickly first.
void set_determinism(bool (*is_asked_for)());

}  // namespace torch_xla::runtime
