// The table of shardings, and the arithmetic of their parts.
#include "base/sharding.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace torch_xla::base {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Sharding>> all;  // by text; under mutex
};

Table& table() {
  // Never destroyed: arrays of static objects may outlive any order of destruction.
  static auto* const instance = new Table();
  return *instance;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void check_mesh(const Mesh& mesh, const std::vector<std::vector<int>>& axes) {
  check(std::ranges::all_of(mesh.sizes, [](std::int64_t size) { return size > 0; }),
        "mesh: its axes must have positive sizes, got ", to_string(mesh.sizes));
  const std::int64_t count = num_elements(mesh.sizes);
  std::vector<int> sorted = mesh.devices;
  std::ranges::sort(sorted);
  bool is_permutation = sorted.empty() || std::cmp_equal(sorted.size(), count);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    is_permutation = is_permutation && std::cmp_equal(sorted[i], i);
  }
  check(is_permutation, "mesh: its ", count, " devices must be those from 0 to ", count - 1);
  check(mesh.names.empty() || mesh.names.size() == mesh.sizes.size(), "mesh: ", mesh.names.size(),
        " names for ", mesh.sizes.size(), " axes");
  std::vector<bool> is_used(mesh.sizes.size());
  for (const std::vector<int>& of_dimension : axes) {
    for (const int axis : of_dimension) {
      check(axis >= 0 && std::cmp_less(axis, mesh.sizes.size()), "sharding: the mesh has ",
            mesh.sizes.size(), " axes, and none with number ", axis);
      const auto place = static_cast<std::size_t>(axis);
      check(!is_used[place], "sharding: axis ", axis, " splits two dimensions");
      is_used[place] = true;
    }
  }
}

std::string text_of(const Mesh& mesh, const std::vector<std::vector<int>>& axes) {
  std::string text = axes_text(mesh);
  if (!mesh.devices.empty()) {
    text += str(" over ", to_string(Dims(mesh.devices.begin(), mesh.devices.end())));
  }
  text += " [";
  for (std::size_t d = 0; d < axes.size(); ++d) {
    text += d > 0 ? ", {" : "{";
    for (std::size_t i = 0; i < axes[d].size(); ++i) {
      text += str(i > 0 ? ", " : "", axis_text(mesh, axes[d][i]));
    }
    text += "}";
  }
  return text + "]";
}

Hash128 key_of(std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  return hasher.finish();
}

bool is_in_order(const std::vector<int>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!std::cmp_equal(devices[i], i)) return false;
  }
  return true;
}

// The axes in the order in which they split an array with so many dimensions, and behind them those
// along which devices hold the same.
std::vector<int> axes_in_order(const Sharding& sharding) {
  std::vector<int> order;
  for (const std::vector<int>& of_dimension : sharding.axes()) {
    order.insert(order.end(), of_dimension.begin(), of_dimension.end());
  }
  for (int axis = 0; std::cmp_less(axis, sharding.mesh().sizes.size()); ++axis) {
    if (std::ranges::find(order, axis) == order.end()) order.push_back(axis);
  }
  return order;
}

// The devices, with the last of these axes as the one that changes first.
Dims devices_by(const Mesh& mesh, const std::vector<int>& order) {
  Dims strides(mesh.sizes.size(), 1);
  for (std::size_t axis = strides.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * mesh.sizes[axis];
  }
  Dims places = {0};
  for (const int axis : order) {
    Dims further;
    for (const std::int64_t place : places) {
      for (std::int64_t i = 0; i < mesh.sizes[static_cast<std::size_t>(axis)]; ++i) {
        further.push_back(place + i * strides[static_cast<std::size_t>(axis)]);
      }
    }
    places = std::move(further);
  }
  if (mesh.devices.empty()) return places;
  for (std::int64_t& place : places) place = mesh.devices[static_cast<std::size_t>(place)];
  return places;
}

std::string numbers(const Dims& values) {
  std::string text;
  for (const std::int64_t value : values) text += str(text.empty() ? "" : ",", value);
  return text;
}

// Of two dense arrays, in one of which the box starts at `starts`.
template <typename Copy>
void for_each_row(const Shape& whole, const Slice& slice, const Shape& local, const Copy& copy) {
  if (num_elements(slice.sizes) == 0) return;
  const std::size_t rank = slice.sizes.size();
  const std::int64_t item = size_bytes(whole.dtype);
  const std::size_t row = static_cast<std::size_t>((rank == 0 ? 1 : slice.sizes[rank - 1]) * item);
  Dims index(rank);
  while (true) {
    std::int64_t of_whole = 0;
    std::int64_t of_local = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      of_whole = of_whole * whole.dims[d] + slice.starts[d] + index[d];
      of_local = of_local * local.dims[d] + index[d];
    }
    copy(of_whole * item, of_local * item, row);
    std::size_t d = rank == 0 ? 0 : rank - 1;  // the last one goes with the row
    while (d > 0 && ++index[d - 1] == slice.sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

Sharding::Sharding(Mesh mesh, std::vector<std::vector<int>> axes)
    : mesh_(std::move(mesh)),
      axes_(std::move(axes)),
      text_(text_of(mesh_, axes_)),
      key_(key_of(text_)) {
  const auto count = static_cast<std::size_t>(num_elements(mesh_.sizes));
  places_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t device =
        mesh_.devices.empty() ? i : static_cast<std::size_t>(mesh_.devices[i]);
    std::vector<std::int64_t>& place = places_[device];
    place.resize(mesh_.sizes.size());
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = place.size(); axis-- > 0; rest /= mesh_.sizes[axis]) {
      place[axis] = rest % mesh_.sizes[axis];
    }
  }
}

