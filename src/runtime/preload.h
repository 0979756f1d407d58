// Programs loaded before they are asked for: those that the last run of the same script took from
// the disk cache are loaded in the background while this one reads its data and makes its model.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "pjrt/executable.h"
#include "runtime/disk_cache.h"

namespace torch_xla::runtime {

// Thread-safe.
class Preloader {
 public:
  using ExecutablePtr = std::unique_ptr<pjrt::Executable>;
  using FindKeys = std::function<std::vector<base::Hash128>()>;
  // Null if it can't be loaded.
  using Load = std::function<ExecutablePtr(const base::Hash128&)>;

  Preloader() = default;
  ~Preloader() { stop(); }
  Preloader(const Preloader&) = delete;
  Preloader& operator=(const Preloader&) = delete;

  // Both are called on a thread of its own, `load` for each key in turn; what they throw ends it.
  // Ends what was started before. Without threads to be had it does nothing.
  void start(FindKeys find_keys, Load load);
  // Gives the program away; waits if it is being loaded just now. Null if it is not there, and from
  // then on it will not be.
  ExecutablePtr take(const base::Hash128& key);
  // Ends the thread once it is through with the program it is at; frees what was not taken.
  void stop();

 private:
  void run(const FindKeys& find_keys, const Load& load) noexcept;
  // False if it was told to stop.
  bool load_one(const base::Hash128& key, const Load& load);

  std::mutex mutex_;
  std::condition_variable loaded_one_;
  // All below are under mutex_.
  std::optional<base::Hash128> loading_;
  std::unordered_map<base::Hash128, ExecutablePtr> loaded_;
  std::unordered_set<base::Hash128> asked_for_;
  bool is_stopping_ = false;
  std::thread thread_;
};

// Which programs the runs of a script use, kept beside the programs. Thread-safe; like the cache's,
// its failures are warnings.
class UseList {
 public:
  // `script` names what runs and on what: a list of another machine's programs is none of ours.
  UseList(DiskCacheOptions programs, const base::Hash128& script);

  // Of the last run, in the order of their first use.
  const std::vector<base::Hash128>& last_run() const { return last_run_; }
  // This run uses a program. Only the first few are kept.
  void add(const base::Hash128& key);

 private:
  const base::Hash128 script_;
  DiskCache lists_;
  const std::vector<base::Hash128> last_run_;
  std::mutex mutex_;
  std::vector<base::Hash128> this_run_;  // under mutex_
};

// The command line up to the name of the script or module; what follows are its arguments.
std::string script_of_process();

}  // namespace torch_xla::runtime
