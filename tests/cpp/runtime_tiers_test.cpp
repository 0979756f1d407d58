// Programs that are compiled quickly first, on the fake plugin: how often and with which options,
// and which executable launches take.
#include <cstdint>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/settings.h"
#include "directory.h"
#include "runtime/platform_options.h"
#include "runtime/programs.h"
#include "runtime/tiers.h"
#include "runtime_fixture.h"

namespace torch_xla::runtime {
namespace {

using testing::add_;
using testing::AsyncFake;
using testing::count_of;
using testing::Counts;
using testing::eventually;
using testing::Floats;
using testing::multiply;
using testing::tensor;
using testing::Tensor;
using testing::values_of;

constexpr const char* kCompile = "PJRT_Client_Compile";
constexpr const char* kQuickFlag = "xla_backend_optimization_level";

// While it lives, new programs are compiled quickly first.
class Tiered {
 public:
  Tiered() {
    base::settings().tiered_compilation.set(true);
    base::clear_counters();
  }
  ~Tiered() { base::settings().tiered_compilation.set(false); }
  Tiered(const Tiered&) = delete;
  Tiered& operator=(const Tiered&) = delete;
};

// A program that each call launches once more.
class Sum {
 public:
  void launch(int count = 1) {
    for (int i = 0; i < count; ++i) {
      add_(sum_, one_);
      sync(device(0), true);
    }
    num_launches_ += count;
    const auto launches = static_cast<float>(num_launches_);
    EXPECT(testing::download(*testing::array_of(sum_)) == (Floats{launches, 2 * launches}));
  }

