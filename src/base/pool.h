// Memory for the small objects that recording makes by the thousand and a barrier frees at once,
// often on another thread. malloc serves that pattern badly: its per-thread caches hold a few
// blocks and all others are merged and split again. Here a thread keeps lists of free blocks by
// size and trades whole batches of them with other threads. The memory is kept until the process
// ends.
#pragma once

#include <cstddef>

namespace torch_xla::base {

// Aligned for any type without extended alignment. Throws std::bad_alloc.
void* pool_allocate(std::size_t size);
// `size` must be what the block was allocated with; any thread may free it.
void pool_free(void* block, std::size_t size) noexcept;

// Makes `new` and `delete` of a class and the classes derived from it use the pool.
class Pooled {
 public:
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* block, std::size_t size) noexcept { pool_free(block, size); }

 protected:
  Pooled() = default;
  ~Pooled() = default;
};

}  // namespace torch_xla::base
