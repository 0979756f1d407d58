// A lock of one byte, whose offset is the key: a single file serves all keys, so that none needs to
// be removed under somebody's hands. It belongs to the opened file and not to the process, whose
// threads could else not exclude each other.
#include "runtime/key_lock.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <thread>
#include <utility>

namespace torch_xla::runtime {
namespace {

constexpr std::chrono::milliseconds kFirstPause(1);
// What is waited for takes tens of milliseconds at least.
constexpr std::chrono::milliseconds kLongestPause(16);

}  // namespace

KeyLock::KeyLock(const File& directory, const base::Hash128& key)
    : file_(directory, std::string(kLockFileName), O_RDWR | O_CREAT), key_(key) {}

bool KeyLock::set(short type) const {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(key_.lo % std::numeric_limits<off_t>::max());
  range.l_len = 1;
  while (::fcntl(file_.descriptor(), F_OFD_SETLK, &range) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

KeyLock::State KeyLock::try_acquire() {
  if (is_held_) return State::kHeld;
  if (!file_.is_open()) return State::kImpossible;
  is_held_ = set(F_WRLCK);
  if (is_held_) return State::kHeld;
  return errno == EAGAIN || errno == EACCES ? State::kBusy : State::kImpossible;
}

KeyLock::State KeyLock::acquire(std::chrono::nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::chrono::nanoseconds pause = kFirstPause;
  while (true) {
    const State state = try_acquire();
    const std::chrono::nanoseconds left = end - std::chrono::steady_clock::now();
    if (state != State::kBusy || left.count() <= 0) return state;
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min<std::chrono::nanoseconds>(pause * 2, kLongestPause);
  }
}

// Said to the kernel: a child that was forked meanwhile has the file open too, so closing it here
// would change nothing.
void KeyLock::release() {
  if (std::exchange(is_held_, false)) set(F_UNLCK);
}

}  // namespace torch_xla::runtime
