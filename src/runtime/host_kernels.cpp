// Registration of host kernels with each client.
#include "runtime/host_kernels.h"

#include <atomic>

#include "base/error.h"
#include "base/log.h"
#include "runtime/client.h"

namespace torch_xla::runtime {
namespace {

std::atomic<int> num_registered{0};

constexpr std::string_view kCpuPlatform = "cpu";

}  // namespace

void add_host_kernel(const std::string& name, std::function<void(const HostCall&)> kernel) {
  add_client_hook([name, kernel = std::move(kernel)](pjrt::Client& client) {
    if (client.platform_name() != kCpuPlatform) return;
    try {
      pjrt::register_custom_call(client.plugin(), name, kernel);
    } catch (const pjrt::Error& error) {
      if (error.code() == pjrt::ErrorCode::kAlreadyExists) return;
      base::warn(base::str("the plugin takes no custom calls, so ", name,
                           " runs as XLA compiles it: ", error.what()));
      return;
    }
    num_registered.fetch_add(1, std::memory_order_relaxed);
  });
}

bool has_host_kernels() { return num_registered.load(std::memory_order_relaxed) > 0; }

}  // namespace torch_xla::runtime
