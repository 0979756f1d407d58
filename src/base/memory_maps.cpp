// Counting lines of /proc, and asking for memory.
#include "base/memory_maps.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/kept_blocks.h"

namespace torch_xla::base {

double share_of_memory_maps() {
  double limit = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> limit) || limit <= 0) return 0;
  std::ifstream maps("/proc/self/maps");
  const std::istreambuf_iterator<char> begin(maps);
  return static_cast<double>(std::count(begin, {}, '\n')) / limit;
}

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void give_back_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

bool can_allocate(std::size_t num_bytes) {
  if (num_bytes == 0) return true;
  const auto is_mapped = [&] {
    void* const memory =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    munmap(memory, num_bytes);
    return true;
  };
  if (is_mapped()) return true;
  kept_blocks().run_short();
  return is_mapped();
}

}  // namespace torch_xla::base
