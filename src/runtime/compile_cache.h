// The executables in memory, by what they were compiled from, and which constants of a graph were
// seen to change.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/memory_maps.h"
#include "ops/lower.h"
#include "pjrt/executable.h"
#include "runtime/lru_map.h"

namespace torch_xla::runtime {

// An executable and how to feed it: as `ops::Program`, without the text.
struct CompiledProgram {
  std::unique_ptr<pjrt::Executable> executable;
  std::vector<std::uint32_t> promoted_floats;
  std::vector<std::uint32_t> promoted_ints;
};
using CompiledProgramPtr = std::shared_ptr<const CompiledProgram>;

// Thread-safe. No lock is held while compiling, waiting or freeing an executable.
class CompileCache {
 public:
  // `share_of_maps` tells how much of what programs use up beside memory is taken.
  explicit CompileCache(std::function<double()> share_of_maps = base::share_of_memory_maps)
      : share_of_maps_(std::move(share_of_maps)) {}

  // Null when there is none that is compiled or being compiled; waits for one being compiled, and
  // throws what its compilation threw.
  CompiledProgramPtr find(const base::Hash128& key);

  // As `find`, or calls `compile` and keeps what it returns. Of several threads that ask for one
  // new key, one compiles. After a failure the key is new again.
  using Compile = std::function<CompiledProgramPtr()>;
  CompiledProgramPtr find_or_compile(const base::Hash128& key, const Compile& compile);

  // Remembers the numbers of a graph that is about to be compiled, and which of them are data in
  // any case. Returns which should be: those that were data before, or have differed so far.
  std::vector<bool> changed_constants(const base::Hash128& relaxed_key,
                                      std::span<const std::uint64_t> numbers,
                                      std::vector<bool> is_data);

  void clear();
  std::size_t size() const;

 private:
  using Future = std::shared_future<CompiledProgramPtr>;
  struct Constants {
    std::vector<std::uint64_t> first;
    std::vector<bool> is_data;
  };

  // How many programs may stay when one more is inserted. Under mutex_.
  std::size_t room();

  const std::function<double()> share_of_maps_;
  mutable std::mutex mutex_;
  // Since `share_of_maps_` was asked, under mutex_.
  std::size_t num_unchecked_ = 0;
  std::chrono::steady_clock::duration compilation_unchecked_{};
  LruMap<base::Hash128, Future> programs_;      // under mutex_
  LruMap<base::Hash128, Constants> constants_;  // under mutex_
};

}  // namespace torch_xla::runtime
