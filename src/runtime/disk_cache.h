// Compiled programs as files of one directory, which any number of processes may share. A file is
// written under a temporary name and renamed, so that a reader sees all of it or nothing. What a
// file holds is checked before it is used: one that is truncated, damaged or foreign is as good as
// absent, with a warning. So is what somebody else may have put there, since a program is machine
// code (`trusted_files.h`). No failure of the file system stops a program. Next:
// `persistent_cache.h`, which says what the keys are made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "runtime/key_lock.h"
#include "runtime/trusted_files.h"

namespace torch_xla::runtime {

inline constexpr std::string_view kProgramExtension = ".xlaprogram";
// What is kept about programs beside them: no entries to whoever counts those.
inline constexpr std::string_view kUseListExtension = ".xlauses";

struct DiskCacheOptions {
  std::filesystem::path directory;  // empty: there is no cache
  bool is_read_only = false;
  std::int64_t max_bytes = 0;                      // of all files together; 0: no bound
  std::string_view extension = kProgramExtension;  // of its files
  Owners owners = {};                              // trusted beside this user and root

  friend bool operator==(const DiskCacheOptions&, const DiskCacheOptions&) = default;
};

struct DiskCacheContents {
  std::int64_t num_entries = 0;
  std::int64_t num_bytes = 0;
};

// Of any directory, without putting it to use.
DiskCacheContents disk_cache_contents(const std::filesystem::path& directory);
// Removes all entries, lists and locks, whoever owns them; files that are not the cache's stay.
void clear_disk_cache(const std::filesystem::path& directory);

// Thread-safe. What goes wrong is warned about, never thrown.
class DiskCache {
 public:
  // Makes the directory and its parents, for this user alone, unless it is to be read only.
  explicit DiskCache(DiskCacheOptions options);

  const DiskCacheOptions& options() const { return options_; }

  // What was stored under `key`, and counts as a use of it; nullopt if there is nothing whole.
  std::optional<std::string> find(const base::Hash128& key);
  // Keeps `value`, if the directory may be written; then, if this process may have stored enough
  // for that to matter, the least recently used entries go until all fit. An entry larger than the
  // bound is not kept. Returns whether this one was.
  bool store(const base::Hash128& key, std::string_view value);
  // Removes an entry that can't be used after all.
  void erase(const base::Hash128& key);
  // For one who is about to make an entry. Null if the directory may not be written.
  std::unique_ptr<KeyLock> lock_of(const base::Hash128& key) const;

 private:
  std::string name_of(const base::Hash128& key) const;
  // Not open, after a warning, if it is not there or not to be believed.
  File open() const;
  std::optional<std::string> read(const File& file, const base::Hash128& key) const;
  // Whether to look for what must go, after so many bytes more: the first time, and then seldom.
  bool is_eviction_due(std::int64_t size);
  void evict(const File& directory);
  void warn_of(std::string_view what, const std::string& name, int error) const;
  // The most that an entry may take.
  std::int64_t max_entry_bytes() const;

  const DiskCacheOptions options_;
  std::mutex eviction_mutex_;  // one thread of a process at a time looks for what must go
  // What was stored since, both under eviction_mutex_.
  std::optional<std::int64_t> num_unevicted_bytes_;
  std::int64_t num_unevicted_ = 0;
};

}  // namespace torch_xla::runtime
