// Each block is a mapping of its own.
#include "base/kept_blocks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace torch_xla::base {
namespace {

// Vector instructions may read beyond the end.
constexpr std::size_t kSlackBytes = 64;

std::size_t mapped_bytes(std::size_t num_bytes) {
  constexpr std::size_t kPage = KeptBlocks::kAlignment;
  return (num_bytes + kSlackBytes + kPage - 1) / kPage * kPage;
}

}  // namespace

void* KeptBlocks::allocate(std::size_t num_bytes) noexcept {
  if (num_bytes > SIZE_MAX / 2) return nullptr;
  num_bytes = mapped_bytes(num_bytes);
  const std::lock_guard lock(mutex_);
  void* block = nullptr;
  const auto found = kept_.lower_bound(num_bytes);
  // A block that is larger by more is left for what needs it.
  if (found != kept_.end() && found->first <= num_bytes + num_bytes / 4) {
    num_bytes = found->first;
    block = take(found);
  } else {
    block = map(num_bytes);
  }
  if (block == nullptr) return nullptr;
  try {
    in_use_.emplace(block, num_bytes);
  } catch (const std::bad_alloc&) {
    munmap(block, num_bytes);
    return nullptr;
  }
  sizes_.in_use += num_bytes;
  sizes_.most_in_use = std::max(sizes_.most_in_use, sizes_.in_use);
  return block;
}

bool KeptBlocks::free(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(block);
  if (found == in_use_.end()) return false;
  const std::size_t num_bytes = found->second;
  in_use_.erase(found);
  sizes_.in_use -= num_bytes;
  try {
    kept_.emplace(num_bytes, Kept{block, num_kept_++});
    sizes_.kept += num_bytes;
  } catch (const std::bad_alloc&) {
    munmap(block, num_bytes);
  }
  if (!keeps_) unmap_until(0);
  return true;
}

std::size_t KeptBlocks::size_of(const void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(block);
  return found != in_use_.end() ? found->second : 0;
}

void KeptBlocks::keep() noexcept {
  const std::lock_guard lock(mutex_);
  keeps_ = std::chrono::steady_clock::now() >= keeps_from_;
}

void KeptBlocks::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  keeps_ = false;
  unmap_until(0);
  sizes_.most_in_use = sizes_.in_use;
}

void KeptBlocks::run_short() noexcept {
  const std::lock_guard lock(mutex_);
  unmap_for_others();
}

KeptBlocks::Sizes KeptBlocks::sizes() noexcept {
  const std::lock_guard lock(mutex_);
  return sizes_;
}

void* KeptBlocks::take(KeptOnes::iterator kept) {
  void* const block = kept->second.block;
  sizes_.kept -= kept->first;
  kept_.erase(kept);
  return block;
}

// The oldest first.
void KeptBlocks::unmap_until(std::size_t most_bytes) {
  const auto is_older = [](const auto& a, const auto& b) { return a.second.age < b.second.age; };
  while (sizes_.kept > most_bytes) {
    const auto oldest = std::min_element(kept_.begin(), kept_.end(), is_older);
    const std::size_t num_bytes = oldest->first;
    munmap(take(oldest), num_bytes);
  }
}

void KeptBlocks::unmap_for_others() {
  constexpr std::chrono::minutes kShortage(1);
  keeps_ = false;
  keeps_from_ = std::chrono::steady_clock::now() + kShortage;
  unmap_until(0);
}

void* KeptBlocks::map(std::size_t num_bytes) {
  const std::size_t in_use = sizes_.in_use + num_bytes;
  unmap_until(std::max(sizes_.most_in_use, in_use) - in_use);
  const auto mapped = [&] {
    return mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* block = mapped();
  if (block == MAP_FAILED) {
    unmap_for_others();
    block = mapped();
  }
  return block != MAP_FAILED ? block : nullptr;
}

KeptBlocks& kept_blocks() {
  static KeptBlocks& blocks = *[] {
    // So that a child finds the mutex unlocked.
    pthread_atfork([] { kept_blocks().mutex().lock(); }, [] { kept_blocks().mutex().unlock(); },
                   [] { kept_blocks().mutex().unlock(); });
    return new KeptBlocks;
  }();
  return blocks;
}

}  // namespace torch_xla::base
