// Custom calls: a `stablehlo.custom_call` that runs a C++ function of ours in the middle of a
// compiled program, on the device's memory as it lies (for a CPU, host memory: nothing is copied).
// The program names it with `api_version = 4 : i32` and passes attributes as a dictionary in
// `backend_config`. Calls that look alike are merged unless they say `has_side_effect = true`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "pjrt/plugin.h"

struct XLA_FFI_CallFrame;

namespace torch_xla::pjrt {

// An operand or result of the call: dense, in the layout that the program asks for (row-major
// unless it says otherwise). `data` and `dims` live as long as the call.
struct CustomCallArray {
  void* data = nullptr;
  base::DType dtype = base::DType::kFloat32;
  std::span<const std::int64_t> dims;
};

// One call: what the program hands over. Lives as long as the call. Reading an attribute that is
// absent or of another kind throws base::Error.
class CustomCallFrame {
 public:
  explicit CustomCallFrame(const XLA_FFI_CallFrame* frame) : frame_(frame) {}

  std::size_t num_inputs() const;
  std::size_t num_outputs() const;
  CustomCallArray input(std::size_t index) const;
  // Uninitialized memory that the call has to fill.
  CustomCallArray output(std::size_t index) const;

  bool has_attribute(std::string_view name) const;
  // An integer or boolean of any width: `k = 3 : i64`, `flag = true`.
  std::int64_t integer(std::string_view name) const;
  // `eps = 1.0e-5 : f64`, or f32.
  double real(std::string_view name) const;
  // `mode = "same"`.
  std::string_view text(std::string_view name) const;
  // `strides = array<i64: 2, 2>`.
  std::span<const std::int64_t> integers(std::string_view name) const;

  // How many threads of the plugin, this one among them, run what calls schedule: 1 where it lends
  // none.
  std::size_t num_threads() const;
  // Runs `task`, which does not throw, on one of them, now or later, or never if that fails: who
  // waits for it does what it was to do.
  void schedule(std::function<void()> task) const;

 private:
  const XLA_FFI_CallFrame* frame_;
};

// Runs on threads of the plugin, several at once, and must fill all outputs before it returns. It
// may throw: the execution then fails with that message.
using CustomCall = std::function<void(const CustomCallFrame&)>;

// Makes `name` known to the programs that `plugin` compiles from now on, for the life of the
// process. `platform` is XLA's name for the kind of device: "Host" for CPUs, "CUDA". Throws Error:
// UNIMPLEMENTED if the plugin takes no custom calls, ALREADY_EXISTS if it has that name.
// Thread-safe.
void register_custom_call(const Plugin& plugin, const std::string& name, CustomCall function,
                          const std::string& platform = "Host");

}  // namespace torch_xla::pjrt
