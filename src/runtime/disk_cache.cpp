// A file is a header and the value. The header names the format, the key, the value's size and its
// checksum; whatever does not agree with it is not an entry.
#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace torch_xla::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryExtension = ".tmp";
// A temporary file as old as this belongs to a process that died.
constexpr auto kAbandoned = std::chrono::hours(1);

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

class File {
 public:
  // Never a device or a pipe, which could block.
  File(const fs::path& path, int flags)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600)) {}
  ~File() {
    if (is_open()) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  // nullopt for what is not a file or can't be read; sets errno.
  std::optional<std::string> read() const {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) return std::nullopt;
    errno = EINVAL;
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::read(descriptor_, bytes.data() + done, bytes.size() - done);
      if (count < 0) return std::nullopt;
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

  bool write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  // The entry was used now.
  void touch() const { ::futimens(descriptor_, nullptr); }

  // Network file systems may tell only here that the disk is full.
  bool close() {
    const bool closed = ::close(descriptor_) == 0;
    descriptor_ = -1;
    return closed;
  }

 private:
  int descriptor_;
};

void warn_of(std::string_view what, const fs::path& path, int error) {
  base::warn_once(base::str("the cache of compiled programs: ", what, " ", path.string(),
                            " failed (", std::strerror(error),
                            "); programs are compiled without it"));
}

struct Entry {
  fs::path path;
  std::int64_t size = 0;
  fs::file_time_type last_use;
  bool is_temporary = false;
};

// The files of one kind, and temporary ones. Files come and go meanwhile: what can't be looked at
// is left out.
std::vector<Entry> list(const fs::path& directory, std::string_view extension) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    const bool is_temporary = path.extension() == kTemporaryExtension;
    if (path.extension() != extension && !is_temporary) continue;
    std::error_code ignored;
    if (!it->is_regular_file(ignored)) continue;
    Entry entry{path, static_cast<std::int64_t>(it->file_size(ignored)), {}, is_temporary};
    if (!ignored) entry.last_use = it->last_write_time(ignored);
    if (!ignored) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {
  if (options_.directory.empty() || options_.is_read_only) return;
  std::error_code error;
  fs::create_directories(options_.directory.parent_path(), error);
  // An entry is code that runs in the process: others must not be able to put one here.
  if (::mkdir(options_.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    warn_of("making the directory", options_.directory, errno);
  }
}

fs::path DiskCache::path_of(const base::Hash128& key) const {
  return options_.directory / base::str(base::to_string(key), options_.extension);
}

std::optional<std::string> DiskCache::find(const base::Hash128& key) {
  if (options_.directory.empty()) return std::nullopt;
  const fs::path path = path_of(key);
  const File file(path, O_RDONLY);
  if (!file.is_open()) {
    if (errno != ENOENT && errno != ENOTDIR) warn_of("reading", path, errno);
    return std::nullopt;
  }
  std::optional<std::string> bytes = file.read();
  if (!bytes.has_value()) {
    warn_of("reading", path, errno);
    return std::nullopt;
  }
  Header header;
  std::string_view value(*bytes);
  const bool has_header = bytes->size() >= sizeof(Header);
  if (has_header) {
    std::memcpy(&header, bytes->data(), sizeof(Header));
    value.remove_prefix(sizeof(Header));
  }
  if (!has_header || header != header_of(key, value)) {
    base::warn(base::str("the cache of compiled programs: ", path.string(),
                         " is damaged or not an entry, and is not used"));
    erase(key);
    return std::nullopt;
  }
  if (!options_.is_read_only) file.touch();
  bytes->erase(0, sizeof(Header));
  return bytes;
}

bool DiskCache::write(const fs::path& path, const base::Hash128& key, std::string_view value) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) return false;
  const Header header = header_of(key, value);
  return file.write({reinterpret_cast<const char*>(&header), sizeof(Header)}) &&
         file.write(value) && file.close();
}

bool DiskCache::store(const base::Hash128& key, std::string_view value) {
  if (options_.directory.empty() || options_.is_read_only) return false;
  const auto size = static_cast<std::int64_t>(sizeof(Header) + value.size());
  if (options_.max_bytes > 0 && size > options_.max_bytes) return false;
  static std::atomic<std::uint64_t> serial{0};
  const fs::path path = path_of(key);
  const fs::path temporary =
      options_.directory / base::str(base::to_string(key), ".", ::getpid(), ".",
                                     serial.fetch_add(1), kTemporaryExtension);
  if (!write(temporary, key, value) || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    warn_of("writing", path, error);
    return false;
  }
  evict();
  return true;
}

void DiskCache::evict() {
  const std::lock_guard lock(eviction_mutex_);
  std::vector<Entry> entries = list(options_.directory, options_.extension);
  const auto abandoned_before = fs::file_time_type::clock::now() - kAbandoned;
  std::error_code ignored;
  std::erase_if(entries, [&](const Entry& entry) {
    if (entry.is_temporary && entry.last_use < abandoned_before) fs::remove(entry.path, ignored);
    return entry.is_temporary;
  });
  if (options_.max_bytes <= 0) return;
  std::int64_t total = 0;
  for (const Entry& entry : entries) total += entry.size;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.last_use < b.last_use; });
  for (const Entry& entry : entries) {
    if (total <= options_.max_bytes) return;
    fs::remove(entry.path, ignored);
    total -= entry.size;
  }
}

void DiskCache::erase(const base::Hash128& key) {
  if (options_.directory.empty() || options_.is_read_only) return;
  ::unlink(path_of(key).c_str());
}

void clear_disk_cache(const fs::path& directory) {
  std::error_code ignored;
  for (const std::string_view extension : {kProgramExtension, kUseListExtension}) {
    for (const Entry& entry : list(directory, extension)) fs::remove(entry.path, ignored);
  }
}

DiskCacheContents disk_cache_contents(const fs::path& directory) {
  DiskCacheContents contents;
  for (const Entry& entry : list(directory, kProgramExtension)) {
    if (entry.is_temporary) continue;
    ++contents.num_entries;
    contents.num_bytes += entry.size;
  }
  return contents;
}

}  // namespace torch_xla::runtime
