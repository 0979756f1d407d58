// The executables in memory, by what they were compiled from, and what was seen of the numbers of
// each graph.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/memory_maps.h"
#include "graph/walk.h"
#include "pjrt/executable.h"
#include "runtime/lru_map.h"
#include "runtime/seen_numbers.h"
#include "runtime/tiers.h"

namespace torch_xla::runtime {

// What the members of one group compare before they launch programs: in turn, keys of what they are
// to do together, with a line about each for people.
struct ReplicaMeeting {
  std::string group;
  std::vector<std::int64_t> keys;
  std::vector<std::string> lines;
};

// An executable and how to feed it: as `ops::Program`, without the text.
struct CompiledProgram {
  std::unique_ptr<pjrt::Executable> executable;
  std::vector<std::uint32_t> floats;
  std::vector<std::uint32_t> ints;
  // Of a bounded program (ops/bounded.h): the dimensions of its parameters for inputs, and of its
  // results. Empty of others: those of the arrays.
  std::vector<base::Dims> input_dims = {};
  std::vector<base::Dims> output_dims = {};
  // Of host memory, that the plugin only asks for when a launch has taken its inputs. 0: it asks in
  // time, or for too little to look first.
  std::size_t working_bytes = 0;
  // What it takes of the host's memory as long as it is kept, roughly.
  std::size_t kept_bytes = 0;
  // Null if it was compiled with all optimizations.
  std::shared_ptr<QuickProgram> quick = nullptr;
  // Of a program that replicas launch together (replica_programs.h): what they compare. Empty of
  // others.
  std::vector<ReplicaMeeting> meetings = {};
};
using CompiledProgramPtr = std::shared_ptr<const CompiledProgram>;

// Thread-safe. No lock is held while compiling, waiting or freeing an executable.
class CompileCache {
 public:
  // `share_of_maps` tells how much of what programs use up beside memory is taken.
  explicit CompileCache(std::function<double()> share_of_maps = base::share_of_memory_maps)
      : share_of_maps_(std::move(share_of_maps)) {}

  using Future = std::shared_future<CompiledProgramPtr>;
  // Without a state when there is none that is compiled or being compiled.
  Future look_up(const base::Hash128& key);

  // As `look_up`, or keeps what is compiled now. Of several threads that ask for one new key, one
  // compiles: it calls `begin`, which takes what it needs of this thread; what that returns
  // compiles. If the thread may be interrupted, compiling goes on in the background, and goes on
  // whoever waits for it; else it is done on return. After a failure the key is new again. The
  // cache must outlive compilations.
  using Compile = std::function<CompiledProgramPtr()>;
  using Begin = std::function<Compile()>;
  Future look_up_or_compile(const base::Hash128& key, const Begin& begin);

  // Whether `await` gives an answer at once.
  static bool is_ready(const Future& program);
  // Blocks until it does. Interruptible, and throws nothing else.
  static void wait(const Future& program);
  // The program, or what its compilation threw.
  static CompiledProgramPtr await(const Future& program) {
    if (!is_ready(program)) wait(program);
    return program.get();
  }
  // Null when `look_up` finds none.
  CompiledProgramPtr find(const base::Hash128& key);
  CompiledProgramPtr find_or_compile(const base::Hash128& key, const Compile& compile) {
    return await(look_up_or_compile(key, [&] { return compile; }));
  }

  // Puts it in the place of the quick program of that key, for later calls; not where that was
  // dropped. Returns whether it did.
  bool replace_quick(const base::Hash128& key, const CompiledProgramPtr& program);

  // What was seen of the numbers of the trace's graph, those of the trace included.
  SeenNumbersPtr see_numbers(const graph::Trace& trace, NumbersOf of);

  void clear();
  std::size_t size() const;

 private:
  using Promise = std::promise<CompiledProgramPtr>;

  // How many programs may stay when one more is inserted. Under mutex_.
  std::size_t room();
  void compile(const base::Hash128& key, Promise& promise, const Compile& compile);
  void fail(const base::Hash128& key, Promise& promise);

  const std::function<double()> share_of_maps_;
  mutable std::mutex mutex_;
  // Since `share_of_maps_` was asked, under mutex_.
  std::size_t num_unchecked_ = 0;
  std::chrono::steady_clock::duration compilation_unchecked_{};
  LruMap<base::Hash128, Future> programs_;         // under mutex_
  LruMap<base::Hash128, SeenNumbersPtr> numbers_;  // by relaxed keys, under mutex_
};

}  // namespace torch_xla::runtime
