// The programs of one client that outlive the process: where they are kept, what they are known by,
// and which of them are loaded ahead. Next: `disk_cache.h` for the files, `preload.h` for the
// thread that loads ahead.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "runtime/disk_cache.h"
#include "runtime/key_lock.h"
#include "runtime/preload.h"

namespace torch_xla::runtime {

class Client;

// What loads a program and runs it: programs of one machine are of no use to another.
struct Machine {
  std::string platform = {};
  std::string platform_version = {};
  base::Hash128 library = {};  // of the plugin
  std::string device_kind = {};
  base::Hash128 custom_calls = {};  // `host_kernels_key`: kernels of ours that programs may call
  std::string cpu_features = {};    // empty where programs do not run on the CPU
  std::uint64_t num_threads = 0;
};
base::Hash128 key_of(const Machine& machine);

// Whether this process is one of several on its host that will compile the same programs: one of
// them compiles each, and the others wait for it.
void share_compilations(bool is_shared);

struct Loaded {
  std::unique_ptr<pjrt::Executable> executable;  // null if it is not there
  // Not null: others wait for what this process compiles now, until this is destroyed.
  std::unique_ptr<KeyLock> turn = nullptr;
};

// Thread-safe. Its directory is settled by the first program that is looked for.
class PersistentCache {
 public:
  // Of the client that has it as a member.
  explicit PersistentCache(const Client& client) : client_(client) {}
  PersistentCache(const PersistentCache&) = delete;
  PersistentCache& operator=(const PersistentCache&) = delete;

  // `spec_key` is the key of a spec (program_spec.h) whose program is the module's text: what a
  // graph is lowered to may change with the version of this library. The options stand here once
  // more as the plugin gets them, for the same reason.
  base::Hash128 key_of(const base::Hash128& spec_key, const pjrt::CompileOptions& options);
  // Where compilations are shared, blocks while another process compiles it. Not interruptible.
  Loaded load(const base::Hash128& key);
  // In the default directory, only when the process has compiled for a second in all; then what it
  // compiled before, too.
  void store(const base::Hash128& key, const pjrt::Executable& executable,
             std::chrono::nanoseconds compile_time);

  // Begins to load what the last run of this script used.
  void start_preloading();
  void stop_preloading() { preloader_.stop(); }

  // As they are, or would be if a program were looked for now.
  DiskCacheOptions options();
  bool is_settled();

 private:
  DiskCache& cache();
  const base::Hash128& machine_key();
  std::shared_ptr<UseList> uses_of(const DiskCacheOptions& programs);
  void remember_use(const base::Hash128& key);
  bool is_shared() const;
  // False if nothing can be kept.
  bool keep(const base::Hash128& key, std::string_view serialized);
  // Whether it is kept for now only.
  bool put_off(const base::Hash128& key, const std::string& serialized,
               std::chrono::nanoseconds compile_time);
  void keep_what_was_put_off();
  std::unique_ptr<pjrt::Executable> find(const base::Hash128& key);
  // What another process compiles just now, or has compiled since it was looked for.
  Loaded await_other(const base::Hash128& key);

  const Client& client_;
  // What one process compiles does not reach the others.
  std::atomic<bool> sharing_has_failed_{false};
  std::once_flag machine_once_;
  base::Hash128 machine_key_;
  std::mutex mutex_;
  std::unique_ptr<DiskCache> cache_;   // under mutex_; null until it is settled
  bool is_default_directory_ = false;  // under mutex_
  std::mutex put_off_mutex_;
  // All under put_off_mutex_.
  std::chrono::nanoseconds compile_time_{};  // of this process, in all
  std::vector<std::pair<base::Hash128, std::string>> put_off_;
  std::size_t put_off_bytes_ = 0;
  std::mutex uses_mutex_;  // may be held when the other is taken
  // Both under uses_mutex_; for whoever asked last: the directory may be chosen after preloading
  // began.
  std::shared_ptr<UseList> uses_;
  DiskCacheOptions used_programs_;
  Preloader preloader_;  // last: its thread uses the rest
};

// Chooses the directory. Throws if the cache is in use already: it must come before the first
// computation.
void initialize_persistent_cache(const std::string& path, bool is_read_only);

// The cache as this process sees it. Looking at it does not put it to use.
struct PersistentCacheStats {
  std::string path;  // empty: there is none
  bool is_read_only = false;
  std::int64_t max_bytes = 0;
  std::int64_t num_entries = 0;
  std::int64_t num_bytes = 0;
};
PersistentCacheStats persistent_cache_stats();
// Removes all its programs, also those of other processes and versions.
void clear_persistent_cache();

}  // namespace torch_xla::runtime
