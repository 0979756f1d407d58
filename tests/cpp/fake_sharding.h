// How a partitioned program divides its parameters and results: `sdy.sharding` attributes over
// meshes like `sdy.mesh @mesh = <["x"=2, "y"=2]>`, in this form alone. A partition's number is its
// place on the mesh in row-major order.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fake_values.h"

namespace fake {

struct Axis {
  int stride = 1;  // between partitions that are neighbours along it
  int size = 1;
};
using Mesh = std::map<std::string, Axis>;

// The text between `open` and the next `close`, from `at` on; empty if there is none.
inline std::string_view enclosed(std::string_view text, std::string_view open,
                                 std::string_view close, std::size_t at = 0) {
  const std::size_t begin = text.find(open, at);
  if (begin == text.npos) return {};
  const std::size_t end = text.find(close, begin + open.size());
  if (end == text.npos) return {};
  return text.substr(begin + open.size(), end - begin - open.size());
}

// By name.
inline std::map<std::string, Mesh> parse_meshes(std::string_view text) {
  std::map<std::string, Mesh> meshes;
  constexpr std::string_view kMesh = "sdy.mesh @";
  for (std::size_t at = text.find(kMesh); at != text.npos; at = text.find(kMesh, at + 1)) {
    std::vector<std::pair<std::string, int>> axes;
    const std::string_view list = enclosed(text, "<[", "]", at);
    for (std::size_t quote = list.find('"'); quote != list.npos; quote = list.find('"', quote)) {
      const std::size_t end = list.find('"', quote + 1);
      axes.emplace_back(list.substr(quote + 1, end - quote - 1),
                        std::stoi(std::string(list.substr(end + 2))));
      quote = end + 1;
    }
    Mesh mesh;
    int stride = 1;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      mesh[axis->first] = {stride, axis->second};
      stride *= axis->second;
    }
    meshes[std::string(enclosed(text, "@", " ", at))] = mesh;
  }
  return meshes;
}

// The axes over which each dimension is divided, the slowest first. No dimensions: replicated.
struct Sharding {
  std::vector<std::vector<Axis>> dims;

  // Into how many parts a dimension is divided, and which of them a partition has.
  std::pair<std::int64_t, std::int64_t> part(std::size_t dim, int partition) const {
    std::int64_t count = 1;
    std::int64_t index = 0;
    if (dim >= dims.size()) return {count, index};
    for (const Axis& axis : dims[dim]) {
      count *= axis.size;
      index = index * axis.size + partition / axis.stride % axis.size;
    }
    return {count, index};
  }
};

// Of `{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}`; replicated without such an attribute.
inline Sharding parse_sharding(std::string_view attributes,
                               const std::map<std::string, Mesh>& meshes) {
  Sharding result;
  const std::string_view text = enclosed(attributes, "#sdy.sharding<@", "]");
  if (text.empty()) return result;
  const Mesh& mesh = meshes.at(std::string(text.substr(0, text.find(','))));
  for (std::size_t open = text.find('{'); open != text.npos; open = text.find('{', open + 1)) {
    std::vector<Axis>& dim = result.dims.emplace_back();
    const std::string_view names = text.substr(open, text.find('}', open) - open);
    for (std::size_t quote = names.find('"'); quote != names.npos;) {
      const std::size_t end = names.find('"', quote + 1);
      dim.push_back(mesh.at(std::string(names.substr(quote + 1, end - quote - 1))));
      quote = names.find('"', end + 1);
    }
  }
  return result;
}

// A box of an array: where it starts in each dimension, and the type it has by itself.
struct Part {
  std::vector<std::int64_t> starts;
  ArrayType type;
};

inline Part part_of(const ArrayType& whole, const Sharding& sharding, int partition) {
  Part result{{}, whole};
  for (std::size_t d = 0; d < whole.dims.size(); ++d) {
    const auto [count, index] = sharding.part(d, partition);
    if (whole.dims[d] % count != 0) {
      throw std::runtime_error("fake plugin: a dimension does not divide into equal parts");
    }
    result.type.dims[d] = whole.dims[d] / count;
    result.starts.push_back(index * result.type.dims[d]);
  }
  return result;
}

// Calls copy(offset in the whole, offset in the part), in bytes, for each element of the part.
template <typename Copy>
void for_each_element(const ArrayType& whole, const Part& part, Copy copy) {
  const std::int64_t element_size = info_of(whole.type).size_bytes;
  std::vector<std::int64_t> index(whole.dims.size(), 0);
  for (std::int64_t i = 0; i < part.type.num_elements(); ++i) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      offset = offset * whole.dims[d] + part.starts[d] + index[d];
    }
    copy(offset * element_size, i * element_size);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < part.type.dims[d]) break;
      index[d] = 0;
    }
  }
}

inline Value extract(const Value& whole, const Part& part) {
  Value result = zeros(part.type);
  const int size = info_of(whole.type.type).size_bytes;
  for_each_element(whole.type, part, [&](std::int64_t from, std::int64_t to) {
    std::copy_n(whole.bytes.data() + from, size, result.bytes.data() + to);
  });
  return result;
}

inline void insert(Value& whole, const Part& part, const Bytes& bytes) {
  const int size = info_of(whole.type.type).size_bytes;
  for_each_element(whole.type, part, [&](std::int64_t to, std::int64_t from) {
    std::copy_n(bytes.data() + from, size, whole.bytes.data() + to);
  });
}

}  // namespace fake
