// Transfers and what the metrics say of them.
#include "runtime/transfer.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "pjrt/client.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {
namespace {

void record_transfer_to_device(std::int64_t num_bytes) {
  // As torch_xla counts, seen from the host: what leaves it is outbound.
  static base::Metric& bytes = base::metric("OutboundData", base::MetricKind::kBytes);
  bytes.record(static_cast<double>(num_bytes));
}

pjrt::HostBufferSemantics semantics(bool copy_during_call) {
  return copy_during_call ? pjrt::HostBufferSemantics::kImmutableOnlyDuringCall
                          : pjrt::HostBufferSemantics::kImmutableUntilTransferCompletes;
}

}  // namespace

ArrayPtr upload(Device& device, const void* data, base::Shape shape, bool copy_during_call) {
  const HostArray source = {data, std::move(shape)};
  return upload(device, std::span(&source, 1), copy_during_call).front();
}

std::vector<ArrayPtr> upload(Device& device, std::span<const HostArray> sources,
                             bool copy_during_call) {
  static base::Metric& time = base::metric("TransferToDeviceTime");
  const base::TimedSection timed(time);
  // The same under the names that reports of torch_xla have for it.
  static base::Metric& to_data = base::metric("TensorToData");
  const base::TimedSection timed_data(to_data);
  pjrt::Device& target = device.pjrt_device();
  std::vector<ArrayPtr> arrays;
  arrays.reserve(sources.size());
  std::int64_t num_bytes = 0;
  const graph::Location location = graph::current_location();
  for (const HostArray& source : sources) {
    try {
      pjrt::Buffer buffer = target.client().buffer_from_host_buffer(source.data, source.shape.dtype,
                                                                    source.shape.dims, {}, &target,
                                                                    semantics(copy_during_call));
      arrays.push_back(Array::make_launched(device, std::move(buffer), source.shape));
    } catch (const base::Error& error) {
      if (error.kind() != base::ErrorKind::kOutOfMemory) throw;
      base::fail(error.kind(), "copying ", base::to_string(source.shape),
                 " to xla:", device.ordinal(), " failed: ", error.what(), "\n",
                 describe_memory(device));
    }
    arrays.back()->set_location(location);
    num_bytes += source.shape.num_bytes();
  }
  record_transfer_to_device(num_bytes);
  return arrays;
}

void download(Array& array, void* destination) {
  const Download one = {&array, destination};
  download(std::span(&one, 1));
}

void download(std::span<const Download> downloads) {
  static base::Metric& time = base::metric("TransferFromDeviceTime");
  static base::Metric& bytes = base::metric("InboundData", base::MetricKind::kBytes);
  // The wait for the programs is not the transfer's time.
  for (const Download& download : downloads) download.array->wait_ready();
  const base::TimedSection timed(time);
  std::vector<pjrt::Event> events;
  events.reserve(downloads.size());
  std::int64_t num_bytes = 0;
  const auto start = [&](const Download& download) {
    const std::int64_t size = download.array->shape().num_bytes();
    num_bytes += size;
    events.push_back(
        download.array->buffer().to_host(download.destination, static_cast<std::size_t>(size)));
  };
  std::exception_ptr failure;
  const auto attempt = [&](const Download& download, const auto& body) {
    try {
      body();
    } catch (const pjrt::Error& error) {
      try {
        download.array->raise(error);
      } catch (...) {
        if (failure == nullptr) failure = std::current_exception();
      }
    }
  };
  std::size_t num_started = 0;
  for (; num_started < downloads.size() && failure == nullptr; ++num_started) {
    attempt(downloads[num_started], [&] { start(downloads[num_started]); });
  }
  // Also after a failure: what was started writes to the callers' memory until it has ended.
  for (std::size_t i = 0; i < events.size(); ++i) {
    attempt(downloads[i], [&] {
      await_watched(events[i], [&] {
        return base::str("the copy of ", base::to_string(downloads[i].array->shape()),
                         " from xla:", downloads[i].array->device().ordinal());
      });
    });
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  bytes.record(static_cast<double>(num_bytes));
}

ArrayPtr copy_to_device(Array& array, Device& to) {
  array.wait_launched();
  try {
    return Array::make_launched(to, array.buffer().copy_to_device(&to.pjrt_device()),
                                array.shape());
  } catch (const pjrt::Error& error) {
    array.raise(error);
  }
}

}  // namespace torch_xla::runtime