const Sharding* Sharding::make(const Mesh& mesh, std::vector<std::vector<int>> axes) {
  check_mesh(mesh, axes);
  while (!axes.empty() && axes.back().empty()) axes.pop_back();
  Mesh kept = mesh;
  if (is_in_order(kept.devices)) kept.devices.clear();
  const std::lock_guard lock(table().mutex);
  std::unique_ptr<const Sharding>& entry = table().all[text_of(kept, axes)];
  if (entry == nullptr) entry.reset(new Sharding(std::move(kept), std::move(axes)));
  return entry.get();
}

const Sharding* Sharding::find(std::string_view text) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().all.find(std::string(text));
  check(found != table().all.end(), "sharding: nothing lies like ", text);
  return found->second.get();
}

const Sharding* Sharding::replicated(std::size_t num_devices) {
  if (num_devices == 1) return nullptr;
  return make({{static_cast<std::int64_t>(num_devices)}}, {});
}

std::int64_t Sharding::num_parts(std::size_t dimension) const {
  std::int64_t parts = 1;
  for (const int axis : axes_[dimension]) parts *= mesh_.sizes[static_cast<std::size_t>(axis)];
  return parts;
}

void Sharding::check_rank(const Shape& shape) const {
  check(axes_.size() <= shape.dims.size(), "sharding: it splits ", axes_.size(),
        " dimensions, and the array is ", to_string(shape));
}

Shape Sharding::local_shape(const Shape& shape) const {
  check_rank(shape);
  Shape local = shape;
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    local.dims[d] = ceil_divide(shape.dims[d], num_parts(d));
  }
  return local;
}

bool Sharding::divides(const Shape& shape) const {
  check_rank(shape);
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    if (shape.dims[d] % num_parts(d) != 0) return false;
  }
  return true;
}

Slice Sharding::slice(const Shape& shape, std::size_t shard) const {
  check_rank(shape);
  Slice slice{Dims(shape.dims.size()), shape.dims};
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    std::int64_t part = 0;
    for (const int axis : axes_[d]) {
      const auto place = static_cast<std::size_t>(axis);
      part = part * mesh_.sizes[place] + places_[shard][place];
    }
    const std::int64_t size = ceil_divide(shape.dims[d], num_parts(d));
    slice.starts[d] = std::min(part * size, shape.dims[d]);
    slice.sizes[d] = std::min(size, shape.dims[d] - slice.starts[d]);
  }
  return slice;
}

std::string axis_text(const Mesh& mesh, int axis) {
  const std::string name =
      mesh.names.empty() ? str("axis", axis) : mesh.names[static_cast<std::size_t>(axis)];
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

std::string axes_text(const Mesh& mesh) {
  std::string text = "[";
  for (std::size_t i = 0; i < mesh.sizes.size(); ++i) {
    text += str(i > 0 ? ", " : "", axis_text(mesh, static_cast<int>(i)), "=", mesh.sizes[i]);
  }
  return text + "]";
}

std::string tiling_text(const Sharding& sharding, std::int64_t rank) {
  if (sharding.is_replicated()) return "{replicated}";
  const Mesh& mesh = sharding.mesh();
  Dims parts(static_cast<std::size_t>(rank), 1);
  std::int64_t copies = num_elements(mesh.sizes);
  for (std::size_t d = 0; d < sharding.axes().size(); ++d) {
    for (const int axis : sharding.axes()[d]) {
      parts[d] *= mesh.sizes[static_cast<std::size_t>(axis)];
    }
    copies /= parts[d];
  }
  if (copies > 1) parts.push_back(copies);
  return str("{devices=[", numbers(parts), "]", numbers(devices_by(mesh, axes_in_order(sharding))),
             copies > 1 ? " last_tile_dim_replicate}" : "}");
}

void gather(const void* whole, const Shape& shape, const Slice& slice, void* local,
            const Shape& local_shape) {
  for_each_row(shape, slice, local_shape,
               [&](std::int64_t of_whole, std::int64_t of_local, std::size_t size) {
                 std::memcpy(static_cast<char*>(local) + of_local,
                             static_cast<const char*>(whole) + of_whole, size);
               });
}

void scatter(const void* local, const Shape& local_shape, void* whole, const Shape& shape,
             const Slice& slice) {
  for_each_row(shape, slice, local_shape,
               [&](std::int64_t of_whole, std::int64_t of_local, std::size_t size) {
                 std::memcpy(static_cast<char*>(whole) + of_whole,
                             static_cast<const char*>(local) + of_local, size);
               });
}

}  // namespace torch_xla::base
