// Lists of free blocks per thread and size, and the batches between threads.
#include "base/pool.h"

#include <array>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TORCH_XLA_POOL_IS_MALLOC 1
#else
#define TORCH_XLA_POOL_IS_MALLOC 0
#endif

namespace torch_xla::base {
namespace {

constexpr std::size_t kGranularity = 32;
constexpr std::size_t kNumClasses = 16;
constexpr std::size_t kBatch = 64;

struct Block {
  Block* next;
};

std::size_t class_of(std::size_t size) { return (size + kGranularity - 1) / kGranularity - 1; }

// The batches that threads trade, one per size. Never destroyed: blocks are freed at exit, too.
struct Exchange {
  std::mutex mutex;
  std::vector<Block*> batches;  // under mutex
};

Exchange& exchange(std::size_t size_class) {
  static auto* const exchanges = new std::array<Exchange, kNumClasses>();
  return (*exchanges)[size_class];
}

Block* new_batch(std::size_t size_class) {
  const std::size_t size = (size_class + 1) * kGranularity;
  auto* memory = static_cast<std::byte*>(::operator new(size * kBatch));
  Block* head = nullptr;
  for (std::size_t i = kBatch; i-- > 0;) head = new (memory + i * size) Block{head};
  return head;
}

Block* take_batch(std::size_t size_class) {
  Exchange& from = exchange(size_class);
  {
    const std::lock_guard lock(from.mutex);
    if (!from.batches.empty()) {
      Block* const batch = from.batches.back();
      from.batches.pop_back();
      return batch;
    }
  }
  return new_batch(size_class);
}

void give_batch(std::size_t size_class, Block* batch) {
  Exchange& to = exchange(size_class);
  const std::lock_guard lock(to.mutex);
  to.batches.push_back(batch);
}

// What one thread has free. `full` is a batch in reserve, so that a thread that allocates and frees
// at a batch's border trades nothing.
struct FreeList {
  Block* head = nullptr;
  std::size_t count = 0;
  Block* full = nullptr;
};
using ThreadLists = std::array<FreeList, kNumClasses>;

thread_local ThreadLists* lists = nullptr;
thread_local bool has_ended = false;

struct ListsOwner {
  ThreadLists lists_of_thread;
  ~ListsOwner() {
    lists = nullptr;
    has_ended = true;
    for (std::size_t i = 0; i < kNumClasses; ++i) {
      if (lists_of_thread[i].head != nullptr) give_batch(i, lists_of_thread[i].head);
      if (lists_of_thread[i].full != nullptr) give_batch(i, lists_of_thread[i].full);
    }
  }
};

// Null while the thread's other thread-local objects are destroyed.
ThreadLists* make_lists() {
  if (has_ended) return nullptr;
  thread_local ListsOwner owner;
  return lists = &owner.lists_of_thread;
}

void* allocate_slowly(std::size_t size_class) {
  ThreadLists* const mine = lists != nullptr ? lists : make_lists();
  if (mine == nullptr) return ::operator new((size_class + 1) * kGranularity);
  FreeList& list = (*mine)[size_class];
  Block* const block =
      list.full != nullptr ? std::exchange(list.full, nullptr) : take_batch(size_class);
  // A batch from a thread that ended may hold fewer blocks; the count only says when to trade.
  list.head = block->next;
  list.count = kBatch - 1;
  return block;
}

void free_slowly(Block* block, std::size_t size_class) {
  ThreadLists* const mine = lists != nullptr ? lists : make_lists();
  if (mine == nullptr) {
    block->next = nullptr;
    give_batch(size_class, block);
    return;
  }
  FreeList& list = (*mine)[size_class];
  if (list.count >= kBatch) {
    if (list.full != nullptr) give_batch(size_class, list.full);
    list.full = std::exchange(list.head, nullptr);
    list.count = 0;
  }
  block->next = list.head;
  list.head = block;
  ++list.count;
}

bool is_pooled(std::size_t size) {
  return !TORCH_XLA_POOL_IS_MALLOC && size - 1 < kNumClasses * kGranularity;
}

}  // namespace

void* pool_allocate(std::size_t size) {
  if (!is_pooled(size)) return ::operator new(size);
  const std::size_t size_class = class_of(size);
  if (ThreadLists* const mine = lists) [[likely]] {
    FreeList& list = (*mine)[size_class];
    if (Block* const block = list.head) [[likely]] {
      list.head = block->next;
      if (list.count > 0) --list.count;
      return block;
    }
  }
  return allocate_slowly(size_class);
}

void pool_free(void* memory, std::size_t size) noexcept {
  if (!is_pooled(size)) {
    ::operator delete(memory);
    return;
  }
  const std::size_t size_class = class_of(size);
  auto* const block = static_cast<Block*>(memory);
  if (ThreadLists* const mine = lists) [[likely]] {
    FreeList& list = (*mine)[size_class];
    if (list.count < kBatch) [[likely]] {
      block->next = list.head;
      list.head = block;
      ++list.count;
      return;
    }
  }
  free_slowly(block, size_class);
}

}  // namespace torch_xla::base
