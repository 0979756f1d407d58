// The disk cache by itself: what it keeps, what it takes for an entry, what it lets go.
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "directory.h"
#include "runtime/disk_cache.h"

namespace torch_xla::runtime {
namespace {

namespace fs = std::filesystem;

using testing::Directory;

base::Hash128 key(std::uint64_t number) { return {number, number + 1}; }

std::vector<fs::path> files(const fs::path& directory) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(directory)) paths.push_back(entry.path());
  return paths;
}

TEST(test_what_was_stored_is_found_by_others) {
  const Directory directory;
  DiskCache writer({directory.path() / "a" / "b"});
  EXPECT(!writer.find(key(1)).has_value());
  writer.store(key(1), "one");
  writer.store(key(2), "");
  DiskCache reader({directory.path() / "a" / "b", /*is_read_only=*/true});
  EXPECT(reader.find(key(1)) == "one");
  EXPECT(reader.find(key(2)) == "");
  EXPECT(!reader.find(key(3)).has_value());
  EXPECT_EQ(disk_cache_contents(directory.path() / "a" / "b").num_entries, 2);
  clear_disk_cache(directory.path() / "a" / "b");
  EXPECT(!reader.find(key(1)).has_value());
}

TEST(test_no_byte_of_an_entry_can_change_unseen) {
  const Directory directory;
  DiskCache cache({directory.path()});
  cache.store(key(1), "the value");
  const fs::path path = files(directory.path()).front();
  std::string bytes(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT(!cache.find(key(1)).has_value());
  }
  for (std::size_t size = 0; size < bytes.size(); size += 7) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    EXPECT(!cache.find(key(1)).has_value());
  }
  EXPECT(files(directory.path()).empty());  // what is no entry is removed
}

TEST(test_least_recently_used_entries_go) {
  const Directory directory;
  const std::string value(1000, 'x');
  DiskCache cache({directory.path(), false, 3500});
  for (std::uint64_t i = 0; i < 3; ++i) {
    cache.store(key(i), value);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT(cache.find(key(0)).has_value());  // used last
  cache.store(key(3), value);
  EXPECT(cache.find(key(0)).has_value());
  EXPECT(!cache.find(key(1)).has_value());
  EXPECT(cache.find(key(3)).has_value());
  cache.store(key(4), std::string(5000, 'x'));  // larger than all
  EXPECT(!cache.find(key(4)).has_value());
  EXPECT(cache.find(key(3)).has_value());
}

TEST(test_files_of_others_stay) {
  const Directory directory;
  std::ofstream(directory.path() / "notes.txt") << std::string(5000, 'x');
  DiskCache cache({directory.path(), false, 2000});
  cache.store(key(1), "one");
  clear_disk_cache(directory.path());
  EXPECT_EQ(files(directory.path()).size(), 1U);
}

TEST(test_threads_store_and_find_at_once) {
  const Directory directory;
  DiskCache cache({directory.path(), false, 20000});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache] {
      for (std::uint64_t i = 0; i < 50; ++i) {
        const std::string value(500 + i % 5, static_cast<char>('a' + i % 5));
        cache.store(key(i % 5), value);
        const std::optional<std::string> found = cache.find(key(i % 5));
        EXPECT(!found.has_value() || *found == value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(disk_cache_contents(directory.path()).num_entries, 5);
}

TEST(test_a_cache_without_a_directory_keeps_nothing) {
  DiskCache cache({});
  cache.store(key(1), "one");
  EXPECT(!cache.find(key(1)).has_value());
}

}  // namespace
}  // namespace torch_xla::runtime
