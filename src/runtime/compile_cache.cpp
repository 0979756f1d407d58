// Futures under keys: the first thread that asks for a key makes the future, others wait for it.
#include "runtime/compile_cache.h"

#include <algorithm>
#include <utility>

#include "base/settings.h"

namespace torch_xla::runtime {
namespace {

// Of memory mappings: half of the programs go before they run out. Few come between two checks:
// what takes a second to compile has many.
constexpr double kLargestShareOfMaps = 0.6;
constexpr std::size_t kInsertionsPerCheck = 64;
constexpr std::chrono::seconds kCompilationPerCheck{1};

std::size_t max_size() {
  return static_cast<std::size_t>(
      std::max<std::int64_t>(base::settings().compilation_cache_size(), 1));
}

}  // namespace

CompiledProgramPtr CompileCache::find(const base::Hash128& key) {
  Future future;
  {
    const std::lock_guard lock(mutex_);
    const Future* found = programs_.find(key);
    if (found == nullptr) return nullptr;
    future = *found;
  }
  return future.get();
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

CompiledProgramPtr CompileCache::find_or_compile(const base::Hash128& key, const Compile& compile) {
  std::promise<CompiledProgramPtr> promise;
  Future future;
  std::vector<Future> evicted;
  {
    const std::lock_guard lock(mutex_);
    if (const Future* found = programs_.find(key)) {
      future = *found;
    } else {
      programs_.insert(key, promise.get_future().share(), room(), evicted);
    }
  }
  if (future.valid()) return future.get();
  evicted.clear();
  try {
    const auto start = std::chrono::steady_clock::now();
    CompiledProgramPtr program = compile();
    promise.set_value(program);
    const std::lock_guard lock(mutex_);
    compilation_unchecked_ += std::chrono::steady_clock::now() - start;
    return program;
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      programs_.erase(key);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

std::vector<bool> CompileCache::changed_constants(const base::Hash128& relaxed_key,
                                                  std::span<const std::uint64_t> numbers,
                                                  std::vector<bool> is_data) {
  std::vector<Constants> evicted;
  const std::lock_guard lock(mutex_);
  Constants* seen = constants_.find(relaxed_key);
  if (seen == nullptr) {
    constants_.insert(relaxed_key, {{numbers.begin(), numbers.end()}, is_data}, max_size(),
                      evicted);
    return is_data;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (is_data[i] || numbers[i] != seen->first[i]) seen->is_data[i] = true;
  }
  return seen->is_data;
}

void CompileCache::clear() {
  std::vector<Future> programs;
  std::vector<Constants> constants;
  const std::lock_guard lock(mutex_);
  programs_.clear(programs);
  constants_.clear(constants);
}

std::size_t CompileCache::size() const {
  const std::lock_guard lock(mutex_);
  return programs_.size();
}

}  // namespace torch_xla::runtime
