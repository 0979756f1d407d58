// Buffers of single devices on their way.
#include "runtime/shard_transfer.h"

#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "pjrt/client.h"
#include "pjrt/error.h"

namespace torch_xla::runtime {

void download_shard(Array& array, std::size_t place, void* destination) {
  static base::Metric& time = base::metric("TransferFromDeviceTime");
  static base::Metric& bytes = base::metric("InboundData", base::MetricKind::kBytes);
  array.wait_ready();
  const base::TimedSection timed(time);
  const base::Shape local = base::local_shape(array.shape(), array.sharding());
  const auto size = static_cast<std::size_t>(local.num_bytes());
  try {
    array.buffers()[place].to_host(destination, size).await();
  } catch (const pjrt::Error& error) {
    array.raise(error);
  }
  bytes.record(static_cast<double>(size));
}

ShardUpload::ShardUpload(Device& device, base::Shape shape, const base::Sharding* sharding)
    : device_(device),
      shape_(std::move(shape)),
      sharding_(sharding),
      buffers_(device.pjrt_devices().size()) {
  base::check(base::is_whole(sharding) || sharding->divides(shape_), "the parts of ",
              base::to_string(shape_), " are not of one size");
}

void ShardUpload::put(std::size_t place, const void* data) {
  static base::Metric& time = base::metric("TransferToDeviceTime");
  static base::Metric& bytes = base::metric("OutboundData", base::MetricKind::kBytes);
  const base::TimedSection timed(time);
  pjrt::Device& to = *device_.pjrt_devices()[place];
  const base::Shape local = local_shape();
  buffers_[place] = to.client().buffer_from_host_buffer(
      data, local.dtype, local.dims, {}, &to, pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
  bytes.record(static_cast<double>(local.num_bytes()));
}

void ShardUpload::get(std::size_t place, void* destination) const {
  base::internal_check(buffers_[place].has_value(), "device ", place, " has no part yet");
  const auto size = static_cast<std::size_t>(local_shape().num_bytes());
  buffers_[place]->to_host(destination, size).await();
}

ArrayPtr ShardUpload::finish() {
  std::vector<pjrt::Buffer> buffers;
  for (std::optional<pjrt::Buffer>& buffer : buffers_) {
    base::check(buffer.has_value(), "device ", buffers.size(), " got no part of ",
                base::to_string(shape_));
    buffers.push_back(std::move(*buffer));
  }
  buffers_.clear();
  return Array::make_launched(device_, std::move(buffers), shape_, sharding_);
}

}  // namespace torch_xla::runtime
