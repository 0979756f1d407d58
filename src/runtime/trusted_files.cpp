// Reading, writing and judging files by their descriptors.
#include "runtime/trusted_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

namespace fs = std::filesystem;

constexpr int kAlways = O_CLOEXEC | O_NONBLOCK;
constexpr mode_t kPrivateFile = 0600;
constexpr mode_t kPrivateDirectory = 0700;

bool is_trusted(uid_t owner, const Owners& owners) {
  return owner == 0 || owner == ::geteuid() ||
         std::ranges::find(owners, static_cast<std::int64_t>(owner)) != owners.end();
}

}  // namespace

File::File(const fs::path& path, int flags)
    : descriptor_(::open(path.c_str(), flags | kAlways, kPrivateFile)) {}

File::File(const File& directory, const std::string& name, int flags)
    : descriptor_(::openat(directory.descriptor_, name.c_str(), flags | kAlways | O_NOFOLLOW,
                           kPrivateFile)) {}

File::~File() {
  if (is_open()) ::close(descriptor_);
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

std::optional<struct stat> File::status() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) return std::nullopt;
  return status;
}

std::optional<std::string> File::read(std::size_t size) const {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(descriptor_, bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

bool File::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void File::touch() const { ::futimens(descriptor_, nullptr); }

bool File::close() {
  const bool closed = ::close(descriptor_) == 0;
  descriptor_ = -1;
  return closed;
}

File open_directory(const fs::path& path, const Owners& owners) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY;
  File directory(path, kFlags | O_NOFOLLOW);
  if (directory.is_open()) return directory;
  const int error = errno;
  struct stat link{};
  if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) &&
      is_trusted(link.st_uid, owners)) {
    return {path, kFlags};
  }
  errno = error;
  return directory;
}

bool make_private_directory(const fs::path& path) {
  fs::path part;
  for (const fs::path& name : path) {
    part /= name;
    if (::mkdir(part.c_str(), kPrivateDirectory) == 0 || errno == EEXIST) continue;
    // A read-only file system says so also of what is there. The first that isn't tells why.
    const int error = errno;
    if (::access(part.c_str(), F_OK) == 0) continue;
    errno = error;
    return false;
  }
  return true;
}

std::string reason_to_distrust(const struct stat& status, const Owners& owners) {
  if (!is_trusted(status.st_uid, owners)) {
    return base::str("it belongs to user ", status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "0%o", status.st_mode & 0777U);
    return base::str("others may write to it (mode ", mode, ")");
  }
  return {};
}

std::vector<DirectoryEntry> list_files(const File& directory) {
  std::vector<DirectoryEntry> entries;
  // A descriptor of its own: the place in the directory belongs to the descriptor.
  const int again = ::openat(directory.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return entries;
  DIR* const opened = ::fdopendir(again);
  if (opened == nullptr) {
    ::close(again);
    return entries;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opened, &::closedir);
  while (const dirent* const found = ::readdir(stream.get())) {
    struct stat status{};
    if (::fstatat(again, found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    entries.push_back({found->d_name, status.st_size, status.st_mtim});
  }
  return entries;
}

}  // namespace torch_xla::runtime
