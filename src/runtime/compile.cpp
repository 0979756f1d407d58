// What a program in the disk cache is known by: its text, which has the graph, the donations and
// the calls of our own kernels in it, and everything that decides what XLA makes of the text.
#include "runtime/compile.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "runtime/client.h"
#include "runtime/disk_cache.h"
#include "runtime/platform_options.h"
#include "runtime/preload.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {
namespace {

// In a directory that the user did not choose, only what is worth its place.
constexpr std::chrono::seconds kMinDefaultCompileTime(1);

struct State {
  std::mutex mutex;
  // Under the mutex, from the first compilation on.
  std::unique_ptr<DiskCache> cache;
  bool is_default_directory = false;
  std::string hashed_library;
  base::Hash128 library_hash;
  std::mutex uses_mutex;  // may be held when the other is taken
  // Both under it; for whoever asked last: the directory may be chosen after preloading began.
  std::shared_ptr<UseList> uses;
  DiskCacheOptions used_programs;
  // Not under the mutex.
  Preloader preloader;
};

State& state() {
  static auto* const instance = new State();
  return *instance;
}

Owners parse_owners(const std::string& numbers) {
  Owners owners;
  std::istringstream in(numbers);
  for (std::string number; std::getline(in, number, ',');) {
    char* end = nullptr;
    owners.push_back(std::strtoll(number.c_str(), &end, 10));
    if (!number.empty() && *end == '\0') continue;
    owners.pop_back();
    base::warn_once(
        base::str("XLA_PERSISTENT_CACHE_OWNERS must be numbers of users (`id -u NAME`) "
                  "separated by commas, got '",
                  numbers, "'"));
  }
  return owners;
}

// Where the cache is, and whether that place is our choice.
std::pair<DiskCacheOptions, bool> options_from_settings() {
  DiskCacheOptions options;
  options.directory = base::settings().persistent_cache_path();
  options.is_read_only = base::settings().persistent_cache_read_only();
  constexpr std::int64_t kMostMegabytes = std::int64_t{1} << 40;
  options.max_bytes = std::min(base::settings().persistent_cache_max_megabytes(), kMostMegabytes)
                      << 20;
  options.owners = parse_owners(base::settings().persistent_cache_owners());
  const bool is_default = options.directory.empty();
  if (is_default && base::settings().persistent_cache()) {
    const std::string cache_directory = base::user_cache_directory();
    if (!cache_directory.empty()) {
      options.directory = std::filesystem::path(cache_directory) / "torch_xla" / "programs";
    }
  }
  return {options, is_default};
}

DiskCache& cache() {
  const std::lock_guard lock(state().mutex);
  if (state().cache == nullptr) {
    auto [options, is_default] = options_from_settings();
    state().is_default_directory = is_default;
    state().cache = std::make_unique<DiskCache>(std::move(options));
  }
  return *state().cache;
}

// Unlike `cache()`, makes no directory and settles nothing.
DiskCacheOptions current_options() {
  const std::lock_guard lock(state().mutex);
  return state().cache != nullptr ? state().cache->options() : options_from_settings().first;
}

// Instructions that the compiler may use, as the kernel names them.
std::string cpu_features() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return {};
}

// Of the plugin's size and of parts all over it: two builds differ in their addresses at least, and
// reading hundreds of megabytes would cost more than many a compilation.
base::Hash128 hash_library(const std::string& path) {
  constexpr std::streamoff kBlock = 4096;
  constexpr std::streamoff kNumBlocks = 64;
  base::Hasher hasher;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  hasher.add(static_cast<std::uint64_t>(size));
  std::string block(kBlock, '\0');
  for (std::streamoff i = 0; i <= kNumBlocks; ++i) {
    file.clear();
    file.seekg((size > kBlock ? size - kBlock : 0) / kNumBlocks * i);
    file.read(block.data(), kBlock);
    hasher.add(std::string_view(block.data(), static_cast<std::size_t>(file.gcount())));
  }
  return hasher.finish();
}

base::Hash128 library_hash(const std::string& path) {
  const std::lock_guard lock(state().mutex);
  if (state().hashed_library != path) {
    state().library_hash = hash_library(path);
    state().hashed_library = path;
  }
  return state().library_hash;
}

// What loads a program and runs it.
void add_machine(base::Hasher& hasher, const Client& used) {
  hasher.add(used.platform());
  hasher.add(used.pjrt_client().platform_version());
  hasher.add(library_hash(used.spec().library_path));
  hasher.add(used.devices().empty() ? "" : used.devices().front()->pjrt_device().kind());
  if (used.platform() == "cpu") {
    hasher.add(cpu_features());
    // Decides how XLA divides an operation among threads.
    hasher.add(std::thread::hardware_concurrency());
  }
}

base::Hash128 key_of(const std::string& text, const pjrt::CompileOptions& options,
                     const Client& used) {
  base::Hasher hasher;
  hasher.add(std::string_view(text));
  hasher.add(std::string_view(options.serialize()));
  base::settings().add_compile_key(hasher);
  add_machine(hasher, used);
  return hasher.finish();
}

// What this script uses of these programs.
std::shared_ptr<UseList> uses_of(const DiskCacheOptions& programs, const Client& used) {
  const std::lock_guard lock(state().uses_mutex);
  if (state().uses == nullptr || state().used_programs != programs) {
    base::Hasher script;
    script.add(std::string_view(script_of_process()));
    add_machine(script, used);
    state().uses = std::make_shared<UseList>(programs, script.finish());
    state().used_programs = programs;
  }
  return state().uses;
}

