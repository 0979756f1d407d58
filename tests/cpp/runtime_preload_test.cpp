// Which programs a script is remembered to use, and the thread that loads them ahead.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "directory.h"
#include "runtime/preload.h"

namespace torch_xla::runtime {
namespace {

using testing::Directory;
using Keys = std::vector<base::Hash128>;

base::Hash128 key(std::uint64_t number) { return {number, number + 1}; }

TEST(test_a_script_is_remembered_by_its_programs) {
  const Directory directory;
  UseList first({directory.path()}, key(7));
  EXPECT(first.last_run().empty());
  for (const std::uint64_t number : {3, 1, 3}) first.add(key(number));
  EXPECT(UseList({directory.path()}, key(7)).last_run() == Keys({key(3), key(1)}));
  EXPECT(UseList({directory.path()}, key(8)).last_run().empty());
  EXPECT_EQ(disk_cache_contents(directory.path()).num_entries, 0);
  clear_disk_cache(directory.path());
  EXPECT(UseList({directory.path()}, key(7)).last_run().empty());
}

TEST(test_a_shorter_run_forgets_nothing_and_another_one_does) {
  const Directory directory;
  UseList first({directory.path()}, key(7));
  for (const std::uint64_t number : {1, 2, 3}) first.add(key(number));
  UseList shorter({directory.path()}, key(7));
  for (const std::uint64_t number : {1, 2}) shorter.add(key(number));
  EXPECT_EQ(UseList({directory.path()}, key(7)).last_run().size(), 3U);
  UseList other({directory.path()}, key(7));
  for (const std::uint64_t number : {1, 4}) other.add(key(number));
  EXPECT(UseList({directory.path()}, key(7)).last_run() == Keys({key(1), key(4)}));
}

TEST(test_only_the_first_programs_are_remembered) {
  const Directory directory;
  UseList list({directory.path()}, key(7));
  for (std::uint64_t number = 0; number < 100; ++number) list.add(key(number));
  EXPECT_EQ(UseList({directory.path()}, key(7)).last_run().size(), 16U);
}

TEST(test_what_was_asked_for_is_not_loaded_ahead) {
  Preloader preloader;
  std::promise<void> asked;
  std::promise<Keys> loaded;
  Keys order;
  preloader.start(
      [&] {
        asked.get_future().wait();
        return Keys({key(1), key(2), key(3)});
      },
      [&](const base::Hash128& program) {
        order.push_back(program);
        if (program == key(3)) loaded.set_value(order);
        return nullptr;
      });
  EXPECT(preloader.take(key(2)) == nullptr);
  asked.set_value();
  EXPECT(loaded.get_future().get() == Keys({key(1), key(3)}));
}

TEST(test_who_asks_waits_for_the_program_being_loaded) {
  Preloader preloader;
  std::promise<void> begun;
  std::promise<void> may_end;
  std::atomic<bool> has_ended = false;
  preloader.start([] { return Keys({key(1)}); },
                  [&](const base::Hash128&) {
                    begun.set_value();
                    may_end.get_future().wait();
                    has_ended = true;
                    return nullptr;
                  });
  begun.get_future().wait();
  const auto waiting = std::async(std::launch::async, [&] {
    preloader.take(key(1));
    EXPECT(has_ended);
  });
  EXPECT(waiting.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  may_end.set_value();
  waiting.wait();
}

TEST(test_a_failure_ends_the_thread_and_no_more) {
  Preloader preloader;
  for (const bool finding : {true, false}) {
    preloader.start(
        [finding]() -> Keys {
          if (finding) throw std::bad_alloc();
          return {key(1), key(2)};
        },
        [](const base::Hash128&) -> Preloader::ExecutablePtr { throw std::bad_alloc(); });
    EXPECT(preloader.take(key(1)) == nullptr);
    EXPECT(preloader.take(key(2)) == nullptr);
  }
}

TEST(test_a_damaged_list_names_no_more_programs_than_a_list_may) {
  const Directory directory;
  DiskCacheOptions lists{directory.path(), false, 1 << 20, kUseListExtension};
  DiskCache(lists).store(key(7), std::string(5000 * sizeof(base::Hash128), 'x'));
  EXPECT_EQ(UseList({directory.path()}, key(7)).last_run().size(), 16U);
}

TEST(test_stopping_leaves_the_rest_and_it_can_be_started_again) {
  Preloader preloader;
  std::atomic<std::size_t> num_loaded = 0;
  const Keys keys(20, key(1));
  const auto start = [&] {
    std::promise<void> begun;
    const std::size_t before = num_loaded;
    preloader.start([&] { return keys; },
                    [&](const base::Hash128&) {
                      if (num_loaded++ == before) begun.set_value();
                      std::this_thread::sleep_for(std::chrono::milliseconds(20));
                      return nullptr;
                    });
    begun.get_future().wait();
    preloader.stop();
    return num_loaded - before;
  };
  EXPECT(start() < keys.size());
  EXPECT(start() < keys.size());
}

TEST(test_the_script_is_the_command_without_its_arguments) {
  const std::string script = script_of_process();
  EXPECT(script.find("runtime") != script.npos);
}

}  // namespace
}  // namespace torch_xla::runtime
