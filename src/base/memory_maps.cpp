// Counting lines of /proc.
#include "base/memory_maps.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace torch_xla::base {

double share_of_memory_maps() {
  double limit = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> limit) || limit <= 0) return 0;
  std::ifstream maps("/proc/self/maps");
  const std::istreambuf_iterator<char> begin(maps);
  return static_cast<double>(std::count(begin, {}, '\n')) / limit;
}

}  // namespace torch_xla::base
