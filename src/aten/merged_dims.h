// The dimensions of what is moved from one array to another, as few as describe where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace torch_xla::aten {

// A dimension of a dense result, with the distance of its elements in the operand, which is 0 for
// one that repeats what is within, and in the result.
struct MergedDim {
  std::int64_t size;
  std::int64_t from;
  std::int64_t to;
};

// Of a result of these sizes, without those of one element; what lies together in both is one. The
// last comes first.
inline std::vector<MergedDim> merged_dims(std::span<const std::int64_t> sizes,
                                          std::span<const std::int64_t> distances) {
  std::vector<MergedDim> dims;
  std::int64_t to = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (!dims.empty() && distances[i] == dims.back().from * dims.back().size) {
      dims.back().size *= sizes[i];
    } else {
      dims.push_back({sizes[i], distances[i], to});
    }
    to *= sizes[i];
  }
  return dims;
}

}  // namespace torch_xla::aten
