// How near the process is to the system's limits of memory mappings and of memory.
#pragma once

#include <cstddef>

namespace torch_xla::base {

// The mappings in use divided by `vm.max_map_count`; 0 where the system has no such limit. Takes
// some milliseconds when there are many. At the limit `mmap` fails, whatever memory is free: XLA
// for CPU maps some thirty regions per program, and ends the process when it can't.
double share_of_memory_maps();

// All that the machine has, in bytes.
std::size_t physical_memory();

// Gives the system what the allocator keeps of freed memory; some milliseconds per hundred
// megabytes. Nothing with an allocator that is not glibc's.
void give_back_freed_memory();

// Whether the system would give this process so much memory now. It takes none.
bool can_allocate(std::size_t num_bytes);

}  // namespace torch_xla::base
