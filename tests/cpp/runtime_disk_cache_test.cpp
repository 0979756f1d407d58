// The disk cache by itself: what it keeps, what it takes for an entry, what it lets go.
#include <sys/stat.h>
#include <unistd.h>

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

TEST(test_number_of_entries_is_bounded) {
  constexpr int kMost = 1 << 14;
  const Directory directory;
  for (int i = 0; i < kMost + 10; ++i) {
    std::ofstream(directory.path() / (std::to_string(i) + std::string(kProgramExtension)));
  }
  DiskCache cache({directory.path()});
  cache.store(key(1), "one");
  EXPECT_EQ(disk_cache_contents(directory.path()).num_entries, kMost);
  EXPECT(cache.find(key(1)).has_value());
}

TEST(test_many_small_entries_are_bounded_in_one_process) {
  const Directory directory;
  const std::int64_t max_bytes = 64 * 1000;
  DiskCache cache({directory.path(), false, max_bytes});
  for (std::uint64_t i = 0; i < 500; ++i) cache.store(key(i), std::string(300, 'x'));
  const std::int64_t num_bytes = disk_cache_contents(directory.path()).num_bytes;
  EXPECT(num_bytes > max_bytes * 9 / 10 && num_bytes <= max_bytes + max_bytes / 64 + 348);
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

fs::path entry_of(const fs::path& directory) {
  DiskCache({directory}).store(key(1), "the value");
  return files(directory).front();
}

mode_t rights(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777U;
}

// Tests that make files another user's run as root only.
constexpr uid_t kOther = 12345;
bool give_away(const fs::path& path) {
  return ::geteuid() == 0 && ::lchown(path.c_str(), kOther, kOther) == 0;
}

TEST(test_directory_and_parents_are_made_for_their_user_alone) {
  const Directory directory;
  const mode_t previous = ::umask(0);
  const fs::path entry = entry_of(directory.path() / "a" / "b" / "c");
  ::umask(previous);
  EXPECT_EQ(rights(entry), 0600U);
  for (fs::path path = entry.parent_path(); path != directory.path(); path = path.parent_path()) {
    EXPECT_EQ(rights(path), 0700U);
  }
}

TEST(test_what_others_may_write_is_not_used) {
  const Directory directory;
  const fs::path entry = entry_of(directory.path());
  for (const mode_t mode : {0777U, 0770U, 0702U, 0720U, 01777U}) {
    EXPECT_EQ(::chmod(directory.path().c_str(), mode), 0);
    for (const bool is_read_only : {false, true}) {
      DiskCache cache({directory.path(), is_read_only});
      EXPECT(!cache.find(key(1)).has_value());
      EXPECT(!cache.store(key(2), "two"));
      cache.erase(key(1));
    }
  }
  EXPECT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  DiskCache cache({directory.path()});
  EXPECT(cache.find(key(1)) == "the value");
  for (const mode_t mode : {0666U, 0620U, 0602U}) {
    EXPECT_EQ(::chmod(entry.c_str(), mode), 0);
    EXPECT(!cache.find(key(1)).has_value());
  }
  // It is replaced, not written to.
  EXPECT(cache.store(key(1), "anew"));
  EXPECT(cache.find(key(1)) == "anew");
  EXPECT_EQ(rights(entry), 0600U);
}

TEST(test_what_another_user_owns_is_used_if_that_user_is_trusted) {
  const Directory directory;
  const fs::path entry = entry_of(directory.path());
  if (!give_away(entry)) return;
  DiskCache cache({directory.path()});
  EXPECT(!cache.find(key(1)).has_value());
  EXPECT(fs::exists(entry));
  DiskCacheOptions trusting{directory.path()};
  trusting.owners = {kOther};
  EXPECT(DiskCache(trusting).find(key(1)) == "the value");
  EXPECT(give_away(directory.path()));
  EXPECT(!cache.store(key(2), "two"));
  EXPECT(DiskCache(trusting).find(key(1)) == "the value");
}

TEST(test_links_lead_only_where_their_owner_may) {
  const Directory directory;
  const fs::path entry = entry_of(directory.path() / "real");
  const fs::path elsewhere = directory.path() / "elsewhere";
  fs::rename(entry, elsewhere);
  fs::create_symlink(elsewhere, entry);
  EXPECT(!DiskCache({directory.path() / "real"}).find(key(1)).has_value());
  EXPECT(DiskCache({directory.path() / "real"}).store(key(1), "anew"));
  EXPECT(!fs::is_symlink(entry));
  // One's own link to one's own directory is a way to move it.
  const fs::path link = directory.path() / "link";
  fs::create_directory_symlink(directory.path() / "real", link);
  EXPECT(DiskCache({link}).find(key(1)) == "anew");
  EXPECT_EQ(::chmod((directory.path() / "real").c_str(), 0777), 0);
  EXPECT(!DiskCache({link}).find(key(1)).has_value());
  EXPECT_EQ(::chmod((directory.path() / "real").c_str(), 0700), 0);
  if (give_away(link)) EXPECT(!DiskCache({link}).find(key(1)).has_value());
}

TEST(test_an_entry_of_any_length_is_refused_unread) {
  const Directory directory;
  const fs::path entry = entry_of(directory.path());
  for (const std::int64_t max_bytes : {std::int64_t{0}, std::int64_t{1} << 50}) {
    DiskCache cache({directory.path(), false, max_bytes});
    cache.store(key(1), "the value");
    fs::resize_file(entry, std::uintmax_t{8} << 40);
    EXPECT(!cache.find(key(1)).has_value());
    EXPECT(!fs::exists(entry));
    // Also if the header agrees: it would be the largest program that there ever was.
    cache.store(key(1), "the value");
    fs::resize_file(entry, std::uintmax_t{8} << 40);
    const std::uint64_t size = (std::uint64_t{8} << 40) - 48;
    std::fstream(entry, std::ios::binary | std::ios::in | std::ios::out)
        .seekp(24)
        .write(reinterpret_cast<const char*>(&size), sizeof size);
    EXPECT(!cache.find(key(1)).has_value());
  }
  // One that nobody asks for pushes no other out.
  DiskCache cache({directory.path(), false, 5000});
  cache.store(key(1), "the value");
  std::ofstream(directory.path() / "0.xlaprogram");
  fs::resize_file(directory.path() / "0.xlaprogram", std::uintmax_t{8} << 40);
  cache.store(key(2), std::string(100, 'x'));
  EXPECT(cache.find(key(1)).has_value());
  EXPECT(!fs::exists(directory.path() / "0.xlaprogram"));
}

TEST(test_a_cache_without_a_directory_keeps_nothing) {
  DiskCache cache({});
  cache.store(key(1), "one");
  EXPECT(!cache.find(key(1)).has_value());
}

}  // namespace
}  // namespace torch_xla::runtime
