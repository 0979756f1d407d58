// Locks of keys: one holder at a time, among threads and processes, however these end.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "check.h"
#include "directory.h"
#include "runtime/key_lock.h"

namespace torch_xla::runtime {
namespace {

using std::chrono::milliseconds;
using testing::Directory;
using State = KeyLock::State;

constexpr base::Hash128 kKey{1, 2};
constexpr std::chrono::minutes kLong(5);

File open(const Directory& directory) { return open_directory(directory.path(), {}); }

// A process that has called `begin` and then does nothing until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& begin) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_ = ::fork();
    if (process_ == 0) {
      begin();
      if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

TEST(test_a_key_has_one_holder) {
  const Directory directory;
  const File opened = open(directory);
  KeyLock first(opened, kKey);
  KeyLock second(opened, kKey);
  KeyLock other(opened, {2, 2});
  EXPECT(first.try_acquire() == State::kHeld);
  EXPECT(first.try_acquire() == State::kHeld);
  EXPECT(second.try_acquire() == State::kBusy);
  EXPECT(second.acquire(milliseconds(5)) == State::kBusy);
  EXPECT(other.try_acquire() == State::kHeld);
  first.release();
  EXPECT(second.try_acquire() == State::kHeld);
  EXPECT(first.try_acquire() == State::kBusy);
}

TEST(test_keys_of_any_bits_have_a_lock) {
  const Directory directory;
  const File opened = open(directory);
  for (const std::uint64_t bits : {std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0} >> 1}) {
    KeyLock lock(opened, {bits, bits});
    EXPECT(lock.try_acquire() == State::kHeld);
  }
}

TEST(test_threads_hold_a_key_in_turn) {
  const Directory directory;
  const File opened = open(directory);
  std::atomic<int> num_holding{0};
  std::atomic<int> num_turns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      KeyLock lock(opened, kKey);
      if (lock.acquire(kLong) != State::kHeld) return;
      if (num_holding.fetch_add(1) == 0) num_turns.fetch_add(1);
      std::this_thread::sleep_for(milliseconds(2));
      num_holding.fetch_sub(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_turns.load(), 4);
}

TEST(test_a_lock_ends_with_its_process) {
  const Directory directory;
  const File opened = open(directory);
  Child child([&] { (new KeyLock(opened, kKey))->try_acquire(); });
  KeyLock lock(opened, kKey);
  EXPECT(lock.try_acquire() == State::kBusy);
  child.kill();
  EXPECT(lock.acquire(kLong) == State::kHeld);
}

TEST(test_a_forked_child_keeps_no_lock) {
  const Directory directory;
  const File opened = open(directory);
  KeyLock lock(opened, kKey);
  EXPECT(lock.try_acquire() == State::kHeld);
  const Child child([] {});
  lock.release();
  KeyLock next(opened, kKey);
  EXPECT(next.try_acquire() == State::kHeld);
}

TEST(test_where_the_file_can_not_be_written_there_are_no_locks) {
  const Directory directory;
  const File opened = open(directory);
  const std::filesystem::path file = directory.path() / kLockFileName;
  std::filesystem::create_directory(file);
  EXPECT(KeyLock(opened, kKey).acquire(kLong) == State::kImpossible);
  std::filesystem::remove(file);
  std::filesystem::create_symlink(directory.path() / "elsewhere", file);
  EXPECT(KeyLock(opened, kKey).acquire(kLong) == State::kImpossible);
  EXPECT(!std::filesystem::exists(directory.path() / "elsewhere"));
}

}  // namespace
}  // namespace torch_xla::runtime
