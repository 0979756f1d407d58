// What the tests of src/pjrt share: clients of the real CPU plugin and of the fake one, and arrays
// of floats to and from their devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "fake_plugin.h"
#include "pjrt/client.h"
#include "pjrt/live_objects.h"
#include "plugins.h"

namespace torch_xla::testing {

inline void need_cpu_plugin() {
  if (!has_cpu_plugin()) throw Unsupported{"the CPU plugin is not installed"};
}

inline std::shared_ptr<pjrt::Client> cpu_client(std::int64_t num_devices = 1) {
  return pjrt::Client::create(pjrt::Plugin::load(kCpuPlugin), {{"cpu_device_count", num_devices}});
}

inline pjrt::CompileOptions portable() {
  pjrt::CompileOptions options;
  options.portable = true;
  return options;
}

inline pjrt::ExecuteOptions on(pjrt::Device* device) {
  pjrt::ExecuteOptions options;
  options.execute_device = device;
  return options;
}

// A launch on all devices of an executable, with completion events.
inline pjrt::ExecuteOptions launch(std::int32_t launch_id) {
  pjrt::ExecuteOptions options;
  options.launch_id = launch_id;
  options.want_events = true;
  return options;
}

inline pjrt::Buffer upload(pjrt::Device* device, const std::vector<float>& values) {
  const std::int64_t dims[] = {static_cast<std::int64_t>(values.size())};
  return device->client().buffer_from_host_buffer(
      values.data(), base::DType::kFloat32, dims, {}, device,
      pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
}

inline std::vector<float> download(const pjrt::Buffer& buffer) {
  std::vector<float> values(static_cast<std::size_t>(buffer.shape().num_elements()));
  buffer.to_host(values.data(), values.size() * sizeof(float)).await();
  return values;
}

// (a + b) over four floats; `attributes` are those of the first parameter.
inline std::string add_program(const std::string& attributes = "") {
  return "module @test {\n"
         "func.func public @main(%a: tensor<4xf32>" +
         attributes +
         ", %b: tensor<4xf32>)"
         " -> (tensor<4xf32>) {\n"
         "  %0 = stablehlo.add %a, %b : tensor<4xf32>\n"
         "  return %0 : tensor<4xf32>\n"
         "}\n"
         "}\n";
}

// Replaces an array of floats by its reduction over so many replicas.
inline std::string all_reduce_program(int num_replicas, const std::string& reduction = "add",
                                      int num_elements = 4) {
  std::string replicas;
  for (int i = 0; i < num_replicas; ++i) replicas += (i == 0 ? "" : ", ") + std::to_string(i);
  const std::string type = "tensor<" + std::to_string(num_elements) + "xf32>";
  return "module @test {\n"
         "func.func public @main(%a: " +
         type + ") -> " + type +
         " {\n"
         "  %0 = \"stablehlo.all_reduce\"(%a) ({\n"
         "  ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
         "    %s = stablehlo." +
         reduction +
         " %x, %y : tensor<f32>\n"
         "    stablehlo.return %s : tensor<f32>\n"
         "  }) {replica_groups = dense<[[" +
         replicas + "]]> : tensor<1x" + std::to_string(num_replicas) + "xi64>} : (" + type +
         ") -> " + type +
         "\n"
         "  return %0 : " +
         type +
         "\n"
         "}\n"
         "}\n";
}

// For replicas on these devices.
inline pjrt::CompileOptions replicas_on(std::vector<int> device_ids) {
  pjrt::CompileOptions options;
  options.num_replicas = static_cast<int>(device_ids.size());
  options.device_assignment = std::move(device_ids);
  return options;
}

// What a launch on several devices is given: one row for each, of one array of floats.
class Rows {
 public:
  Rows(const std::vector<pjrt::Device*>& devices,
       const std::function<std::vector<float>(std::size_t)>& values) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      buffers_.push_back(upload(devices[i], values(i)));
    }
    for (pjrt::Buffer& buffer : buffers_) pointers_.push_back(&buffer);
  }
  pjrt::ExecuteResult execute(const pjrt::Executable& executable,
                              const pjrt::ExecuteOptions& options) const {
    return executable.execute(pointers_, options, pointers_.size());
  }
  // The row of one device, for a launch there alone.
  std::span<pjrt::Buffer* const> get(std::size_t i) const { return {&pointers_[i], 1}; }

 private:
  std::vector<pjrt::Buffer> buffers_;
  std::vector<pjrt::Buffer*> pointers_;
};

inline const std::string kDonated = " {tf.aliasing_output = 0 : i32}";

// What `body` throws, which must be a pjrt::Error.
template <typename Body>
pjrt::Error error_of(Body body) {
  try {
    body();
  } catch (const pjrt::Error& error) {
    return error;
  }
  record_failure(__FILE__, __LINE__, "expected a pjrt::Error");
  return pjrt::Error(pjrt::ErrorCode::kOk, "", "");
}

inline void expect_nothing_lives() { EXPECT_EQ(pjrt::live_objects().total(), 0); }

// Steers the copy that most tests share; put back as it was, and checked for leaks, at the end.
struct Fake {
  Fake() : controls(kFakePlugin) { controls.reset(); }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
  ~Fake() {
    controls.reset();
    for (const char* kind : {"client", "buffer", "executable", "event", "error"}) {
      EXPECT_EQ(controls.live(kind), 0);
    }
    expect_nothing_lives();
  }

  static std::shared_ptr<pjrt::Client> make_client(const pjrt::NamedValues& options = {}) {
    return pjrt::Client::create(pjrt::Plugin::load(kFakePlugin), options);
  }

  FakePlugin controls;
};

}  // namespace torch_xla::testing
