// Large blocks of memory that are freed and taken again for each launch of a program. The C library
// gives such blocks back to the system, which hands out their pages one by one once more, at up to
// a microsecond for each 4 KiB.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace torch_xla::base {

// Freed blocks are kept between `keep` and `let_go`. All blocks together, kept or in use, are never
// more than what was in use at one time since the last `let_go`: what is kept is split and joined
// before others are taken from the system. All methods are thread-safe, and throw nothing.
class KeptBlocks {
 public:
  // Smaller ones the C library keeps itself.
  static constexpr std::size_t kLeastBytes = std::size_t{128} << 10;
  // What blocks are aligned to; those of the C library are in general not.
  static constexpr std::size_t kAlignment = 4096;

  struct Sizes {
    std::size_t in_use = 0;
    std::size_t kept = 0;
    std::size_t most_in_use = 0;  // since the last `let_go`
  };

  KeptBlocks() = default;
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;
  ~KeptBlocks() { let_go(); }

  // So many bytes, of which nothing is known; nullptr where the system has no more.
  void* allocate(std::size_t num_bytes) noexcept;
  // False, and nothing is done, if `block` is none of these.
  bool free(void* block) noexcept;
  // How large a block is; 0 if it is none of these.
  std::size_t size_of(const void* block) noexcept;

  void keep() noexcept;
  void let_go() noexcept;
  // The system has refused memory: nothing is kept for a minute, since others need some too.
  void run_short() noexcept;
  Sizes sizes() noexcept;

  // Held while the process forks.
  std::mutex& mutex() { return mutex_; }

 private:
  struct Kept {
    void* block = nullptr;
    std::uint64_t age = 0;
  };
  using KeptOnes = std::multimap<std::size_t, Kept>;  // by size

  // Under mutex_.
  void* find(std::size_t& num_bytes);
  void* split(std::size_t num_bytes);
  void join_neighbours();
  void add_kept(void* block, std::size_t num_bytes, std::uint64_t age);
  void* take(KeptOnes::iterator kept);
  void unmap_until(std::size_t most_bytes);
  void unmap_for_others();
  void* map(std::size_t num_bytes);

  std::mutex mutex_;
  std::unordered_map<const void*, std::size_t> in_use_;  // with their sizes
  KeptOnes kept_;
  Sizes sizes_;
  std::uint64_t num_kept_ = 0;
  bool keeps_ = false;
  std::chrono::steady_clock::time_point keeps_from_;  // the clock's beginning, as a rule
};

// Those of the process, which are never destroyed.
KeptBlocks& kept_blocks();

}  // namespace torch_xla::base
