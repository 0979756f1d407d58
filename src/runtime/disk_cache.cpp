// A file is a header and the value. The header names the format, the key, the value's size and its
// checksum; whatever does not agree with it is not an entry.
#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace torch_xla::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryExtension = ".tmp";
// A temporary file as old as this belongs to a process that died.
constexpr std::chrono::seconds kAbandoned = std::chrono::hours(1);
// XLA writes programs in a format that ends at half of this.
constexpr std::int64_t kLargestEntry = std::int64_t{4} << 30;
// Small programs are many, and looking for what must go looks at each.
constexpr std::size_t kMostEntries = 1 << 14;
constexpr std::int64_t kEntriesPerEviction = 128;
constexpr std::int64_t kEvictionsPerBound = 64;

struct Header {
  std::array<char, 8> magic = {'X', 'L', 'A', 'P', 'R', 'O', 'G', '1'};
  base::Hash128 key;
  std::uint64_t size = 0;
  base::Hash128 checksum;
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 48, "the header is written as it lies in memory");

Header header_of(const base::Hash128& key, std::string_view value) {
  Header header;
  header.key = key;
  header.size = value.size();
  base::Hasher hasher;
  hasher.add(value);
  header.checksum = hasher.finish();
  return header;
}

bool has_extension(const DirectoryEntry& entry, std::string_view extension) {
  return fs::path(entry.name).extension() == extension;
}

std::vector<DirectoryEntry> list(const File& directory, std::string_view extension) {
  std::vector<DirectoryEntry> entries;
  if (!directory.is_open()) return entries;
  entries = list_files(directory);
  std::erase_if(entries, [&](const auto& entry) { return !has_extension(entry, extension); });
  return entries;
}

bool was_used_before(const DirectoryEntry& a, const DirectoryEntry& b) {
  return std::pair(a.last_change.tv_sec, a.last_change.tv_nsec) <
         std::pair(b.last_change.tv_sec, b.last_change.tv_nsec);
}

std::string warning(const std::string& text) {
  return base::str("the cache of compiled programs: ", text);
}

// What makes a directory or an entry one that may be used.
std::string advice(const std::string& place) {
  return base::str(
      "; a program in it is machine code that would run in this process. If you know "
      "what it holds, make it your own (chown) and yours alone to write (chmod go-w ",
      place,
      "), or trust its owner with XLA_PERSISTENT_CACHE_OWNERS; else choose "
      "another directory with XLA_PERSISTENT_CACHE_PATH");
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {
  if (options_.directory.empty() || options_.is_read_only) return;
  if (!make_private_directory(options_.directory)) warn_of("making the directory", "", errno);
}

void DiskCache::warn_of(std::string_view what, const std::string& name, int error) const {
  const std::string topic = base::str(what, options_.directory.string(), error);
  const fs::path path = name.empty() ? options_.directory : options_.directory / name;
  base::warn_once(
      topic, warning(base::str(what, " ", path.string(), " failed (", std::strerror(error),
                               "); programs are compiled without it. XLA_PERSISTENT_CACHE_PATH "
                               "names another directory, XLA_PERSISTENT_CACHE=0 none")));
}

std::int64_t DiskCache::max_entry_bytes() const {
  return options_.max_bytes > 0 ? std::min(options_.max_bytes, kLargestEntry) : kLargestEntry;
}

std::string DiskCache::name_of(const base::Hash128& key) const {
  return base::str(base::to_string(key), options_.extension);
}

File DiskCache::open() const {
  File directory = open_directory(options_.directory, options_.owners);
  if (!directory.is_open()) {
    // Where there is none, making it says what is wrong.
    if (errno != ENOENT && errno != ENOTDIR) warn_of("opening the directory", "", errno);
    return directory;
  }
  const std::optional<struct stat> status = directory.status();
  const std::string reason = status.has_value() ? reason_to_distrust(*status, options_.owners)
                                                : std::string("it can't be looked at");
  if (reason.empty()) return directory;
  const std::string path = options_.directory.string();
  base::warn_once(path, warning(base::str(path, " is not used: ", reason, advice(path))));
  directory.close();
  return directory;
}

// nullopt for what is not an entry; whoever calls has judged that it may be believed.
std::optional<std::string> DiskCache::read(const File& file, const base::Hash128& key) const {
  const std::optional<std::string> start = file.read(sizeof(Header));
  const std::optional<struct stat> status = file.status();
  Header header;
  if (!start.has_value() || start->size() < sizeof(Header) || !status.has_value()) {
    return std::nullopt;
  }
  std::memcpy(&header, start->data(), sizeof(Header));
  // Before anything of that size is read: damage may make a file as large as it likes.
  const std::int64_t size = status->st_size - static_cast<std::int64_t>(sizeof(Header));
  if (header.magic != Header().magic || header.key != key ||
      std::cmp_not_equal(header.size, size) || status->st_size > max_entry_bytes()) {
    return std::nullopt;
  }
  std::optional<std::string> value = file.read(static_cast<std::size_t>(size));
  if (!value.has_value() || header != header_of(key, *value)) return std::nullopt;
  return value;
}

std::optional<std::string> DiskCache::find(const base::Hash128& key) {
  if (options_.directory.empty()) return std::nullopt;
  const File directory = open();
  if (!directory.is_open()) return std::nullopt;
  const std::string name = name_of(key);
  const File file(directory, name, O_RDONLY);
  if (!file.is_open() && errno != ELOOP) {
    if (errno != ENOENT) warn_of("reading", name, errno);
    return std::nullopt;
  }
  const std::optional<struct stat> status = file.status();  // of a link, nothing
  const std::string path = (options_.directory / name).string();
  const std::string reason = status.has_value() && S_ISREG(status->st_mode)
                                 ? reason_to_distrust(*status, options_.owners)
                                 : std::string("it is no file, but a link or the like");
  if (!reason.empty()) {
    base::warn_once(base::str("entries of ", options_.directory.string()),
                    warning(base::str(path, " is not used: ", reason, advice(path))));
    return std::nullopt;
  }
  try {
    if (std::optional<std::string> value = read(file, key)) {
      if (!options_.is_read_only) file.touch();
      return value;
    }
  } catch (const std::bad_alloc&) {
    warn_of("reading", name, ENOMEM);
    return std::nullopt;
  }
  base::warn(warning(path + " is damaged or not an entry, and is not used"));
  erase(key);
  return std::nullopt;
}

bool DiskCache::store(const base::Hash128& key, std::string_view value) {
  if (options_.directory.empty() || options_.is_read_only) return false;
  const auto size = static_cast<std::int64_t>(sizeof(Header) + value.size());
  if (size > max_entry_bytes()) return false;
  const File directory = open();
  if (!directory.is_open()) return false;
  static std::atomic<std::uint64_t> serial{0};
  const std::string name = name_of(key);
  const std::string temporary = base::str(base::to_string(key), ".", ::getpid(), ".",
                                          serial.fetch_add(1), kTemporaryExtension);
  File file(directory, temporary, O_WRONLY | O_CREAT | O_EXCL);
  const Header header = header_of(key, value);
  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof(Header));
  if (!file.is_open() || !file.write(head) || !file.write(value) || !file.close() ||
      ::renameat(directory.descriptor(), temporary.c_str(), directory.descriptor(), name.c_str()) !=
          0) {
    const int error = errno;
    ::unlinkat(directory.descriptor(), temporary.c_str(), 0);
    warn_of("writing", name, error);
    return false;
  }
  if (is_eviction_due(size)) evict(directory);
  return true;
}

