// Transfers and what the metrics say of them.
#include "runtime/transfer.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "pjrt/error.h"

namespace torch_xla::runtime {
namespace {

thread_local bool reads_for_operator = false;

void record_transfer_to_device(std::int64_t num_bytes) {
  // As torch_xla counts, seen from the host: what leaves it is outbound.
  static base::Metric& bytes = base::metric("OutboundData", base::MetricKind::kBytes);
  bytes.record(static_cast<double>(num_bytes));
}

}  // namespace

ArrayPtr upload(Device& device, const void* data, base::Shape shape, bool copy_during_call) {
  const HostArray source = {data, std::move(shape)};
  return std::move(upload(device, std::span(&source, 1), copy_during_call)[0]);
}

namespace {

std::vector<ArrayPtr> upload_all(Device& device, std::span<const HostArray> sources,
                                 const base::Sharding* sharding, bool copy_during_call) {
  static base::Metric& time = base::metric("TransferToDeviceTime");
  const base::TimedSection timed(time);
  // The same under the names that reports of torch_xla have for it.
  static base::Metric& to_data = base::metric("TensorToData");
  const base::TimedSection timed_data(to_data);
  std::vector<ArrayPtr> arrays;
  arrays.reserve(sources.size());
  std::int64_t num_bytes = 0;
  const graph::Location location = graph::current_location();
  for (const HostArray& source : sources) {
    try {
      arrays.push_back(
          Array::upload(device, source.data, source.shape, sharding, copy_during_call));
    } catch (const base::Error& error) {
      if (error.kind() != base::ErrorKind::kOutOfMemory) throw;
      base::fail(error.kind(), "copying ", base::to_string(source.shape),
                 " to xla:", device.ordinal(), " failed: ", error.what(), "\n",
                 describe_memory(device));
    }
    arrays.back()->set_location(location);
    num_bytes += arrays.back()->num_bytes();
  }
  record_transfer_to_device(num_bytes);
  return arrays;
}

}  // namespace

ReadsForOperator::ReadsForOperator() : before_(std::exchange(reads_for_operator, true)) {}
ReadsForOperator::~ReadsForOperator() { reads_for_operator = before_; }

std::vector<ArrayPtr> upload(Device& device, std::span<const HostArray> sources,
                             bool copy_during_call) {
  return upload_all(device, sources, device.whole(), copy_during_call);
}

ArrayPtr upload(Device& device, const void* data, base::Shape shape,
                const base::Sharding* sharding) {
  const HostArray source = {data, std::move(shape)};
  return std::move(upload_all(device, std::span(&source, 1), sharding, true)[0]);
}

namespace {

void check_complete(const Array& array) {
  base::check(array.is_complete(), "reading ", base::to_string(array.shape()),
              ": some of its parts are on devices of other processes. Read those of this process, "
              "as spmd.local_shards(t); or let all processes call full_tensor() of it first, or "
              "mark_sharding_with_gradients(t, mesh, (None, ...)), and read what that gives");
}

}  // namespace

void download(Array& array, void* destination) {
  const Download one = {&array, destination};
  download(std::span(&one, 1));
}

void download(std::span<const Download> downloads) {
  static base::Metric& by_user = base::metric("TransferFromDeviceTime");
  static base::Metric& by_operator = base::metric("OperatorReadTime");
  static base::Metric& bytes = base::metric("InboundData", base::MetricKind::kBytes);
  // The wait for the programs is not the transfer's time.
  for (const Download& download : downloads) {
    check_complete(*download.array);
    download.array->wait_ready();
  }
  const base::TimedSection timed(reads_for_operator ? by_operator : by_user);
  std::vector<HostCopy> copies;
  copies.reserve(downloads.size());
  std::int64_t num_bytes = 0;
  const auto start = [&](const Download& download) {
    num_bytes += download.array->shape().num_bytes();
    copies.push_back(download.array->download(download.destination));
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
  for (std::size_t i = 0; i < copies.size(); ++i) {
    attempt(downloads[i], [&] { copies[i].await(); });
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  bytes.record(static_cast<double>(num_bytes));
}

ArrayPtr reshard(Array& array, const base::Sharding* sharding) {
  static base::Counter& count = base::counter("ReshardData");
  count.add();
  std::vector<char> bytes(static_cast<std::size_t>(array.shape().num_bytes()));
  download(array, bytes.data());
  return upload(array.device(), bytes.data(), array.shape(), sharding);
}

ArrayPtr copy_to_device(Array& array, Device& to) {
  array.wait_launched();
  if (!is_whole(array.sharding())) {
    std::vector<char> bytes(static_cast<std::size_t>(array.shape().num_bytes()));
    download(array, bytes.data());
    return upload(to, bytes.data(), array.shape());
  }
  // All buffers are alike; the k-th device is given the k-th of them, as far as there are.
  const std::vector<pjrt::Buffer>& from = array.buffers();
  std::vector<pjrt::Buffer> buffers;
  buffers.reserve(to.pjrt_devices().size());
  try {
    for (pjrt::Device* const device : to.pjrt_devices()) {
      buffers.push_back(from[buffers.size() % from.size()].copy_to_device(device));
    }
  } catch (const pjrt::Error& error) {
    array.raise(error);
  }
  return Array::make_launched(to, std::move(buffers), array.shape(), to.whole());
}

}  // namespace torch_xla::runtime