// What the next run of this script may preload.
void remember_use(const base::Hash128& key, const Client& used) {
  if (base::settings().persistent_cache_preload()) uses_of(cache().options(), used)->add(key);
}

std::unique_ptr<pjrt::Executable> load(const base::Hash128& key, const Client& used) {
  static base::Counter& hit = base::counter("PersistentCacheHit");
  static base::Counter& preloaded = base::counter("PersistentCachePreloaded");
  static base::Counter& miss = base::counter("PersistentCacheMiss");
  static base::Counter& failure = base::counter("PersistentCacheDeserializeFailure");
  static base::Metric& time = base::metric("PersistentCacheLoad");
  if (cache().options().directory.empty()) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<pjrt::Executable> executable = state().preloader.take(key);
  if (executable != nullptr) {
    preloaded.add();
  } else if (const std::optional<std::string> serialized = cache().find(key)) {
    try {
      executable = used.pjrt_client().deserialize(*serialized);
    } catch (const pjrt::Error& error) {
      failure.add();
      base::warn(
          base::str("a compiled program of the disk cache could not be loaded and is "
                    "compiled anew: ",
                    error.what()));
      cache().erase(key);
    }
  }
  if (executable == nullptr) {
    miss.add();
    return nullptr;
  }
  hit.add();
  const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
  time.record(static_cast<double>(elapsed.count()));
  remember_use(key, used);
  return executable;
}

void store(const base::Hash128& key, const pjrt::Executable& executable,
           std::chrono::nanoseconds compile_time, const Client& used) {
  if (cache().options().directory.empty() || cache().options().is_read_only) return;
  if (state().is_default_directory && compile_time < kMinDefaultCompileTime) return;
  try {
    if (cache().store(key, executable.serialize())) remember_use(key, used);
  } catch (const std::exception& error) {  // also what memory that ends throws
    base::warn_once(
        base::str("compiled programs can't be written, so they are not kept: ", error.what()));
  }
}

std::unique_ptr<pjrt::Executable> compile(const std::string& text,
                                          const pjrt::CompileOptions& options, const Client& used) {
  static base::Counter& uncached = base::counter("UncachedCompile");
  static base::Metric& time = base::metric("CompileTime");
  static base::Counter& handles = base::counter("CreateCompileHandles");
  handles.add();
  uncached.add();
  const base::TimedSection timed(time);
  const WatchedWait watched([&text] {
    return base::str("XLA to compile a program of ", std::count(text.begin(), text.end(), '\n'),
                     " lines");
  });
  return used.pjrt_client().compile(text, options);
}

// Throws if the cache is in use.
void settle_directory(const std::string& path, bool is_read_only) {
  base::check(!path.empty(), "initialize_cache: the path must not be empty");
  const std::lock_guard lock(state().mutex);
  base::check(state().cache == nullptr,
              "initialize_cache: the first computation has been compiled already; choose the cache "
              "before it");
  base::settings().persistent_cache_path.set(path);
  base::settings().persistent_cache_read_only.set(is_read_only);
}

}  // namespace

Compilation::Compilation(std::string text, std::string known_as)
    : text_(std::move(text)),
      known_as_(std::move(known_as)),
      client_(shared_client()),
      options_(custom_compile_options()) {}

Compiled Compilation::run() const {
  while (true) {
    const pjrt::CompileOptions options = compile_options(client_->platform(), options_);
    const base::Hash128 key = key_of(known_as_.empty() ? text_ : known_as_, options, *client_);
    if (std::unique_ptr<pjrt::Executable> loaded = load(key, *client_)) {
      return {std::move(loaded), false};
    }
    try {
      const auto start = std::chrono::steady_clock::now();
      std::unique_ptr<pjrt::Executable> executable = compile(text_, options, *client_);
      store(key, *executable, std::chrono::steady_clock::now() - start, *client_);
      return {std::move(executable), true};
    } catch (const pjrt::Error& error) {
      if (!drop_rejected_defaults(client_->platform(), error.message())) throw;
    }
  }
}

void start_preloading() {
  const DiskCacheOptions options = current_options();
  std::error_code ignored;
  if (!base::settings().persistent_cache_preload() || options.directory.empty() ||
      !std::filesystem::is_directory(options.directory, ignored)) {
    return;
  }
  const auto from = std::make_shared<DiskCache>(options);
  state().preloader.start([options] { return uses_of(options, client())->last_run(); },
                          [from](const base::Hash128& key) -> std::unique_ptr<pjrt::Executable> {
                            try {
                              const std::optional<std::string> serialized = from->find(key);
                              if (!serialized.has_value()) return nullptr;
                              return client().pjrt_client().deserialize(*serialized);
                            } catch (const std::exception&) {
                              return nullptr;  // whoever asks for it is told
                            }
                          });
}

void stop_preloading() { state().preloader.stop(); }

void initialize_persistent_cache(const std::string& path, bool is_read_only) {
  settle_directory(path, is_read_only);
  if (is_initialized()) start_preloading();
}

PersistentCacheStats persistent_cache_stats() {
  const DiskCacheOptions options = current_options();
  const DiskCacheContents contents = disk_cache_contents(options.directory);
  return {options.directory.string(), options.is_read_only, options.max_bytes, contents.num_entries,
          contents.num_bytes};
}

void clear_persistent_cache() {
  const DiskCacheOptions options = current_options();
  base::check(!options.is_read_only, "clear_persistent_cache: the cache is read only");
  clear_disk_cache(options.directory);
}

}  // namespace torch_xla::runtime
