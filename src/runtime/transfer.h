// Copies between host memory and devices, and between devices. Host data is dense and row-major.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/shape.h"
#include "runtime/array.h"
#include "runtime/device.h"

namespace torch_xla::runtime {

struct HostArray {
  const void* data;
  base::Shape shape;
};

// Each device gets all of it, or its part (`Array::upload`); the errors name the device and what
// fills it.
std::shared_ptr<Array> upload(Device& device, const void* data, base::Shape shape,
                              bool copy_during_call = true);
std::shared_ptr<Array> upload(Device& device, const void* data, base::Shape shape,
                              const base::Sharding* sharding);
// All transfers are started before the first is waited for.
std::vector<std::shared_ptr<Array>> upload(Device& device, std::span<const HostArray> sources,
                                           bool copy_during_call = true);

// While one lives, what this thread downloads is for an operator, of which something else tells (a
// fallback, a size that is data, an error that is looked for). It is timed as `OperatorReadTime`:
// `TransferFromDeviceTime` is of the reads that the user wrote.
class ReadsForOperator {
 public:
  ReadsForOperator();
  ~ReadsForOperator();
  ReadsForOperator(const ReadsForOperator&) = delete;
  ReadsForOperator& operator=(const ReadsForOperator&) = delete;

 private:
  const bool before_;
};

// Blocks until the value is there and copied; `destination` must hold `shape().num_bytes()`.
void download(Array& array, void* destination);
struct Download {
  Array* array;
  void* destination;
};
void download(std::span<const Download> downloads);

// The same value that lies otherwise on its device, by way of the host. Blocks until it is there.
std::shared_ptr<Array> reshard(Array& array, const base::Sharding* sharding);

// A copy of the value on another device of the client. Blocks until the source's launch has
// started, not until its value is there.
std::shared_ptr<Array> copy_to_device(Array& array, Device& to);

}  // namespace torch_xla::runtime
