// From the text of a program to its executable: out of the disk cache, or compiled and put there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pjrt/executable.h"

namespace torch_xla::runtime {

struct Compiled {
  std::unique_ptr<pjrt::Executable> executable;
  bool was_compiled = false;  // by XLA; else it came from the disk
};

// Blocks while compiling. Throws pjrt::Error if the plugin rejects the program. The disk cache
// knows it by `known_as`: the text without what changes nothing in the results.
Compiled load_or_compile(const std::string& text, const std::string& known_as);
inline Compiled load_or_compile(const std::string& text) { return load_or_compile(text, text); }

// Chooses the directory of the disk cache. Throws if the cache is in use already: it must come
// before the first computation.
void initialize_persistent_cache(const std::string& path, bool is_read_only);

// Begins to load what the last run of this script used, once there is a client; to be ended before
// there is none.
void start_preloading();
void stop_preloading();

// The disk cache as this process sees it. Looking at it does not put it to use.
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