bool DiskCache::is_eviction_due(std::int64_t size) {
  const std::lock_guard lock(eviction_mutex_);
  const bool is_first = !num_unevicted_bytes_.has_value();
  num_unevicted_bytes_ = num_unevicted_bytes_.value_or(0) + size;
  const bool is_much =
      options_.max_bytes > 0 && *num_unevicted_bytes_ > options_.max_bytes / kEvictionsPerBound;
  if (++num_unevicted_ < kEntriesPerEviction && !is_first && !is_much) return false;
  num_unevicted_bytes_ = 0;
  num_unevicted_ = 0;
  return true;
}

void DiskCache::evict(const File& directory) {
  const std::lock_guard lock(eviction_mutex_);
  const auto remove = [&](const DirectoryEntry& entry) {
    ::unlinkat(directory.descriptor(), entry.name.c_str(), 0);
  };
  const std::time_t abandoned_before = std::time(nullptr) - kAbandoned.count();
  for (const DirectoryEntry& entry : list(directory, kTemporaryExtension)) {
    if (entry.last_change.tv_sec < abandoned_before) remove(entry);
  }
  std::vector<DirectoryEntry> entries = list(directory, options_.extension);
  // What is larger than any entry would push all others out.
  std::erase_if(entries, [&](const DirectoryEntry& entry) {
    const bool is_too_large = entry.size > max_entry_bytes();
    if (is_too_large) remove(entry);
    return is_too_large;
  });
  const std::int64_t max_bytes =
      options_.max_bytes > 0 ? options_.max_bytes : std::numeric_limits<std::int64_t>::max();
  std::int64_t total = 0;
  std::size_t count = entries.size();
  for (const DirectoryEntry& entry : entries) total += entry.size;
  std::ranges::sort(entries, was_used_before);
  for (const DirectoryEntry& entry : entries) {
    if (total <= max_bytes && count <= kMostEntries) return;
    remove(entry);
    total -= entry.size;
    --count;
  }
}

void DiskCache::erase(const base::Hash128& key) {
  if (options_.directory.empty() || options_.is_read_only) return;
  const File directory = open();
  if (directory.is_open()) ::unlinkat(directory.descriptor(), name_of(key).c_str(), 0);
}

std::unique_ptr<KeyLock> DiskCache::lock_of(const base::Hash128& key) const {
  if (options_.directory.empty() || options_.is_read_only) return nullptr;
  const File directory = open();
  return directory.is_open() ? std::make_unique<KeyLock>(directory, key) : nullptr;
}

void clear_disk_cache(const fs::path& directory) {
  const File opened(directory, O_RDONLY | O_DIRECTORY);
  if (opened.is_open()) ::unlinkat(opened.descriptor(), std::string(kLockFileName).c_str(), 0);
  for (const std::string_view extension : {kProgramExtension, kUseListExtension}) {
    for (const DirectoryEntry& entry : list(opened, extension)) {
      ::unlinkat(opened.descriptor(), entry.name.c_str(), 0);
    }
  }
}

DiskCacheContents disk_cache_contents(const fs::path& directory) {
  DiskCacheContents contents;
  for (const DirectoryEntry& entry : list({directory, O_RDONLY | O_DIRECTORY}, kProgramExtension)) {
    ++contents.num_entries;
    contents.num_bytes += entry.size;
  }
  return contents;
}

}  // namespace torch_xla::runtime
