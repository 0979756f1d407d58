// The pool: blocks are distinct while they live, whoever frees them, also while threads end.
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "base/pool.h"
#include "check.h"

namespace torch_xla::base {
namespace {

TEST(blocks_do_not_overlap) {
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (std::size_t size = 1; size <= 700; ++size) {
    auto* block = static_cast<unsigned char*>(pool_allocate(size));
    std::memset(block, static_cast<int>(size % 251), size);
    blocks.emplace_back(block, size);
  }
  bool is_intact = true;
  for (const auto& [block, size] : blocks) {
    for (std::size_t i = 0; i < size; ++i) is_intact = is_intact && block[i] == size % 251;
    pool_free(block, size);
  }
  EXPECT(is_intact);
}

TEST(blocks_that_another_thread_freed_are_used_again) {
  constexpr std::size_t kBlocks = 1000;
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(pool_allocate(48));
    EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), kBlocks);
    std::thread([&] {
      for (void* block : blocks) pool_free(block, 48);
    }).join();
  }
}

// Frees in the destructor of a thread-local object, when the thread's lists may be gone.
struct FreesAtThreadEnd {
  void* block = nullptr;
  ~FreesAtThreadEnd() { pool_free(block, 64); }
};

TEST(a_thread_frees_while_it_ends) {
  for (int i = 0; i < 10; ++i) {
    std::thread([] {
      thread_local FreesAtThreadEnd late;
      late.block = pool_allocate(64);
    }).join();
  }
  void* const block = pool_allocate(64);
  EXPECT(block != nullptr);
  pool_free(block, 64);
}

}  // namespace
}  // namespace torch_xla::base
