// Blocks are mapped one by one; of what the system has mapped, any pages may be used or given back
// by themselves.
#include "base/kept_blocks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <new>
#include <vector>

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
  void* block = find(num_bytes);
  if (block == nullptr) block = map(num_bytes);
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
  add_kept(block, num_bytes, num_kept_++);
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

// A kept block; nullptr if one has to be mapped. `num_bytes` becomes its size.
void* KeptBlocks::find(std::size_t& num_bytes) {
  const auto found = kept_.lower_bound(num_bytes);
  if (found != kept_.end() && found->first <= num_bytes + num_bytes / 4) {
    num_bytes = found->first;
    return take(found);
  }
  if (sizes_.kept < num_bytes) return nullptr;
  if (void* const block = split(num_bytes)) return block;
  join_neighbours();
  return split(num_bytes);
}

// The beginning of the smallest one that is large enough.
void* KeptBlocks::split(std::size_t num_bytes) {
  const auto found = kept_.lower_bound(num_bytes);
  if (found == kept_.end()) return nullptr;
  const std::size_t rest = found->first - num_bytes;
  const std::uint64_t age = found->second.age;
  auto* const block = static_cast<std::byte*>(take(found));
  if (rest > 0) add_kept(block + num_bytes, rest, age);
  return block;
}

void KeptBlocks::join_neighbours() {
  std::vector<KeptOnes::iterator> by_address;
  try {
    by_address.reserve(kept_.size());
  } catch (const std::bad_alloc&) {
    return;
  }
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) by_address.push_back(kept);
  const auto address = [](KeptOnes::iterator kept) { return kept->second.block; };
  std::ranges::sort(by_address, std::less(), address);
  for (std::size_t i = 0; i < by_address.size();) {
    std::size_t num_bytes = 0;
    std::uint64_t age = 0;
    auto* const block = static_cast<std::byte*>(address(by_address[i]));
    for (; i < by_address.size() && address(by_address[i]) == block + num_bytes; ++i) {
      num_bytes += by_address[i]->first;
      age = std::max(age, by_address[i]->second.age);
      take(by_address[i]);
    }
    add_kept(block, num_bytes, age);
  }
}

// Where memory ends, it is given back.
void KeptBlocks::add_kept(void* block, std::size_t num_bytes, std::uint64_t age) {
  try {
    kept_.emplace(num_bytes, Kept{block, age});
    sizes_.kept += num_bytes;
  } catch (const std::bad_alloc&) {
    munmap(block, num_bytes);
  }
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
