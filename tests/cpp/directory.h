// A directory that a test has to itself.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace torch_xla::testing {

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "torch_xla_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace torch_xla::testing
