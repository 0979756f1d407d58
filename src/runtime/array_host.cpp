// The ways of an array from and to the host: an upload hands each device its slice, a download puts
// the slices together again. What lies in one piece on the host is copied without a stop.
#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "pjrt/client.h"
#include "runtime/array.h"
#include "runtime/device.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {
namespace {

// One device's part of an array.
struct Shard {
  base::Shape local_shape;
  base::Slice slice;

  // Whether it is one piece of the host's memory, and the device's memory is no more than that.
  bool is_one_piece(const base::Shape& shape) const {
    if (slice.sizes != local_shape.dims) return false;
    for (std::size_t d = 1; d < shape.dims.size(); ++d) {
      if (slice.sizes[d] != shape.dims[d]) return false;
    }
    return true;
  }
  // Where that piece begins, in bytes.
  std::int64_t offset(const base::Shape& shape) const {
    if (shape.dims.empty() || slice.starts[0] == 0) return 0;
    return shape.num_bytes() / shape.dims[0] * slice.starts[0];
  }
};

// `place` is among all that the device stands for.
Shard shard_of(const base::Shape& shape, const base::Sharding* sharding, std::size_t place) {
  if (is_whole(sharding)) return {shape, {base::Dims(shape.dims.size()), shape.dims}};
  return {sharding->local_shape(shape), sharding->slice(shape, place)};
}

pjrt::Buffer upload_shard(pjrt::Device& to, const void* data, const base::Shape& shape,
                          const Shard& shard, bool copy_during_call) {
  const auto copy = [&](const void* from, bool is_during_call) {
    return to.client().buffer_from_host_buffer(
        from, shape.dtype, shard.local_shape.dims, {}, &to,
        is_during_call ? pjrt::HostBufferSemantics::kImmutableOnlyDuringCall
                       : pjrt::HostBufferSemantics::kImmutableUntilTransferCompletes);
  };
  if (shard.is_one_piece(shape)) {
    return copy(static_cast<const char*>(data) + shard.offset(shape), copy_during_call);
  }
  std::vector<char> local(static_cast<std::size_t>(shard.local_shape.num_bytes()));
  gather(data, shape, shard.slice, local.data(), shard.local_shape);
  return copy(local.data(), true);
}

std::vector<pjrt::Buffer> upload_to(Device& device, const void* data, const base::Shape& shape,
                                    const base::Sharding* sharding, bool copy_during_call) {
  const std::span<pjrt::Device* const> devices = device.pjrt_devices();
  std::vector<pjrt::Buffer> buffers;
  buffers.reserve(devices.size());
  for (std::size_t place = 0; place < devices.size(); ++place) {
    const Shard shard = shard_of(shape, sharding, device.place_of(place));
    buffers.push_back(upload_shard(*devices[place], data, shape, shard, copy_during_call));
  }
  return buffers;
}

}  // namespace

ArrayPtr Array::upload(Device& device, const void* data, base::Shape shape,
                       const base::Sharding* sharding, bool copy_during_call) {
  std::vector<pjrt::Buffer> buffers = upload_to(device, data, shape, sharding, copy_during_call);
  return make_launched(device, std::move(buffers), std::move(shape), sharding);
}

void Array::set_uploaded(const void* data) {
  set_launched(upload_to(device(), data, shape(), sharding_, true), nullptr);
}

HostCopy Array::download(void* destination) const {
  HostCopy result;
  result.array_ = this;
  result.destination_ = destination;
  if (!has_room()) buffers();    // throws the error of an array that failed
  std::vector<base::Dims> seen;  // where the parts begin that some device has been asked for
  for (std::size_t place = 0; place < buffers_.size(); ++place) {
    Shard shard = has_room() ? Shard{memory_shape(), {base::Dims(room_.size()), shape().dims}}
                             : shard_of(shape(), sharding_, device_->place_of(place));
    if (std::ranges::find(seen, shard.slice.starts) != seen.end()) continue;
    seen.push_back(shard.slice.starts);
    const auto size = static_cast<std::size_t>(shard.local_shape.num_bytes());
    void* to = static_cast<char*>(destination) + shard.offset(shape());
    if (!shard.is_one_piece(shape())) {
      result.parts_.push_back(
          {std::vector<char>(size), std::move(shard.local_shape), std::move(shard.slice)});
      to = result.parts_.back().bytes.data();
    }
    result.events_.push_back(buffers_[place].to_host(to, size));
  }
  return result;
}

pjrt::Buffer Array::copy_with_room(const base::Dims& room) const {
  await_value();
  std::vector<char> elements(static_cast<std::size_t>(shape().num_bytes()));
  download(elements.data()).await();
  const base::Shape memory{shape().dtype, room};
  pjrt::Device& to = device_->any_pjrt_device();
  const base::Slice all{base::Dims(room.size()), shape().dims};
  return upload_shard(to, elements.data(), shape(), {memory, all}, true);
}

const std::vector<pjrt::Buffer>& Array::buffers_without_room() const {
  static auto* const mutex = new std::mutex();
  const std::lock_guard lock(*mutex);
  if (without_room_.empty()) without_room_.push_back(copy_with_room(shape().dims));
  return without_room_;
}

HostCopy::~HostCopy() {
  try {
    await_events();
  } catch (const std::exception&) {
    // Whoever wants the value has awaited it.
  }
}

void HostCopy::await_events() {
  std::exception_ptr failure;
  for (const pjrt::Event& event : events_) {
    try {
      await_watched(event, [&] {
        return base::str("the copy of ", base::to_string(array_->shape()),
                         " from xla:", array_->device().ordinal());
      });
    } catch (const pjrt::Error&) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  events_.clear();
  if (failure != nullptr) std::rethrow_exception(failure);
}

void HostCopy::await() {
  await_events();
  for (const Part& part : parts_) {
    scatter(part.bytes.data(), part.local_shape, destination_, array_->shape(), part.slice);
  }
  parts_.clear();
}

}  // namespace torch_xla::runtime
