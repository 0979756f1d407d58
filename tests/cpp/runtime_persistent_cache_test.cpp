// What a program on the disk is known by beside its spec.
#include <stdlib.h>

#include <set>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/settings.h"
#include "directory.h"
#include "pjrt_fixture.h"
#include "runtime/host_kernels.h"
#include "runtime/persistent_cache.h"
#include "runtime/programs.h"
#include "runtime_fixture.h"

namespace torch_xla::runtime {
namespace {

using testing::add;
using testing::count_of;
using testing::Floats;
using testing::kCpuPlugin;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

TEST(machines_that_differ_in_anything_have_different_keys) {
  const std::vector<Machine> machines{
      {},
      {.platform = "cpu"},
      {.platform_version = "1"},
      {.library = {1, 0}},
      {.device_kind = "cpu"},
      {.custom_calls = {1, 0}},
      {.cpu_features = "avx2"},
      {.num_threads = 2},
  };
  std::set<std::string> keys;
  for (const Machine& machine : machines) keys.insert(base::to_string(key_of(machine)));
  EXPECT_EQ(keys.size(), machines.size());
}

TEST(another_version_of_a_custom_call_makes_another_key) {
  const auto nothing = [](const HostCall&) {};
  add_host_kernel("persistent_cache_test.nothing", nothing);
  const base::Hash128 before = host_kernels_key();
  add_host_kernel("persistent_cache_test.nothing", nothing, 2);
  EXPECT(host_kernels_key() != before);
  add_host_kernel("persistent_cache_test.nothing", nothing);
  EXPECT(host_kernels_key() == before);
}

// How often the disk had the program of a sum, in a client of its own.
std::int64_t hits_of_a_sum() {
  base::clear_counters();
  const Session session(kCpuPlugin);
  const Tensor a = tensor(device(0), {1, 2});
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
  return count_of("PersistentCacheHit");
}

TEST(programs_of_another_version_of_a_custom_call_are_not_found) {
  if (testing::skip_without_cpu_plugin()) return;
  const testing::Directory directory;
  const std::string before = base::settings().persistent_cache_path();
  base::settings().persistent_cache_path.set(directory.path().string());
  const auto nothing = [](const HostCall&) {};
  add_host_kernel("persistent_cache_test.nothing", nothing);
  EXPECT_EQ(hits_of_a_sum(), 0);
  EXPECT_EQ(hits_of_a_sum(), 1);
  add_host_kernel("persistent_cache_test.nothing", nothing, 2);
  EXPECT_EQ(hits_of_a_sum(), 0);
  EXPECT_EQ(hits_of_a_sum(), 1);
  base::settings().persistent_cache_path.set(before);
}

TEST(the_directory_is_chosen_before_the_first_program) {
  if (testing::skip_without_cpu_plugin()) return;
  const testing::Directory directory;
  const std::string before = base::settings().persistent_cache_path();
  {
    const Session session(kCpuPlugin);
    initialize_persistent_cache(directory.path().string(), false);
    const Tensor a = tensor(device(0), {1, 2});
    EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
    EXPECT_EQ(persistent_cache_stats().num_entries, 1);
    EXPECT_THROWS(initialize_persistent_cache("/elsewhere", false), "the first computation");
  }
  base::settings().persistent_cache_path.set(before);
}

// The cache of a user who chose no directory, and a program of each key that is asked for.
class DefaultCache {
 public:
  DefaultCache() {
    ::setenv("XDG_CACHE_HOME", home_.path().c_str(), 1);
    base::settings().persistent_cache.set(true);
    executable_ = client().pjrt_client().compile(testing::add_program(), testing::portable());
  }
  ~DefaultCache() {
    executable_ = nullptr;
    base::settings().persistent_cache.set(false);
    ::unsetenv("XDG_CACHE_HOME");
  }
  DefaultCache(const DefaultCache&) = delete;
  DefaultCache& operator=(const DefaultCache&) = delete;

  // The number of programs that are kept when one more was compiled for so long.
  std::int64_t compile(std::uint64_t key, std::int64_t milliseconds) {
    cache().store({key, 0}, *executable_, std::chrono::milliseconds(milliseconds));
    return persistent_cache_stats().num_entries;
  }
  bool has(std::uint64_t key) { return cache().load({key, 0}).executable != nullptr; }

 private:
  static PersistentCache& cache() { return client().programs().persistent_cache(); }

  const testing::Directory home_;
  const Session session_{kFakePlugin};
  std::unique_ptr<pjrt::Executable> executable_;
};

TEST(the_default_directory_keeps_all_of_a_process_that_compiles_for_a_second) {
  DefaultCache cache;
  EXPECT_EQ(cache.compile(1, 400), 0);
  EXPECT_EQ(cache.compile(2, 400), 0);
  EXPECT(!cache.has(1));
  EXPECT_EQ(cache.compile(3, 400), 3);
  EXPECT_EQ(cache.compile(4, 1), 4);
  for (std::uint64_t key = 1; key <= 4; ++key) EXPECT(cache.has(key));
}

TEST(the_default_directory_keeps_a_slow_program_at_once) {
  DefaultCache cache;
  EXPECT_EQ(cache.compile(1, 1000), 1);
  EXPECT(cache.has(1));
}

TEST(the_default_directory_keeps_quick_programs_of_replicas) {
  share_compilations(true);
  DefaultCache cache;
  EXPECT_EQ(cache.compile(1, 1), 1);
  share_compilations(false);
}

}  // namespace
}  // namespace torch_xla::runtime
