// The process's one client: which plugin serves the `xla` device, and its devices. Created on first
// use, never before: `import torch_xla`, a CPU backward and a fork load no plugin.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pjrt/client.h"
#include "runtime/device.h"

namespace torch_xla::runtime {

// Which library to load, and how to start it.
struct PluginSpec {
  // "CPU", "CUDA", "TPU": what users call the kind of device. Empty: what the plugin says its
  // platform is.
  std::string device_type;
  std::string library_path;  // a library that exports GetPjrtApi
  pjrt::NamedValues create_options;
  // Where the processes meet that share the client's devices.
  std::optional<pjrt::KeyValueStore> store = std::nullopt;
};

// Says which plugin to use when the client is created; called without a lock, by several threads at
// once if several are first. Without a resolver, PJRT_LIBRARY_PATH and PJRT_DEVICE decide. Python
// gives one that finds installed plugins; it may take the GIL.
void set_plugin_resolver(std::function<PluginSpec()> resolver);

class Programs;

// What dies with the plugin is a member: programs, what is loaded ahead, kernels. Shared by the
// compilations under way, which may outlast a shutdown.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(PluginSpec spec, std::shared_ptr<pjrt::Client> client);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // "CPU", "CUDA", ...
  const std::string& device_type() const { return spec_.device_type; }
  const PluginSpec& spec() const { return spec_; }
  // What lowerings and options are chosen by, in lower case: "cpu", "cuda".
  const std::string& platform() const { return platform_; }
  pjrt::Client& pjrt_client() const { return *client_; }
  // Whether there are devices of other processes.
  bool spans_processes() const { return spans_processes_; }
  // The plugin's number of the first device of each process.
  const std::vector<int>& devices_by_process();
  // Whether programs may call our kernels by name (host_kernels.h).
  bool has_host_kernels() const { return has_host_kernels_; }
  Programs& programs() const { return *programs_; }
  // `xla:0`, `xla:1`, ...: one for each of the plugin's devices.
  const std::vector<Device*>& devices() const { return devices_; }
  // A further one, whose programs are partitioned over these devices of the plugin.
  Device& make_device(const std::vector<pjrt::Device*>& devices);
  std::vector<Device*> all_devices();
  // Lets `xla:0` stand for all of the plugin's devices, those of other processes too, and be the
  // only one.
  void make_one_device();

  // At a shutdown: gives back all that the plugin owns, but for what a compilation under way needs.
  // What is used later fails with `error`.
  void close(const std::exception_ptr& error);

 private:
  PluginSpec spec_;
  std::shared_ptr<pjrt::Client> client_;
  std::string platform_;
  bool spans_processes_ = false;
  bool has_host_kernels_ = false;
  // None is ever freed: tensors point to them until the process ends.
  std::vector<Device*> devices_;
  std::mutex mutex_;
  std::vector<Device*> further_devices_;  // under mutex_
  std::once_flag counts_processes_;
  std::vector<int> devices_by_process_;
  std::unique_ptr<Programs> programs_;
};

// The client, created on first use. A failure names the plugin and may be retried. Throws in a
// process that was forked after the client was made: its threads do not exist there. Thread-safe.
Client& client();
// Null if there is none yet, or none any more.
std::shared_ptr<Client> existing_client();
bool is_initialized();

// The device `xla:ordinal`. Throws if there is none.
Device& device(int ordinal);
int device_count();
// How many devices there can be at most; the client need not exist and is not created.
int device_count_upper_bound() noexcept;
// From now on `xla:0` stands for all devices of the plugin, over which its programs are
// partitioned, and there is no other. Tensors that were made before are copied to all; no other
// thread may use the device meanwhile. Makes no client. Throws base::Error if there are tensors on
// other devices, or one that is still being computed.
void use_spmd();
bool is_spmd();
// How many of the plugin's devices `xla:0`, `xla:1`, ... stand for, and how many of these are of
// this process.
int num_runtime_devices();
int num_addressable_runtime_devices();
// `client().platform()`.
const std::string& platform();

// `forget` is called at every shutdown, first of all: it drops tensors that are kept for later.
void at_shutdown(void (*forget)());
// Waits for launches and gives back all that the plugin owns: memory of tensors that still exist
// (they become unreadable), executables, the client. The next use starts anew. Called when the
// process exits; no other thread may use the device meanwhile, but those that await a compilation:
// it is not waited for. They get an error, and if it still runs when the process ends, that ends at
// once: what the compiler uses must not be destroyed.
void shutdown();
// As above, but does not wait for what a user has interrupted a wait for either.
void shutdown_at_exit();

}  // namespace torch_xla::runtime