 private:
  const Tensor one_ = tensor(device(0), {1, 2});
  const Tensor sum_ = tensor(device(0), {0, 0});
  int num_launches_ = 0;
};

// Launches what is to be compiled once more until that has begun and hangs, as all compilations do
// from there on, until `fake.release()`.
void hang_in_second_compilation(const AsyncFake& fake, Sum& sum) {
  sum.launch(kQuickLaunches - 1);
  fake.hang(kCompile);
  sum.launch();
  EXPECT(eventually([&] { return fake.waiting(kCompile) == 1; }));
}

// A program that was replaced after its launch is gone.
bool last_was_quick() {
  const CompiledProgramPtr program = last_run().program.lock();
  return program != nullptr && program->quick != nullptr;
}
bool last_was_full() {
  const CompiledProgramPtr program = last_run().program.lock();
  return program != nullptr && program->quick == nullptr;
}

TEST(a_program_that_goes_on_being_launched_is_compiled_once_more) {
  const Tiered tiered;
  const AsyncFake fake;
  const Counts counts;
  Sum sum;
  sum.launch(kQuickLaunches - 1);
  EXPECT(last_was_quick());
  EXPECT_EQ(fake.calls(kCompile), 1);
  EXPECT_EQ(fake.calls(kQuickFlag), 1);
  EXPECT_EQ(count_of("QuickCompile"), 1);
  sum.launch();
  EXPECT(eventually([] { return count_of("FullCompile") == 1; }));
  EXPECT(eventually([&] { return sum.launch(), last_was_full(); }));
  sum.launch(2 * kQuickLaunches);
  EXPECT_EQ(fake.calls(kCompile), 2);
  EXPECT_EQ(fake.calls(kQuickFlag), 1);
  // One program, that somebody waited for once.
  EXPECT_EQ(compilation_cache_size(), 1U);
  EXPECT_EQ(counts.compiled(), 1);
  EXPECT_EQ(count_of("UncachedCompile"), 1);
}

TEST(launches_go_on_while_the_program_is_compiled_once_more) {
  const Tiered tiered;
  const AsyncFake fake;
  Sum sum;
  hang_in_second_compilation(fake, sum);
  sum.launch(2 * kQuickLaunches);
  EXPECT(last_was_quick());
  EXPECT_EQ(fake.waiting(kCompile), 1);
  fake.release();
  EXPECT(eventually([&] { return sum.launch(), last_was_full(); }));
}

TEST(one_program_is_compiled_once_more_at_a_time) {
  const Tiered tiered;
  const AsyncFake fake;
  Sum sum;
  sum.launch(kQuickLaunches - 1);
  const Tensor a = tensor(device(0), {3, 4});
  EXPECT(values_of(multiply(a, a)) == (Floats{9, 16}));
  fake.hang(kCompile);
  sum.launch();
  for (int i = 1; i < kQuickLaunches; ++i) EXPECT(values_of(multiply(a, a)) == (Floats{9, 16}));
  EXPECT(eventually([&] { return fake.waiting(kCompile) == 1; }));
  EXPECT_EQ(count_of("FullCompile"), 1);
  fake.release();
  EXPECT(eventually([] { return count_of("FullCompile") == 2; }));
  EXPECT_EQ(fake.calls(kQuickFlag), 2);
}

TEST(the_quick_program_stays_where_the_second_compilation_fails) {
  const Tiered tiered;
  const AsyncFake fake;
  Sum sum;
  sum.launch(kQuickLaunches - 1);
  fake.fail(kCompile, 13, "out of registers");
  sum.launch();
  EXPECT(eventually([] { return count_of("FullCompileFailure") == 1; }));
  sum.launch(2 * kQuickLaunches);
  EXPECT(last_was_quick());
  EXPECT_EQ(count_of("FullCompile"), 1);
}

TEST(a_program_that_was_dropped_meanwhile_is_not_replaced) {
  const Tiered tiered;
  const AsyncFake fake;
  Sum sum;
  hang_in_second_compilation(fake, sum);
  clear_compilation_cache();
  fake.release();
  EXPECT(eventually([&] { return fake.live("executable") == 0; }));
  EXPECT_EQ(compilation_cache_size(), 0U);
}

TEST(a_shutdown_does_not_wait_for_the_second_compilation) {
  const Tiered tiered;
  const AsyncFake fake;
  {
    Sum sum;
    hang_in_second_compilation(fake, sum);
  }
  shutdown();
  EXPECT_EQ(fake.waiting(kCompile), 1);
  fake.release();
  EXPECT(eventually([] { return pjrt::live_objects().total() == 0; }));
}

TEST(programs_are_compiled_once_where_results_must_not_change) {
  const AsyncFake fake;
  {
    const Tiered tiered;
    set_determinism([] { return true; });
    Sum().launch(2 * kQuickLaunches);
    set_determinism(nullptr);
    EXPECT_EQ(fake.calls(kQuickFlag), 0);
    // One that was compiled quickly before is not taken then.
    Sum sum;
    sum.launch();
    EXPECT_EQ(fake.calls(kQuickFlag), 1);
    set_determinism([] { return true; });
    sum.launch();
    EXPECT(last_was_full());
    set_determinism(nullptr);
    clear_compilation_cache();
    set_is_replica(true);
    Sum().launch();
    set_is_replica(false);
    EXPECT_EQ(fake.calls(kQuickFlag), 1);
  }
  clear_compilation_cache();
  Sum().launch();
  EXPECT_EQ(fake.calls(kQuickFlag), 1);
}

TEST(programs_over_several_devices_are_compiled_once) {
  const Tiered tiered;
  const AsyncFake fake(2);
  std::vector<pjrt::Device*> both;
  for (Device* const single : client().devices()) both.push_back(&single->any_pjrt_device());
  Device& mesh = client().make_device(both);
  EXPECT(!spec_of(mesh, {}).may_be_quick);
  EXPECT(spec_of(device(0), {}).may_be_quick);
}

// What a client of its own has to compile for so many launches, beside that on the disk.
struct Compiled {
  std::int64_t quickly;
  std::int64_t fully;
  bool is_quick_at_last;
};
Compiled compiled_for(int launches) {
  const Tiered tiered;
  const AsyncFake fake;
  Sum sum;
  sum.launch(launches);
  if (launches >= kQuickLaunches) {
    EXPECT(eventually([&] { return sum.launch(), last_was_full(); }));
  }
  return {count_of("QuickCompile"), count_of("FullCompile"), last_was_quick()};
}

TEST(the_disk_knows_both_by_their_options) {
  const testing::Directory directory;
  const std::string before = base::settings().persistent_cache_path();
  base::settings().persistent_cache_path.set(directory.path().string());
  const Compiled first = compiled_for(1);
  EXPECT_EQ(first.quickly, 1);
  // It is still to be worth more, in whichever process.
  const Compiled second = compiled_for(kQuickLaunches);
  EXPECT_EQ(second.quickly, 0);
  EXPECT_EQ(second.fully, 1);
  const Compiled third = compiled_for(1);
  EXPECT_EQ(third.quickly, 0);
  EXPECT(!third.is_quick_at_last);
  base::settings().persistent_cache_path.set(before);
}

TEST(the_users_flags_come_after_the_quick_ones) {
  const pjrt::CompileOptions quick = compile_options("cpu", {}, {}, true);
  EXPECT(quick.env_option_overrides.at(kQuickFlag) == pjrt::OptionOverride(std::int64_t{0}));
  const pjrt::CompileOptions users =
      compile_options("cpu", {{kQuickFlag, std::int64_t{2}}}, {}, true);
  EXPECT(users.env_option_overrides.at(kQuickFlag) == pjrt::OptionOverride(std::int64_t{2}));
}

TEST(quick_flags_that_a_plugin_does_not_know_are_dropped) {
  const auto options = [](bool is_quick) {
    return compile_options("tiers test", {}, {}, is_quick).env_option_overrides;
  };
  EXPECT(options(true) != options(false));
  EXPECT(drop_rejected_defaults("tiers test", "no such flag: xla_backend_optimization_level"));
  EXPECT(options(true) == options(false));
}

}  // namespace
}  // namespace torch_xla::runtime
