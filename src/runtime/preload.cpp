// The preloading thread, and the lists of keys that it goes by.
#include "runtime/preload.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

namespace torch_xla::runtime {
namespace {

// A run's first programs are those that its first steps wait for.
constexpr std::size_t kMostUses = 16;
// Of all lists in a directory; one takes a few hundred bytes.
constexpr std::int64_t kMaxListBytes = 1 << 20;

DiskCacheOptions options_of_lists(DiskCacheOptions programs) {
  programs.extension = kUseListExtension;
  programs.max_bytes = kMaxListBytes;
  return programs;
}

std::vector<base::Hash128> parse(const std::optional<std::string>& bytes) {
  const std::size_t size = bytes.has_value() ? bytes->size() / sizeof(base::Hash128) : 0;
  std::vector<base::Hash128> keys(std::min(size, kMostUses));
  if (!keys.empty()) std::memcpy(keys.data(), bytes->data(), keys.size() * sizeof(base::Hash128));
  return keys;
}

}  // namespace

void Preloader::start(FindKeys find_keys, Load load) {
  stop();
  const std::lock_guard lock(mutex_);
  is_stopping_ = false;
  try {
    thread_ = std::thread(
        [this, find_keys = std::move(find_keys), load = std::move(load)] { run(find_keys, load); });
  } catch (const std::system_error&) {
    // Programs are loaded when they are asked for.
  }
}

void Preloader::run(const FindKeys& find_keys, const Load& load) noexcept {
  try {
    for (const base::Hash128& key : find_keys()) {
      if (!load_one(key, load)) return;
    }
  } catch (...) {
    // Memory has ended, or a list can't be read: what is not loaded ahead is loaded when it is
    // asked for.
    const std::lock_guard lock(mutex_);
    loading_.reset();
  }
  loaded_one_.notify_all();
}

bool Preloader::load_one(const base::Hash128& key, const Load& load) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return false;
    if (asked_for_.contains(key)) return true;
    loading_ = key;
  }
  ExecutablePtr program = load(key);
  {
    const std::lock_guard lock(mutex_);
    loading_.reset();
    if (program != nullptr) loaded_.emplace(key, std::move(program));
  }
  loaded_one_.notify_all();
  return true;
}

Preloader::ExecutablePtr Preloader::take(const base::Hash128& key) {
  std::unique_lock lock(mutex_);
  asked_for_.insert(key);
  loaded_one_.wait(lock, [&] { return loading_ != key; });
  const auto found = loaded_.find(key);
  if (found == loaded_.end()) return nullptr;
  ExecutablePtr program = std::move(found->second);
  loaded_.erase(found);
  return program;
}

void Preloader::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
  const std::lock_guard lock(mutex_);
  loaded_.clear();
  asked_for_.clear();
}

UseList::UseList(DiskCacheOptions programs, const base::Hash128& script)
    : script_(script),
      lists_(options_of_lists(std::move(programs))),
      last_run_(parse(lists_.find(script))) {}

void UseList::add(const base::Hash128& key) {
  const std::lock_guard lock(mutex_);
  if (this_run_.size() == kMostUses || std::ranges::find(this_run_, key) != this_run_.end()) return;
  this_run_.push_back(key);
  // A run that ended early is no reason to forget the rest.
  if (this_run_.size() <= last_run_.size() &&
      std::equal(this_run_.begin(), this_run_.end(), last_run_.begin())) {
    return;
  }
  lists_.store(script_, {reinterpret_cast<const char*>(this_run_.data()),
                         this_run_.size() * sizeof(base::Hash128)});
}

std::string script_of_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string script;
  std::string argument;
  while (std::getline(file, argument, '\0')) {
    const bool is_first = script.empty();
    script += argument + '\0';
    if (!is_first && !argument.starts_with('-')) break;
  }
  return script;
}

}  // namespace torch_xla::runtime
