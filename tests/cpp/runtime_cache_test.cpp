// The bounds of the cache of executables.
#include <chrono>
#include <memory>
#include <thread>

#include "base/memory_maps.h"
#include "base/settings.h"
#include "check.h"
#include "runtime/compile_cache.h"

namespace torch_xla {
namespace {

void fill(runtime::CompileCache& cache, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t i = first; i < first + count; ++i) {
    cache.find_or_compile({i, i},
                          [] { return std::make_shared<const runtime::CompiledProgram>(); });
  }
}

TEST(half_of_the_programs_go_when_memory_maps_are_scarce) {
  double share = 0.5;
  runtime::CompileCache cache([&share] { return share; });
  fill(cache, 0, 100);
  EXPECT_EQ(cache.size(), std::size_t{100});
  share = 0.8;
  fill(cache, 100, 28);  // the 128th asks
  EXPECT_EQ(cache.size(), std::size_t{63});
  EXPECT(cache.find({127, 127}) != nullptr);
  EXPECT(cache.find({64, 64}) == nullptr);
}

TEST(programs_that_take_long_to_compile_are_watched_closely) {
  runtime::CompileCache cache([] { return 0.8; });
  fill(cache, 0, 4);
  EXPECT_EQ(cache.size(), std::size_t{4});
  cache.find_or_compile({4, 4}, [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    return std::make_shared<const runtime::CompiledProgram>();
  });
  EXPECT_EQ(cache.size(), std::size_t{5});
  fill(cache, 5, 1);  // asks
  EXPECT_EQ(cache.size(), std::size_t{2});
}

// Asks for a program of that many kilobytes.
void ask(runtime::CompileCache& cache, std::uint64_t key, std::size_t kilobytes) {
  cache.find_or_compile({key, key}, [kilobytes] {
    runtime::CompiledProgram program;
    program.kept_bytes = kilobytes << 10;
    return std::make_shared<const runtime::CompiledProgram>(std::move(program));
  });
}

TEST(programs_are_bounded_by_the_memory_that_they_take) {
  base::settings().compilation_cache_max_megabytes.set(1);
  runtime::CompileCache cache([] { return 0.0; });
  for (std::uint64_t key = 1; key <= 3; ++key) ask(cache, key, 300);
  EXPECT_EQ(cache.size(), std::size_t{3});
  EXPECT(cache.find({1, 1}) != nullptr);  // used last
  ask(cache, 4, 300);
  EXPECT_EQ(cache.size(), std::size_t{3});
  EXPECT(cache.find({2, 2}) == nullptr && cache.find({1, 1}) != nullptr);
  ask(cache, 5, 5000);  // is larger than all, and kept
  EXPECT_EQ(cache.size(), std::size_t{1});
  EXPECT(cache.find({5, 5}) != nullptr);
  ask(cache, 6, 100);
  EXPECT_EQ(cache.size(), std::size_t{1});
  cache.clear();
  for (std::uint64_t key = 1; key <= 3; ++key) ask(cache, key, 300);
  EXPECT_EQ(cache.size(), std::size_t{3});
  base::settings().compilation_cache_max_megabytes.set(0);
  ask(cache, 7, 1000);
  EXPECT_EQ(cache.size(), std::size_t{4});
}

TEST(what_the_system_would_not_give_is_known) {
  EXPECT(base::can_allocate(0));
  EXPECT(base::can_allocate(std::size_t{1} << 20));
  EXPECT(!base::can_allocate(std::size_t{1} << 60));
}

TEST(the_share_of_memory_maps_is_known) {
  const double share = base::share_of_memory_maps();
  EXPECT(share > 0 && share < 0.7);
}

}  // namespace
}  // namespace torch_xla
