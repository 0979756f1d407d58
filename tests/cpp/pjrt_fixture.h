// What the tests of src/pjrt share: clients of the real CPU plugin and of the fake one, and arrays
// of floats to and from their devices.
#pragma once

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "fake_plugin.h"
#include "pjrt/client.h"
#include "pjrt/live_objects.h"

namespace torch_xla::testing {

// The build names the plugins; the path of the real one is empty where it is not installed.
inline const std::string kCpuPlugin = TORCH_XLA_CPU_PLUGIN;
inline const std::string kFakePlugin = TORCH_XLA_FAKE_PLUGIN;

// True, and says so, when the test cannot run for want of the real CPU plugin.
inline bool skip_without_cpu_plugin() {
  if (!kCpuPlugin.empty()) return false;
  std::cerr << "skipped: the CPU plugin is not installed\n";
  return true;
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

}  // namespace torch_xla::testing
