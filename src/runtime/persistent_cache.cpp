// Finding the directory, describing the machine, loading and storing.
#include "runtime/persistent_cache.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "runtime/client.h"
#include "runtime/host_kernels.h"
#include "runtime/programs.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {
namespace {

// In a directory that the user did not choose, nothing of processes that compile less than this.
constexpr std::chrono::seconds kMinDefaultCompileTime(1);
// What such a process may yet have to store. It takes a fraction of this to compile for a second.
constexpr std::size_t kMostBytesPutOff = std::size_t{64} << 20;

std::atomic<bool> compilations_are_shared{false};

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

Machine machine_of(const Client& client) {
  Machine machine{.platform = client.platform(),
                  .platform_version = client.pjrt_client().platform_version(),
                  .library = hash_library(client.spec().library_path),
                  .device_kind = client.devices()[0]->any_pjrt_device().kind(),
                  .custom_calls = {},
                  .cpu_features = {}};
  if (client.has_host_kernels()) machine.custom_calls = host_kernels_key();
  if (machine.platform == "cpu") {
    machine.cpu_features = base::cpu_features();  // that the compiler may use
    // Decides how XLA divides an operation among threads.
    machine.num_threads = std::thread::hardware_concurrency();
  }
  return machine;
}

// Of the client, if there is one that a program was looked for in.
DiskCacheOptions current_options() {
  const std::shared_ptr<Client> client = existing_client();
  return client != nullptr ? client->programs().persistent_cache().options()
                           : options_from_settings().first;
}

}  // namespace

base::Hash128 key_of(const Machine& machine) {
  base::Hasher hasher;
  hasher.add(std::string_view(machine.platform));
  hasher.add(std::string_view(machine.platform_version));
  hasher.add(machine.library);
  hasher.add(std::string_view(machine.device_kind));
  hasher.add(machine.custom_calls);
  hasher.add(std::string_view(machine.cpu_features));
  hasher.add(machine.num_threads);
  return hasher.finish();
}

void share_compilations(bool is_shared) { compilations_are_shared.store(is_shared); }

const base::Hash128& PersistentCache::machine_key() {
  std::call_once(machine_once_, [&] { machine_key_ = runtime::key_of(machine_of(client_)); });
  return machine_key_;
}

base::Hash128 PersistentCache::key_of(const base::Hash128& spec_key,
                                      const pjrt::CompileOptions& options) {
  base::Hasher hasher;
  hasher.add(spec_key);
  hasher.add(std::string_view(options.serialize()));
  hasher.add(machine_key());
  return hasher.finish();
}

DiskCache& PersistentCache::cache() {
  const std::lock_guard lock(mutex_);
  if (cache_ == nullptr) {
    auto [options, is_default] = options_from_settings();
    is_default_directory_ = is_default;
    cache_ = std::make_unique<DiskCache>(std::move(options));
  }
  return *cache_;
}

// Unlike `cache()`, makes no directory and settles nothing.
DiskCacheOptions PersistentCache::options() {
  const std::lock_guard lock(mutex_);
  return cache_ != nullptr ? cache_->options() : options_from_settings().first;
}

bool PersistentCache::is_settled() {
  const std::lock_guard lock(mutex_);
  return cache_ != nullptr;
}

// What this script uses of these programs.
std::shared_ptr<UseList> PersistentCache::uses_of(const DiskCacheOptions& programs) {
  const std::lock_guard lock(uses_mutex_);
  if (uses_ == nullptr || used_programs_ != programs) {
    base::Hasher script;
    script.add(std::string_view(script_of_process()));
    script.add(machine_key());
    uses_ = std::make_shared<UseList>(programs, script.finish());
    used_programs_ = programs;
  }
  return uses_;
}

// What the next run of this script may preload.
void PersistentCache::remember_use(const base::Hash128& key) {
  if (base::settings().persistent_cache_preload()) uses_of(cache().options())->add(key);
}

bool PersistentCache::is_shared() const {
  return compilations_are_shared.load() && base::settings().compile_wait() > 0 &&
         !sharing_has_failed_.load();
}

// Null if it is not there.
std::unique_ptr<pjrt::Executable> PersistentCache::find(const base::Hash128& key) {
  static base::Counter& failure = base::counter("PersistentCacheDeserializeFailure");
  const std::optional<std::string> serialized = cache().find(key);
  if (!serialized.has_value()) return nullptr;
  try {
    return client_.pjrt_client().deserialize(*serialized);
  } catch (const pjrt::Error& error) {
    failure.add();
    base::warn(
        base::str("a compiled program of the disk cache could not be loaded and is "
                  "compiled anew: ",
                  error.what()));
    cache().erase(key);
    return nullptr;
  }
}

