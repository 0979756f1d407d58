// Futures under keys: the first thread that asks for a key makes the future, others wait for it.
#include "runtime/compile_cache.h"

#include <algorithm>
#include <utility>

#include "base/settings.h"
#include "runtime/background.h"
#include "runtime/interruption.h"

namespace torch_xla::runtime {
namespace {

// Of memory mappings: half of the programs go before they run out. Few come between two checks:
// what takes a second to compile has many.
constexpr double kLargestShareOfMaps = 0.6;
constexpr std::size_t kInsertionsPerCheck = 64;
constexpr std::chrono::seconds kCompilationPerCheck{1};

// Of the host's memory, for programs, if the user does not say.
constexpr std::size_t kShareOfMemory = 8;

std::size_t max_bytes() {
  const std::int64_t megabytes = base::settings().compilation_cache_max_megabytes();
  return megabytes > 0 ? static_cast<std::size_t>(megabytes) << 20
                       : base::physical_memory() / kShareOfMemory;
}

std::size_t max_size() {
  return static_cast<std::size_t>(
      std::max<std::int64_t>(base::settings().compilation_cache_size(), 1));
}

}  // namespace

CompileCache::Future CompileCache::look_up(const base::Hash128& key) {
  const std::lock_guard lock(mutex_);
  const Future* found = programs_.find(key);
  return found == nullptr ? Future() : *found;
}

CompiledProgramPtr CompileCache::find(const base::Hash128& key) {
  const Future found = look_up(key);
  return found.valid() ? await(found) : nullptr;
}

bool CompileCache::is_ready(const Future& program) {
  return program.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CompileCache::wait(const Future& program) {
  if (is_interruptible()) {
    while (program.wait_for(kInterruptionInterval) != std::future_status::ready) {
      check_interruption();
    }
  }
  program.wait();
  after_wait();
}

std::size_t CompileCache::room() {
  if (++num_unchecked_ < kInsertionsPerCheck && compilation_unchecked_ < kCompilationPerCheck) {
    return max_size();
  }
  num_unchecked_ = 0;
  compilation_unchecked_ = {};
  const bool is_scarce = share_of_maps_() > kLargestShareOfMaps;
  return is_scarce ? std::min(max_size(), programs_.size() / 2) : max_size();
}

CompileCache::Future CompileCache::look_up_or_compile(const base::Hash128& key,
                                                      const Begin& begin) {
  Promise promise;
  Future future;
  std::vector<Future> evicted;
  {
    const std::lock_guard lock(mutex_);
    if (const Future* found = programs_.find(key)) return *found;
    future = promise.get_future().share();
    programs_.insert(key, future, room(), evicted);
  }
  evicted.clear();
  Compile how;
  try {
    how = begin();
  } catch (...) {
    fail(key, promise);
    throw;
  }
  if (is_interruptible()) {
    run_in_background([this, key, promise = std::move(promise), how = std::move(how)]() mutable {
      compile(key, promise, how);
    });
  } else {
    const BackgroundWork counted;  // at exit, also on a thread of the user's
    compile(key, promise, how);
  }
  return future;
}

void CompileCache::compile(const base::Hash128& key, Promise& promise, const Compile& compile) {
  try {
    const auto start = std::chrono::steady_clock::now();
    CompiledProgramPtr program = compile();
    std::vector<Future> evicted;
    {
      const std::lock_guard lock(mutex_);
      compilation_unchecked_ += std::chrono::steady_clock::now() - start;
      programs_.weigh(key, program->kept_bytes, max_bytes(), evicted);
    }
    evicted.clear();
    promise.set_value(std::move(program));
  } catch (...) {
    fail(key, promise);
  }
}

void CompileCache::fail(const base::Hash128& key, Promise& promise) {
  {
    const std::lock_guard lock(mutex_);
    programs_.erase(key);
  }
  promise.set_exception(std::current_exception());
}

bool CompileCache::replace_quick(const base::Hash128& key, const CompiledProgramPtr& program) {
  Promise promise;
  promise.set_value(program);
  Future replaced;
  const std::lock_guard lock(mutex_);
  Future* const found = programs_.find(key);
  // One that is not ready was asked for anew.
  if (found == nullptr || !is_ready(*found) || found->get()->quick == nullptr) return false;
  replaced = std::exchange(*found, promise.get_future().share());
  return true;
}

SeenNumbersPtr CompileCache::see_numbers(const graph::Trace& trace, NumbersOf of) {
  std::vector<SeenNumbersPtr> evicted;
  const std::lock_guard lock(mutex_);
  if (SeenNumbersPtr* const seen = numbers_.find(trace.relaxed_key)) {
    if (SeenNumbersPtr now = (*seen)->with(trace)) *seen = std::move(now);
    return *seen;
  }
  return numbers_.insert(trace.relaxed_key, std::make_shared<const SeenNumbers>(trace, of),
                         max_size(), evicted);
}

void CompileCache::clear() {
  std::vector<Future> programs;
  std::vector<SeenNumbersPtr> numbers;
  const std::lock_guard lock(mutex_);
  programs_.clear(programs);
  numbers_.clear(numbers);
}

std::size_t CompileCache::size() const {
  const std::lock_guard lock(mutex_);
  return programs_.size();
}

}  // namespace torch_xla::runtime
