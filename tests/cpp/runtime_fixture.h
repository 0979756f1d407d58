// What the tests of src/runtime share: a process-wide client on the fake or the real CPU plugin,
// and tensors of floats that are recorded, written and read as src/aten does it.
#pragma once

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "check.h"
#include "fake_plugin.h"
#include "pjrt/live_objects.h"
#include "plugins.h"
#include "recording.h"
#include "runtime/client.h"
#include "runtime/executor.h"
#include "runtime/inspect.h"
#include "runtime/transfer.h"

namespace torch_xla::testing {

// Serves the xla device by the plugin at `path` while it lives; afterwards nothing of the plugin
// may be left.
class Session {
 public:
  explicit Session(const std::string& path, std::int64_t num_devices = 1) {
    runtime::set_plugin_resolver([path, num_devices] {
      return runtime::PluginSpec{"CPU", path, {{"cpu_device_count", num_devices}}};
    });
  }
  ~Session() {
    runtime::shutdown();
    EXPECT(eventually([] { return pjrt::live_objects().total() == 0; }));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

// A copy of the fake plugin whose devices run programs on threads of their own, and its session.
class AsyncFake : public FakePlugin {
 public:
  explicit AsyncFake(std::int64_t num_devices = 1)
      : FakePlugin(copy_of(kFakePlugin)), session_((set_async(true), path()), num_devices) {}

 private:
  Session session_;
};

// True, and says so, when the test cannot run for want of the real CPU plugin. ThreadSanitizer does
// not see how that one hands work from thread to thread.
inline bool skip_without_cpu_plugin() {
#ifdef __SANITIZE_THREAD__
  std::cerr << "skipped: the CPU plugin is not instrumented\n";
  return true;
#endif
  if (has_cpu_plugin()) return false;
  std::cerr << "skipped: the CPU plugin is not installed\n";
  return true;
}

// A vector of floats on a device.
struct Tensor {
  runtime::Device* device;
  graph::AliasRef alias;

  const graph::TensorType* type() const { return alias->type(); }
};

inline Tensor tensor(runtime::Device& device, const std::vector<float>& values) {
  const graph::TensorType* type = f32({static_cast<std::int64_t>(values.size())});
  graph::DataPtr data = runtime::upload(device, values.data(), type->shape);
  Tensor result{&device,
                graph::Alias::make(device.live(), type, {graph::Node::make_leaf(data), 0})};
  const std::lock_guard lock(device.live().mutex);
  result.alias->settle(std::move(data));
  return result;
}

inline Tensor record(const graph::Entry* entry, const std::vector<Tensor>& operands,
                     const std::vector<std::uint64_t>& slots = {}) {
  runtime::Device& device = *operands.front().device;
  const std::lock_guard lock(device.live().mutex);
  std::vector<graph::Value> values;
  for (const Tensor& operand : operands) values.push_back(operand.alias->value());
  return {&device, device.live().add_locked(entry->outputs[0], call(entry, values, slots))};
}

// In place: the first operand becomes the result.
inline void write(const graph::Entry* entry, const std::vector<Tensor>& operands,
                  const std::vector<std::uint64_t>& slots = {}) {
  std::vector<graph::NodeRef> garbage;
  std::vector<graph::Value> values;
  const std::lock_guard lock(operands.front().device->live().mutex);
  for (const Tensor& operand : operands) values.push_back(operand.alias->value());
  operands.front().alias->write(call(entry, values, slots), garbage);
}

inline Tensor add(const Tensor& a, const Tensor& b) {
  return record(binary_entry("add.Tensor", a.type()), {a, b});
}
inline Tensor multiply(const Tensor& a, const Tensor& b) {
  return record(binary_entry("mul.Tensor", a.type()), {a, b});
}
inline void add_(const Tensor& a, const Tensor& b) {
  write(binary_entry("add.Tensor", a.type()), {a, b});
}
inline Tensor scale(const Tensor& a, double factor) {
  return record(scale_entry(a.type()), {a}, {bits(factor)});
}
inline Tensor slice(const Tensor& a, std::uint64_t start, std::int64_t length) {
  return record(slice_entry(a.type(), length), {a}, {start});
}

inline runtime::ArrayPtr array_of(const Tensor& tensor) {
  const auto read = [&](std::vector<graph::NodeRef>&) {
    return std::vector<graph::Value>{tensor.alias->value()};
  };
  return runtime::compute(*tensor.device, read).front();
}
inline std::vector<float> download(runtime::Array& array) {
  std::vector<float> values(static_cast<std::size_t>(array.shape().num_elements()));
  runtime::download(array, values.data());
  return values;
}
inline std::vector<float> values_of(const Tensor& tensor) { return download(*array_of(tensor)); }

inline bool is_leaf(const Tensor& tensor) {
  const std::lock_guard lock(tensor.device->live().mutex);
  return tensor.alias->value().node->entry() == nullptr;
}

// What was compiled and executed since its making.
class Counts {
 public:
  std::int64_t compiled() const { return runtime::computation_stats().compiled - start_.compiled; }
  std::int64_t executed() const { return runtime::computation_stats().executed - start_.executed; }

 private:
  const runtime::ComputationStats start_ = runtime::computation_stats();
};

// How often it was counted since the counters were cleared.
inline std::int64_t count_of(std::string_view counter) {
  return base::counter_value(counter).value_or(0);
}

using Floats = std::vector<float>;

}  // namespace torch_xla::testing
