// From the text of a program to its executable: out of the disk cache, or compiled and put there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "pjrt/compile_options.h"
#include "pjrt/executable.h"

namespace torch_xla::runtime {

struct Compiled {
  std::unique_ptr<pjrt::Executable> executable;
  bool was_compiled = false;  // by XLA; else it came from the disk
};

class Client;

// All that a compilation needs of the thread that asks for it: it may then run on another one, and
// outlast a shutdown.
class Compilation {
 public:
  // The disk cache knows the program by `known_as`: the text without what changes nothing in the
  // results. Empty stands for the text.
  explicit Compilation(std::string text, std::string known_as = {});

  // Blocks while compiling. Throws pjrt::Error if the plugin rejects the program.
  Compiled run() const;

 private:
  std::string text_;
  std::string known_as_;
  std::shared_ptr<const Client> client_;
  std::map<std::string, pjrt::OptionOverride> options_;
};

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
