// A compiled program, loaded on its devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "pjrt/buffer.h"
#include "pjrt/event.h"
#include "pjrt/named_value.h"

struct PJRT_Executable;
struct PJRT_LoadedExecutable;

namespace torch_xla::pjrt {

struct ExecuteOptions {
  // Arguments that this launch must not donate, whatever the program says.
  std::span<const std::int64_t> non_donatable_input_indices;
  // Where a portable executable runs, or which one of the devices of an assigned executable this
  // launch is for (the caller then launches on the others too). nullptr: all the executable's
  // devices, in one call.
  Device* execute_device = nullptr;
  // Not 0: identifies launches on several devices that belong together.
  std::int32_t launch_id = 0;
  // The user's line that caused the launch ("train.py:12"), for the plugin's diagnostics.
  const char* call_location = nullptr;
  // Whether completion events are wanted.
  bool want_events = false;
};

struct ExecuteResult {
  std::vector<std::vector<Buffer>> outputs;  // [device][output]
  std::vector<Event> events;  // [device]; ready when the device is done. Empty if not wanted.
};

struct CompiledMemoryStats {
  std::int64_t generated_code_size_in_bytes = 0;
  std::int64_t argument_size_in_bytes = 0;
  std::int64_t output_size_in_bytes = 0;
  std::int64_t alias_size_in_bytes = 0;  // how much of the arguments is reused for outputs
  std::int64_t temp_size_in_bytes = 0;
  std::int64_t host_temp_size_in_bytes = 0;
  std::int64_t peak_memory_in_bytes = 0;  // 0 if the plugin does not say
};

struct Program {
  std::string format;  // "hlo", "hlo_with_config" (serialized protobufs) or "mlir"
  std::string code;
};

// Keeps the client alive. All methods are thread-safe; several threads may execute at once.
class Executable {
 public:
  // Takes ownership of `executable`.
  Executable(std::shared_ptr<Client> client, PJRT_LoadedExecutable* executable);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  // Launches under way end well.
  ~Executable();

  // Launches the program on so many devices; `arguments` are rows of equal length, one for each
  // device. Returns before the work is done, but may block for a while: cheap programs run inline,
  // and queues fill up. The arguments may be destroyed right after. Failures come from here
  // (Error), or through the events and the outputs.
  ExecuteResult execute(std::span<Buffer* const> arguments, const ExecuteOptions& options,
                        std::size_t num_devices = 1) const;

  std::string name() const;
  int num_replicas() const;
  int num_partitions() const;
  std::size_t num_outputs() const { return num_outputs_; }
  std::vector<base::Shape> output_shapes() const;
  // The devices of this process on which it runs; none for a portable executable.
  std::vector<Device*> addressable_devices() const;

  // For Client::deserialize, in this or another process with the same plugin.
  std::string serialize() const;
  // The compiler's estimate, such as "flops" and "bytes accessed".
  NamedValues cost_analysis() const;
  CompiledMemoryStats compiled_memory_stats() const;
  // The program after XLA's passes.
  Program optimized_program() const;
  // Equal for equal programs, options and compiler versions. May be UNIMPLEMENTED.
  std::string fingerprint() const;

 private:
  const PJRT_Api* api() const;
  void destroy() noexcept;

  std::shared_ptr<Client> client_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* executable_ = nullptr;
  std::size_t num_outputs_ = 0;
};

}  // namespace torch_xla::pjrt
