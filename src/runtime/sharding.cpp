// The table of shardings, and the arithmetic of their parts.
#include "runtime/sharding.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<base::Hash128, std::unique_ptr<const Sharding>> all;  // under mutex
};

Table& table() {
  // Never destroyed: arrays of static objects may outlive any order of destruction.
  static auto* const instance = new Table();
  return *instance;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void check_mesh(const Mesh& mesh, const std::vector<std::vector<int>>& axes) {
  base::check(std::ranges::all_of(mesh.sizes, [](std::int64_t size) { return size > 0; }),
              "mesh: its axes must have positive sizes, got ", base::to_string(mesh.sizes));
  const std::int64_t count = base::num_elements(mesh.sizes);
  std::vector<int> sorted = mesh.devices;
  std::ranges::sort(sorted);
  bool is_permutation = sorted.empty() || std::cmp_equal(sorted.size(), count);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    is_permutation = is_permutation && std::cmp_equal(sorted[i], i);
  }
  base::check(is_permutation, "mesh: its ", count, " devices must be those from 0 to ", count - 1);
  std::vector<bool> is_used(mesh.sizes.size());
  for (const std::vector<int>& of_dimension : axes) {
    for (const int axis : of_dimension) {
      base::check(axis >= 0 && std::cmp_less(axis, mesh.sizes.size()), "sharding: the mesh has ",
                  mesh.sizes.size(), " axes, and none with number ", axis);
      const auto place = static_cast<std::size_t>(axis);
      base::check(!is_used[place], "sharding: axis ", axis, " splits two dimensions");
      is_used[place] = true;
    }
  }
}

base::Hash128 key_of(const Mesh& mesh, const std::vector<std::vector<int>>& axes) {
  base::Hasher hasher;
  hasher.add(mesh.sizes.size());
  for (const std::int64_t size : mesh.sizes) hasher.add(static_cast<std::uint64_t>(size));
  hasher.add(mesh.devices.size());
  for (const int device : mesh.devices) hasher.add(static_cast<std::uint64_t>(device));
  for (const std::vector<int>& of_dimension : axes) {
    hasher.add(of_dimension.size());
    for (const int axis : of_dimension) hasher.add(static_cast<std::uint64_t>(axis));
  }
  return hasher.finish();
}

// Of two dense arrays, in one of which the box starts at `starts`.
template <typename Copy>
void for_each_row(const base::Shape& whole, const Slice& slice, const base::Shape& local,
                  const Copy& copy) {
  if (base::num_elements(slice.sizes) == 0) return;
  const std::size_t rank = slice.sizes.size();
  const std::int64_t item = base::size_bytes(whole.dtype);
  const std::size_t row = static_cast<std::size_t>((rank == 0 ? 1 : slice.sizes[rank - 1]) * item);
  base::Dims index(rank);
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
    : mesh_(std::move(mesh)), axes_(std::move(axes)), key_(key_of(mesh_, axes_)) {
  const auto count = static_cast<std::size_t>(base::num_elements(mesh_.sizes));
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
  const std::lock_guard lock(table().mutex);
  std::unique_ptr<const Sharding>& entry = table().all[runtime::key_of(mesh, axes)];
  if (entry == nullptr) entry.reset(new Sharding(mesh, std::move(axes)));
  return entry.get();
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

void Sharding::check_rank(const base::Shape& shape) const {
  base::check(axes_.size() <= shape.dims.size(), "sharding: it splits ", axes_.size(),
              " dimensions, and the array is ", base::to_string(shape));
}

base::Shape Sharding::local_shape(const base::Shape& shape) const {
  check_rank(shape);
  base::Shape local = shape;
  for (std::size_t d = 0; d < axes_.size(); ++d) {
    local.dims[d] = ceil_divide(shape.dims[d], num_parts(d));
  }
  return local;
}

Slice Sharding::slice(const base::Shape& shape, std::size_t shard) const {
  check_rank(shape);
  Slice slice{base::Dims(shape.dims.size()), shape.dims};
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

std::int64_t num_bytes(const base::Shape& shape, const Sharding* sharding) {
  return local_shape(shape, sharding).num_bytes() * static_cast<std::int64_t>(num_shards(sharding));
}

void gather(const void* whole, const base::Shape& shape, const Slice& slice, void* local,
            const base::Shape& local_shape) {
  for_each_row(shape, slice, local_shape,
               [&](std::int64_t of_whole, std::int64_t of_local, std::size_t size) {
                 std::memcpy(static_cast<char*>(local) + of_local,
                             static_cast<const char*>(whole) + of_whole, size);
               });
}

void scatter(const void* local, const base::Shape& local_shape, void* whole,
             const base::Shape& shape, const Slice& slice) {
  for_each_row(shape, slice, local_shape,
               [&](std::int64_t of_whole, std::int64_t of_local, std::size_t size) {
                 std::memcpy(static_cast<char*>(whole) + of_whole,
                             static_cast<const char*>(local) + of_local, size);
               });
}

}  // namespace torch_xla::runtime
