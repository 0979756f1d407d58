// Programs that several processes compile once, on the fake plugin; another process is a lock on
// all keys of the cache, and what lies there when it is let go.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/metrics.h"
#include "base/settings.h"
#include "directory.h"
#include "runtime/disk_cache.h"
#include "runtime/interruption.h"
#include "runtime/persistent_cache.h"
#include "runtime_fixture.h"

namespace torch_xla::runtime {
namespace {

namespace fs = std::filesystem;

using testing::add;
using testing::AsyncFake;
using testing::count_of;
using testing::Counts;
using testing::eventually;
using testing::Floats;
using testing::multiply;
using testing::tensor;
using testing::Tensor;
using testing::values_of;

// A process of several that share a cache, whose waits are told of after a second.
class Replica {
 public:
  explicit Replica(std::int64_t wait_seconds = 300) {
    base::settings().persistent_cache_path.set(directory_.path().string());
    base::settings().compile_wait.set(wait_seconds);
    base::settings().wait_warning.set(1);
    share_compilations(true);
    base::clear_counters();
  }
  ~Replica() {
    share_compilations(false);
    base::settings().persistent_cache_path.set("");
    base::settings().compile_wait.set(300);
    base::settings().wait_warning.set(60);
  }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const fs::path& directory() const { return directory_.path(); }

 private:
  const testing::Directory directory_;
};

// Compiles, as far as anybody can see from outside.
class OtherProcess {
 public:
  explicit OtherProcess(const fs::path& directory)
      : descriptor_(::open((directory / kLockFileName).c_str(), O_RDWR | O_CREAT, 0600)) {
    struct flock all{};
    all.l_type = F_WRLCK;
    EXPECT_EQ(::fcntl(descriptor_, F_OFD_SETLK, &all), 0);
  }
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  void end() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
};

Floats sum() {
  const Tensor a = tensor(device(0), {1, 2});
  return values_of(add(a, a));
}

Floats product() {
  const Tensor a = tensor(device(0), {1, 2});
  return values_of(multiply(a, a));
}

// Calls `body` on a thread, and `then` when it waits for the other process.
void while_waiting(const std::function<void()>& body, const std::function<void()>& then) {
  std::thread thread(body);
  EXPECT(eventually([] { return count_of("SlowWait") > 0; }));
  then();
  thread.join();
}

TEST(what_another_process_compiles_is_waited_for_and_loaded) {
  const Replica replica;
  const AsyncFake fake;
  EXPECT(sum() == (Floats{2, 4}));
  EXPECT_EQ(count_of("UncachedCompile"), 1);
  EXPECT_EQ(disk_cache_contents(replica.directory()).num_entries, 1);
  const testing::Directory aside;
  fs::path entry;
  for (const auto& file : fs::directory_iterator(replica.directory())) {
    if (file.path().extension() == kProgramExtension) entry = file.path();
  }
  fs::rename(entry, aside.path() / "entry");
  clear_compilation_cache();
  OtherProcess other(replica.directory());
  while_waiting([] { EXPECT(sum() == (Floats{2, 4})); },
                [&] {
                  fs::rename(aside.path() / "entry", entry);
                  other.end();
                });
  EXPECT_EQ(count_of("UncachedCompile"), 1);
  EXPECT_EQ(count_of("PersistentCacheAwaited"), 1);
  EXPECT_EQ(count_of("PersistentCacheHit"), 1);
}

TEST(when_another_process_ends_without_a_program_this_one_compiles_and_waits_no_more) {
  const Replica replica(5);
  const AsyncFake fake;
  OtherProcess other(replica.directory());
  while_waiting([] { EXPECT(sum() == (Floats{2, 4})); }, [&] { other.end(); });
  EXPECT_EQ(count_of("UncachedCompile"), 1);
  EXPECT_EQ(count_of("PersistentCacheAwaited"), 0);
  const OtherProcess again(replica.directory());
  EXPECT(product() == (Floats{1, 4}));
  EXPECT_EQ(count_of("UncachedCompile"), 2);
  EXPECT_EQ(count_of("SlowWait"), 1);
}

TEST(nobody_waits_longer_than_the_limit) {
  const Replica replica(1);
  const AsyncFake fake;
  const OtherProcess other(replica.directory());
  EXPECT(sum() == (Floats{2, 4}));
  EXPECT_EQ(count_of("UncachedCompile"), 1);
  EXPECT_EQ(disk_cache_contents(replica.directory()).num_entries, 1);
}

TEST(without_a_limit_or_others_nobody_waits) {
  const Replica replica(0);
  const AsyncFake fake;
  const OtherProcess other(replica.directory());
  EXPECT(sum() == (Floats{2, 4}));
  base::settings().compile_wait.set(5);
  share_compilations(false);
  EXPECT(product() == (Floats{1, 4}));
  EXPECT_EQ(count_of("UncachedCompile"), 2);
  EXPECT_EQ(count_of("SlowWait"), 0);
}

TEST(a_turn_ends_with_its_compilation) {
  const Replica replica;
  const AsyncFake fake;
  fake.fail("PJRT_Client_Compile", 13, "on demand");
  EXPECT_THROWS(sum(), "on demand");
  fake.fail("PJRT_Client_Compile", 0, "");
  EXPECT(product() == (Floats{1, 4}));
  const OtherProcess other(replica.directory());  // would find a lock that is left
}

struct Interrupted {};
thread_local bool belongs_to_user = false;

TEST(waiting_for_another_process_is_interruptible) {
  const Replica replica;
  const AsyncFake fake;
  OtherProcess other(replica.directory());
  set_interruption_hooks({[] { return belongs_to_user; },
                          [] {
                            if (count_of("SlowWait") > 0) throw Interrupted();
                          },
                          nullptr});
  bool was_interrupted = false;
  std::thread user([&] {
    belongs_to_user = true;
    try {
      sum();
    } catch (const Interrupted&) {
      was_interrupted = true;
    }
  });
  user.join();
  set_interruption_hooks({});
  EXPECT(was_interrupted);
  other.end();
  EXPECT(sum() == (Floats{2, 4}));  // by what went on in the background
  EXPECT_EQ(count_of("UncachedCompile"), 1);
}

}  // namespace
}  // namespace torch_xla::runtime
