// Runs a StableHLO program that a test builds through hlo/ops.h on the real CPU plugin, on arrays
// of doubles: what the text means to the compiler that it is for.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "hlo/ops.h"
#include "pjrt/client.h"
#include "pjrt/plugin.h"
#include "plugins.h"

namespace torch_xla::testing {

// Elements in row-major order; a complex element is two numbers.
struct Array {
  base::Shape type;
  std::vector<double> values;
};

inline Array f32(const base::Dims& dims, std::vector<double> values) {
  return {{base::DType::kFloat32, dims}, std::move(values)};
}
inline Array i32(const base::Dims& dims, std::vector<double> values) {
  return {{base::DType::kInt32, dims}, std::move(values)};
}

// One client for the process; its devices are four, for collectives.
inline pjrt::Client& cpu_client() {
  static const std::shared_ptr<pjrt::Client> client =
      pjrt::Client::create(pjrt::Plugin::load(kCpuPlugin), {{"cpu_device_count", std::int64_t{4}}});
  return *client;
}

// Calls `body` with a null pointer of the C++ type that holds an element's part.
template <typename Body>
void with_host_type(base::DType dtype, const Body& body) {
  using base::DType;
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return body(static_cast<std::uint8_t*>(nullptr));
    case DType::kUInt16: return body(static_cast<std::uint16_t*>(nullptr));
    case DType::kUInt32: return body(static_cast<std::uint32_t*>(nullptr));
    case DType::kUInt64: return body(static_cast<std::uint64_t*>(nullptr));
    case DType::kInt8: return body(static_cast<std::int8_t*>(nullptr));
    case DType::kInt16: return body(static_cast<std::int16_t*>(nullptr));
    case DType::kInt32: return body(static_cast<std::int32_t*>(nullptr));
    case DType::kInt64: return body(static_cast<std::int64_t*>(nullptr));
    case DType::kFloat32:
    case DType::kComplex64: return body(static_cast<float*>(nullptr));
    case DType::kFloat64:
    case DType::kComplex128: return body(static_cast<double*>(nullptr));
    default: base::fail(base::ErrorKind::kInternal, "convert to float32 before the result");
  }
}

inline std::string to_bytes(const Array& array) {
  std::string bytes;
  with_host_type(array.type.dtype, [&](auto* null) {
    for (const double value : array.values) {
      const auto element = static_cast<std::remove_pointer_t<decltype(null)>>(value);
      bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
    }
  });
  return bytes;
}

inline std::vector<double> to_values(base::DType dtype, const std::string& bytes) {
  std::vector<double> values;
  with_host_type(dtype, [&](auto* null) {
    std::remove_pointer_t<decltype(null)> element{};
    for (std::size_t i = 0; i + sizeof(element) <= bytes.size(); i += sizeof(element)) {
      std::memcpy(&element, bytes.data() + i, sizeof(element));
      values.push_back(static_cast<double>(element));
    }
  });
  return values;
}

inline pjrt::Buffer to_device(const Array& array, pjrt::Device* device) {
  const std::string bytes = to_bytes(array);
  return cpu_client().buffer_from_host_buffer(bytes.data(), array.type.dtype, array.type.dims, {},
                                              device,
                                              pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
}

inline Array to_host(const pjrt::Buffer& buffer) {
  Array array{buffer.shape(), {}};
  const auto size = static_cast<std::size_t>(array.type.num_bytes());
  std::string bytes(size, '\0');
  buffer.to_host(bytes.data(), size).await();
  array.values = to_values(array.type.dtype, bytes);
  return array;
}

using Body = std::function<hlo::Values(std::span<const hlo::Value>)>;

// What `body` gives on `replicas` devices, [replica][result]; every replica has the same inputs.
inline std::vector<std::vector<Array>> evaluate_replicas(int replicas,
                                                         const std::vector<Array>& inputs,
                                                         const Body& body) {
  hlo::Builder builder;
  hlo::Values parameters;
  for (const Array& input : inputs) parameters.push_back(builder.parameter(input.type));
  if (inputs.empty()) parameters.push_back(builder.parameter({base::DType::kInt32, {}}));
  const std::string text = builder.finish(body(parameters));
  pjrt::CompileOptions options;
  options.num_replicas = replicas;
  const auto executable = cpu_client().compile(text, options);
  std::vector<std::vector<pjrt::Buffer>> buffers;
  std::vector<pjrt::Buffer*> arguments;  // a row for each device
  for (pjrt::Device* device : executable->addressable_devices()) {
    buffers.emplace_back();
    for (const Array& input : inputs) buffers.back().push_back(to_device(input, device));
    if (inputs.empty()) buffers.back().push_back(to_device(i32({}, {0}), device));
    for (pjrt::Buffer& buffer : buffers.back()) arguments.push_back(&buffer);
  }
  const pjrt::ExecuteResult result = executable->execute(arguments, {}, buffers.size());
  std::vector<std::vector<Array>> out;
  for (const auto& row : result.outputs) {
    out.emplace_back();
    for (const pjrt::Buffer& buffer : row) out.back().push_back(to_host(buffer));
  }
  return out;
}

// What `body` gives for `inputs`. Without inputs the body gets an unused parameter, for its
// Builder.
inline std::vector<Array> evaluate(const std::vector<Array>& inputs, const Body& body) {
  return evaluate_replicas(1, inputs, body)[0];
}

inline void expect_close(const std::vector<double>& got, const std::vector<double>& expected,
                         double tolerance, const char* file, int line) {
  bool is_close = got.size() == expected.size();
  for (std::size_t i = 0; is_close && i < got.size(); ++i) {
    is_close = std::isnan(expected[i])
                   ? std::isnan(got[i])
                   : got[i] == expected[i] ||
                         std::abs(got[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]));
  }
  if (is_close) return;
  std::string text = "expected";
  for (const double value : expected) text += " " + std::to_string(value);
  text += ", got";
  for (const double value : got) text += " " + std::to_string(value);
  record_failure(file, line, text);
}

}  // namespace torch_xla::testing

#define EXPECT_CLOSE(got, ...) \
  ::torch_xla::testing::expect_close((got), __VA_ARGS__, 1e-5, __FILE__, __LINE__)
