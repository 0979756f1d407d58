// The list of host kernels, and their registration with each client.
#include "runtime/host_kernels.h"

#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/trace_events.h"
#include "ops/aten_call.h"
#include "runtime/client.h"

namespace torch_xla::runtime {
namespace {

constexpr std::string_view kCpuPlatform = "cpu";

struct Kernel {
  std::function<void(const HostCall&)> run;
  int version = 0;
};

// What this library brings along: no client's.
struct Kernels {
  std::mutex mutex;
  std::map<std::string, Kernel> all;  // under mutex
};

Kernels& kernels() {
  static auto* const instance = new Kernels();
  return *instance;
}

std::int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// The kernel, whose calls are spans of a trace, on their threads. Those of operators by PyTorch's
// kernels are called by the operator's name.
std::function<void(const HostCall&)> traced(const std::string& name, const Kernel& kernel) {
  return [name, run = kernel.run](const HostCall& call) {
    if (!base::tracing_is_on()) [[likely]]
      return run(call);
    const bool has_operator = call.has_attribute(ops::kAtenCallOperator);
    std::string what = has_operator ? std::string(call.text(ops::kAtenCallOperator)) : name;
    if (call.has_attribute(ops::kAtenCallPart))
      what += base::str(", ", call.text(ops::kAtenCallPart));
    const std::int64_t start = now_ns();
    run(call);
    base::add_trace_event({std::move(what), "", "", start, now_ns() - start});
  };
}

// False, after a warning, if the plugin does not take it.
bool register_kernel(const pjrt::Client& client, const std::string& name, const Kernel& kernel) {
  try {
    pjrt::register_custom_call(client.plugin(), name, traced(name, kernel));
    return true;
  } catch (const pjrt::Error& error) {
    // By an earlier client of the plugin.
    if (error.code() == pjrt::ErrorCode::kAlreadyExists) return true;
    base::warn(base::str("the plugin takes no custom calls, so ", name,
                         " runs as XLA compiles it: ", error.what()));
    return false;
  }
}

}  // namespace

void add_host_kernel(const std::string& name, std::function<void(const HostCall&)> kernel,
                     int version) {
  const std::lock_guard lock(kernels().mutex);
  kernels().all.insert_or_assign(name, Kernel{std::move(kernel), version});
}

base::Hash128 host_kernels_key() {
  base::Hasher hasher;
  const std::lock_guard lock(kernels().mutex);
  for (const auto& [name, kernel] : kernels().all) {
    hasher.add(std::string_view(name));
    hasher.add(static_cast<std::uint64_t>(kernel.version));
  }
  return hasher.finish();
}

bool register_host_kernels(const pjrt::Client& client) {
  if (client.platform_name() != kCpuPlatform) return false;
  bool is_any = false;
  const std::lock_guard lock(kernels().mutex);
  for (const auto& [name, kernel] : kernels().all) {
    is_any = register_kernel(client, name, kernel) || is_any;
  }
  return is_any;
}

bool has_host_kernels() { return client().has_host_kernels(); }

}  // namespace torch_xla::runtime
