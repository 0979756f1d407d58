// Files and directories by their opened descriptors, and whether what they hold may be believed:
// nobody but this user, root, and those whom the user names can have written it. A name can stand
// for another file a moment later, a descriptor can't. Nothing here throws but std::bad_alloc.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::runtime {

// Beside this user and root. Numbers of users.
using Owners = std::vector<std::int64_t>;

class File {
 public:
  // Never a device or a pipe, which could block. A file that this makes is for this user alone.
  File(const std::filesystem::path& path, int flags);
  // What lies under a name in a directory, a link not followed.
  File(const File& directory, const std::string& name, int flags);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // nullopt, with errno set, if it can't be asked.
  std::optional<struct stat> status() const;

  // Up to `size` bytes from the place where the last read ended; fewer at the end. nullopt, with
  // errno set, if they can't be read.
  std::optional<std::string> read(std::size_t size) const;
  // False, with errno set, if not all could be written.
  bool write(std::string_view bytes) const;
  // It was used now.
  void touch() const;
  // Network file systems may tell only here that the disk is full.
  bool close();

 private:
  int descriptor_;
};

// Opens a directory. A link to it is followed if this user, root or one of `owners` made the link.
File open_directory(const std::filesystem::path& path, const Owners& owners);
// Makes it and its parents, where they are missing, for this user alone. False, with errno set.
bool make_private_directory(const std::filesystem::path& path);

// Why what lies there is not to be believed: "it belongs to user 1000". Empty if it is.
std::string reason_to_distrust(const struct stat& status, const Owners& owners);

struct DirectoryEntry {
  std::string name;
  std::int64_t size = 0;
  struct timespec last_change{};
};
// The regular files in it. They come and go meanwhile: what can't be looked at is left out.
std::vector<DirectoryEntry> list_files(const File& directory);

}  // namespace torch_xla::runtime
