// Blocks that are kept: distinct while they live, used again, bounded, and given back.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/kept_blocks.h"
#include "check.h"

namespace torch_xla::base {
namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

TEST(a_freed_block_is_used_again) {
  KeptBlocks blocks;
  blocks.keep();
  void* const block = blocks.allocate(kMegabyte);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % KeptBlocks::kAlignment, std::uintptr_t{0});
  std::memset(block, 1, kMegabyte);
  EXPECT(blocks.size_of(block) >= kMegabyte);
  EXPECT(blocks.free(block));
  EXPECT_EQ(blocks.size_of(block), std::size_t{0});
  EXPECT_EQ(blocks.sizes().in_use, std::size_t{0});
  EXPECT(blocks.sizes().kept >= kMegabyte);
  EXPECT_EQ(blocks.allocate(kMegabyte - 5000), block);
  EXPECT_EQ(blocks.sizes().kept, std::size_t{0});
  EXPECT(blocks.free(block));
}

TEST(what_is_none_of_the_blocks_is_left_alone) {
  KeptBlocks blocks;
  int other = 0;
  EXPECT(!blocks.free(&other));
  EXPECT(!blocks.free(nullptr));
  void* const block = blocks.allocate(kMegabyte);
  EXPECT(blocks.free(block));
  EXPECT(!blocks.free(block));
}

TEST(blocks_are_kept_between_keep_and_let_go) {
  KeptBlocks blocks;
  EXPECT(blocks.free(blocks.allocate(kMegabyte)));
  EXPECT_EQ(blocks.sizes().kept, std::size_t{0});
  blocks.keep();
  EXPECT(blocks.free(blocks.allocate(kMegabyte)));
  EXPECT(blocks.sizes().kept > 0);
  void* const block = blocks.allocate(2 * kMegabyte);
  blocks.let_go();
  EXPECT_EQ(blocks.sizes().kept, std::size_t{0});
  EXPECT_EQ(blocks.sizes().most_in_use, blocks.sizes().in_use);
  std::memset(block, 1, 2 * kMegabyte);
  EXPECT(blocks.free(block));
  EXPECT_EQ(blocks.sizes().kept, std::size_t{0});
}

TEST(a_much_larger_block_is_split) {
  KeptBlocks blocks;
  blocks.keep();
  auto* const large = static_cast<char*>(blocks.allocate(4 * kMegabyte));
  std::memset(large, 1, 4 * kMegabyte);
  EXPECT(blocks.free(large));
  const std::size_t all = blocks.sizes().kept;
  auto* const first = static_cast<char*>(blocks.allocate(kMegabyte));
  auto* const second = static_cast<char*>(blocks.allocate(kMegabyte));
  EXPECT_EQ(first, large);
  EXPECT_EQ(second, large + blocks.size_of(first));
  EXPECT_EQ(blocks.sizes().in_use + blocks.sizes().kept, all);
  std::memset(second, 2, blocks.size_of(second));
  EXPECT_EQ(first[kMegabyte - 1], 1);
  EXPECT(blocks.free(first));
  EXPECT(blocks.free(second));
  EXPECT_EQ(blocks.sizes().kept, all);
}

TEST(neighbours_are_joined) {
  KeptBlocks blocks;
  blocks.keep();
  void* const large = blocks.allocate(4 * kMegabyte);
  EXPECT(blocks.free(large));
  std::vector<void*> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(blocks.allocate(kMegabyte));
  for (void* const part : parts) EXPECT(blocks.free(part));
  const std::size_t all = blocks.sizes().kept;
  EXPECT_EQ(blocks.allocate(4 * kMegabyte), large);
  EXPECT_EQ(blocks.sizes().in_use + blocks.sizes().kept, all);
  EXPECT(blocks.free(large));
}

TEST(all_blocks_are_no_more_than_were_in_use_at_one_time) {
  KeptBlocks blocks;
  blocks.keep();
  for (int round = 0; round < 3; ++round) {
    for (std::size_t size = 1; size <= 40; ++size) {
      void* const first = blocks.allocate(size * kMegabyte);
      void* const second = blocks.allocate((41 - size) * kMegabyte);
      EXPECT(first != second);
      const KeptBlocks::Sizes sizes = blocks.sizes();
      EXPECT(sizes.in_use + sizes.kept <= sizes.most_in_use);
      EXPECT(sizes.most_in_use <= 60 * kMegabyte);
      EXPECT(blocks.free(first));
      EXPECT(blocks.free(second));
    }
  }
}

TEST(more_than_there_is_gives_nothing) {
  KeptBlocks blocks;
  blocks.keep();
  EXPECT(blocks.free(blocks.allocate(kMegabyte)));
  EXPECT_EQ(blocks.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(blocks.allocate(std::size_t{1} << 62), nullptr);
  EXPECT_EQ(blocks.sizes().in_use, std::size_t{0});
}

TEST(nothing_is_kept_where_memory_runs_short) {
  KeptBlocks blocks;
  blocks.keep();
  EXPECT(blocks.free(blocks.allocate(kMegabyte)));
  EXPECT(blocks.sizes().kept >= kMegabyte);
  blocks.run_short();
  EXPECT_EQ(blocks.sizes().kept, std::size_t{0});
  blocks.keep();
  EXPECT(blocks.free(blocks.allocate(kMegabyte)));
  EXPECT_EQ(blocks.sizes().kept, std::size_t{0});
}

TEST(threads_get_blocks_of_their_own) {
  KeptBlocks blocks;
  blocks.keep();
  std::atomic<int> num_wrong{0};
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const std::size_t size = KeptBlocks::kLeastBytes * (1 + i % 5);
        auto* const block = static_cast<unsigned char*>(blocks.allocate(size));
        std::memset(block, t, size);
        if (i % 50 == 0) blocks.let_go();
        blocks.keep();
        if (block[0] != t || block[size - 1] != t || !blocks.free(block)) ++num_wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong.load(), 0);
  EXPECT_EQ(blocks.sizes().in_use, std::size_t{0});
}

TEST(a_child_that_is_forked_meanwhile_finds_no_lock) {
  static_cast<void>(kept_blocks());  // made as the plugin is loaded, not beside a fork
  std::atomic<bool> is_over{false};
  std::thread busy([&] {
    while (!is_over) kept_blocks().free(kept_blocks().allocate(kMegabyte));
  });
  bool all_ended = true;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(kept_blocks().free(kept_blocks().allocate(kMegabyte)) ? 7 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    all_ended = all_ended && WIFEXITED(status) && WEXITSTATUS(status) == 7;
  }
  is_over = true;
  busy.join();
  EXPECT(all_ended);
}

}  // namespace
}  // namespace torch_xla::base
