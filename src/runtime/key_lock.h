// Locks that processes hold for a key, one process at a time: who is about to make what belongs
// under the key lets the others wait for it. The kernel keeps them, so that they end with their
// process, however it ends. Next: `persistent_cache.h`, where programs are compiled in turn.
#pragma once

#include <chrono>
#include <string_view>

#include "base/hash.h"
#include "runtime/trusted_files.h"

namespace torch_xla::runtime {

// The one file of a directory whose bytes stand for the keys.
inline constexpr std::string_view kLockFileName = "compiling.xlalock";

// Holds nothing until it is asked to. For one thread; those of a process exclude each other as
// processes do. What goes wrong is an answer, never thrown.
class KeyLock {
 public:
  enum class State {
    kHeld,
    kBusy,        // another one holds it
    kImpossible,  // the file system has no such locks, or the file can't be written
  };

  // Makes the directory's file if it is not there.
  KeyLock(const File& directory, const base::Hash128& key);
  ~KeyLock() { release(); }
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

  State try_acquire();
  // Asks again until nobody else holds it or `limit` has passed. Not interruptible.
  State acquire(std::chrono::nanoseconds limit);
  void release();

 private:
  // Sets errno. `type` is F_WRLCK or F_UNLCK.
  bool set(short type) const;

  const File file_;
  const base::Hash128 key_;
  bool is_held_ = false;
};

}  // namespace torch_xla::runtime