Loaded PersistentCache::await_other(const base::Hash128& key) {
  static base::Counter& awaited = base::counter("PersistentCacheAwaited");
  static base::Metric& time = base::metric("PersistentCacheWait");
  Loaded loaded{.executable = nullptr, .turn = cache().lock_of(key)};
  if (loaded.turn == nullptr) return loaded;
  KeyLock::State state = loaded.turn->try_acquire();
  const bool has_waited = state == KeyLock::State::kBusy;
  const std::chrono::seconds limit(base::settings().compile_wait());
  if (has_waited) {
    const base::TimedSection timed(time);
    const WatchedWait watched([] { return "another process to compile the same program"; });
    state = loaded.turn->acquire(limit);
  }
  if (state == KeyLock::State::kBusy) {
    base::warn(base::str("another process has not compiled a program within ", limit.count(),
                         " s (XLA_COMPILE_WAIT), so this one compiles it too"));
  } else if (state == KeyLock::State::kHeld) {
    loaded.executable = find(key);
    if (loaded.executable != nullptr) awaited.add();
  }
  // Too slow, or nothing can be stored: the next program would be waited for in vain, too.
  if (loaded.executable == nullptr && has_waited) sharing_has_failed_.store(true);
  // Those who have waited in vain compile at the same time.
  if (loaded.executable != nullptr || has_waited) loaded.turn = nullptr;
  return loaded;
}

Loaded PersistentCache::load(const base::Hash128& key) {
  static base::Counter& hit = base::counter("PersistentCacheHit");
  static base::Counter& preloaded = base::counter("PersistentCachePreloaded");
  static base::Counter& miss = base::counter("PersistentCacheMiss");
  static base::Metric& time = base::metric("PersistentCacheLoad");
  if (cache().options().directory.empty()) return {};
  const auto start = std::chrono::steady_clock::now();
  Loaded loaded{.executable = preloader_.take(key)};
  if (loaded.executable != nullptr) {
    preloaded.add();
  } else {
    loaded.executable = find(key);
  }
  if (loaded.executable != nullptr) {
    const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
    time.record(static_cast<double>(elapsed.count()));
  } else if (is_shared()) {
    loaded = await_other(key);
  }
  if (loaded.executable == nullptr) {
    miss.add();
    return loaded;
  }
  hit.add();
  remember_use(key);
  return loaded;
}

bool PersistentCache::keep(const base::Hash128& key, std::string_view serialized) {
  const bool is_kept = cache().store(key, serialized);
  if (is_kept) remember_use(key);
  return is_kept;
}

bool PersistentCache::put_off(const base::Hash128& key, const std::string& serialized,
                              std::chrono::nanoseconds compile_time) {
  const std::lock_guard lock(put_off_mutex_);
  compile_time_ += compile_time;
  if (compile_time_ >= kMinDefaultCompileTime) return false;
  if (put_off_bytes_ + serialized.size() > kMostBytesPutOff) return true;
  put_off_bytes_ += serialized.size();
  put_off_.emplace_back(key, serialized);
  return true;
}

void PersistentCache::keep_what_was_put_off() {
  std::vector<std::pair<base::Hash128, std::string>> kept;
  {
    const std::lock_guard lock(put_off_mutex_);
    kept = std::exchange(put_off_, {});
  }
  for (const auto& [key, serialized] : kept) keep(key, serialized);
}

void PersistentCache::store(const base::Hash128& key, const pjrt::Executable& executable,
                            std::chrono::nanoseconds compile_time) {
  if (cache().options().directory.empty() || cache().options().is_read_only) return;
  try {
    const std::string serialized = executable.serialize();
    const bool is_choosy = is_default_directory_ && !is_shared();
    if (is_choosy && put_off(key, serialized, compile_time)) return;
    keep_what_was_put_off();
    if (keep(key, serialized)) return;
  } catch (const std::exception& error) {  // also what memory that ends throws
    base::warn_once(
        base::str("compiled programs can't be written, so they are not kept: ", error.what()));
  }
  sharing_has_failed_.store(true);
}

void PersistentCache::start_preloading() {
  const DiskCacheOptions options = this->options();
  std::error_code ignored;
  if (!base::settings().persistent_cache_preload() || options.directory.empty() ||
      !std::filesystem::is_directory(options.directory, ignored)) {
    return;
  }
  const auto from = std::make_shared<DiskCache>(options);
  preloader_.start([this, options] { return uses_of(options)->last_run(); },
                   [this, from](const base::Hash128& key) -> std::unique_ptr<pjrt::Executable> {
                     try {
                       const std::optional<std::string> serialized = from->find(key);
                       if (!serialized.has_value()) return nullptr;
                       return client_.pjrt_client().deserialize(*serialized);
                     } catch (const std::exception&) {
                       return nullptr;  // whoever asks for it is told
                     }
                   });
}

void initialize_persistent_cache(const std::string& path, bool is_read_only) {
  base::check(!path.empty(), "initialize_cache: the path must not be empty");
  const std::shared_ptr<Client> client = existing_client();
  base::check(client == nullptr || !client->programs().persistent_cache().is_settled(),
              "initialize_cache: the first computation has been compiled already; choose the cache "
              "before it");
  base::settings().persistent_cache_path.set(path);
  base::settings().persistent_cache_read_only.set(is_read_only);
  if (client != nullptr) client->programs().persistent_cache().start_preloading();
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
