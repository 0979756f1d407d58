// Creation, lookup and end of the process's client.
#include "runtime/client.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "pjrt/plugin_memory.h"
#include "runtime/background.h"
#include "runtime/create_options.h"
#include "runtime/host_kernels.h"
#include "runtime/programs.h"

namespace torch_xla::runtime {
namespace {

// As many as PyTorch's type for the number of one has.
constexpr std::size_t kMostDevices = 128;

struct Process {
  std::mutex mutex;
  std::function<PluginSpec()> resolver;  // under mutex
  std::shared_ptr<Client> owned_client;  // under mutex; shared by compilations
  bool handlers_are_installed = false;   // under mutex
  std::vector<void (*)()> forgetting;    // under mutex
  std::atomic<bool> is_spmd{false};
  std::atomic<Client*> client{nullptr};  // what `owned_client` points to
  // Set in a child that was forked while there was a client.
  std::atomic<bool> is_broken_fork{false};
};

Process& process() {
  // Never destroyed: tensors in static objects may outlive any order of destruction.
  static auto* const instance = new Process();
  return *instance;
}

// Of all clients so far; never destroyed, for the same reason.
struct Devices {
  std::mutex mutex;
  std::vector<Device*> all;  // under mutex
};

Device* make_immortal(const PluginSpec& spec, int ordinal,
                      const std::vector<pjrt::Device*>& devices) {
  static auto* const made = new Devices();
  auto* const device = new Device(ordinal, base::str(spec.device_type, ":", ordinal), devices);
  const std::lock_guard lock(made->mutex);
  made->all.push_back(device);
  return device;
}

std::string to_upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

PluginSpec resolve_from_settings() {
  PluginSpec spec;
  spec.library_path = base::settings().pjrt_library_path();
  spec.device_type = to_upper(base::settings().pjrt_device());
  if (spec.device_type.empty()) spec.device_type = "CPU";
  base::check(!spec.library_path.empty(),
              "no PJRT plugin to load: set PJRT_LIBRARY_PATH to the path of one");
  return spec;
}

PluginSpec resolve() {
  std::function<PluginSpec()> resolver;
  {
    const std::lock_guard lock(process().mutex);
    resolver = process().resolver;
  }
  PluginSpec spec = resolver ? resolver() : resolve_from_settings();
  for (auto& [name, value] : parse_create_options(base::settings().pjrt_create_options())) {
    spec.create_options.insert_or_assign(name, std::move(value));
  }
  if (spec.device_type == "CPU") {
    spec.create_options.try_emplace("cpu_device_count", base::settings().cpu_num_devices());
  }
  return spec;
}

void mark_forked_child() {
  if (process().client.load() != nullptr) process().is_broken_fork.store(true);
}

void install_handlers(Process& state) {
  if (std::exchange(state.handlers_are_installed, true)) return;
  pthread_atfork(nullptr, nullptr, &mark_forked_child);
  // Before the plugin's own static objects are destroyed, since those are older than this handler.
  std::atexit([] { shutdown(); });
}

std::shared_ptr<Client> create(PluginSpec spec) {
  try {
    std::shared_ptr<pjrt::Client> pjrt_client =
        pjrt::Client::create(pjrt::Plugin::load(spec.library_path), spec.create_options,
                             std::exchange(spec.store, std::nullopt));
    base::check(!pjrt_client->addressable_devices().empty(), "it offers no device to this process");
    base::check(pjrt_client->addressable_devices().size() <= kMostDevices, "it offers ",
                pjrt_client->addressable_devices().size(), " devices, and PyTorch counts to ",
                kMostDevices);
    if (spec.device_type.empty()) spec.device_type = to_upper(pjrt_client->platform_name());
    return std::make_shared<Client>(std::move(spec), std::move(pjrt_client));
  } catch (const base::Error& error) {
    const std::string kind =
        spec.device_type.empty() ? "" : base::str(" for '", spec.device_type, "'");
    base::fail(error.kind(), "the PJRT plugin", kind, " (", spec.library_path,
               ") could not be started: ", error.what());
  }
}

[[noreturn]] void fail_in_forked_child() {
  base::fail(base::ErrorKind::kRuntime,
             "the xla device was used before this process was forked, and its threads do not exist "
             "here; start child processes with the 'spawn' method, or fork before the first use");
}

Client& create_client() {
  Process& state = process();
  // Outside the lock: a resolver in Python waits for the GIL, which a thread that waits for the
  // lock may hold.
  PluginSpec spec = resolve();
  const std::lock_guard lock(state.mutex);
  if (Client* existing = state.client.load()) return *existing;
  install_handlers(state);
  state.owned_client = create(std::move(spec));
  state.client.store(state.owned_client.get(), std::memory_order_release);
  state.owned_client->programs().persistent_cache().start_preloading();
  return *state.owned_client;
}

}  // namespace

void set_plugin_resolver(std::function<PluginSpec()> resolver) {
  const std::lock_guard lock(process().mutex);
  process().resolver = std::move(resolver);
}

Client::Client(PluginSpec spec, std::shared_ptr<pjrt::Client> client)
    : spec_(std::move(spec)),
      client_(std::move(client)),
      platform_(client_->platform_name()),
      spans_processes_(client_->devices().size() > client_->addressable_devices().size()),
      has_host_kernels_(register_host_kernels(*client_)),
      programs_(std::make_unique<Programs>(*this)) {
  std::transform(platform_.begin(), platform_.end(), platform_.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (platform_ == "cpu" && base::settings().keep_freed_memory()) {
    pjrt::keep_freed_memory(client_->plugin());
  }
  if (is_spmd()) {
    devices_.push_back(make_immortal(spec_, 0, client_->devices()));
    return;
  }
  for (pjrt::Device* device : client_->addressable_devices()) {
    devices_.push_back(make_immortal(spec_, static_cast<int>(devices_.size()), {device}));
  }
}

const std::vector<int>& Client::devices_by_process() {
  std::call_once(counts_processes_, [this] {
    std::map<int, int> first;
    for (const pjrt::Device* const device : client_->devices()) {
      const auto [found, is_new] = first.try_emplace(device->process_index(), device->id());
      if (!is_new) found->second = std::min(found->second, device->id());
    }
    std::vector<int> devices;
    for (const auto& [process, device] : first) {
      base::check(process == static_cast<int>(devices.size()),
                  "the plugin numbers its processes 0, 1, ..., but there is none of number ",
                  devices.size());
      devices.push_back(device);
    }
    devices_by_process_ = std::move(devices);
  });
  return devices_by_process_;
}

Device& Client::make_device(const std::vector<pjrt::Device*>& devices) {
  base::check(std::ranges::any_of(devices, &pjrt::Device::is_addressable),
              "a device must stand for one of this process's at least");
  const std::lock_guard lock(mutex_);
  const auto ordinal = static_cast<int>(devices_.size() + further_devices_.size());
  further_devices_.push_back(make_immortal(spec_, ordinal, devices));
  return *further_devices_.back();
}

std::vector<Device*> Client::all_devices() {
  const std::lock_guard lock(mutex_);
  std::vector<Device*> all = devices_;
  all.insert(all.end(), further_devices_.begin(), further_devices_.end());
  return all;
}

void Client::make_one_device() {
  for (std::size_t i = 1; i < devices_.size(); ++i) {
    const std::lock_guard lock(devices_[i]->live().mutex);
    base::check(devices_[i]->live().size() == 0, "use_spmd: there are ", devices_[i]->live().size(),
                " tensors on xla:", i,
                ", which will be no device of its own; call it before they are made, or move them "
                "to xla:0");
  }
  devices_[0]->spread(client_->devices());
  const std::lock_guard lock(mutex_);
  further_devices_.insert(further_devices_.begin(), devices_.begin() + 1, devices_.end());
  devices_.resize(1);
}

void Client::close(const std::exception_ptr& error) {
  for (Device* const device : all_devices()) device->close(error);
  programs_->close();
}

Client::~Client() = default;

Client& client() {
  Process& state = process();
  if (state.is_broken_fork.load(std::memory_order_relaxed)) [[unlikely]]
    fail_in_forked_child();
  if (Client* existing = state.client.load(std::memory_order_acquire)) return *existing;
  return create_client();
}

std::shared_ptr<Client> existing_client() {
  const std::lock_guard lock(process().mutex);
  return process().owned_client;
}

bool is_initialized() { return process().client.load() != nullptr; }

Device& device(int ordinal) {
  const std::vector<Device*>& devices = client().devices();
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) [[unlikely]] {
    std::string names;
    for (const Device* d : devices) {
      names += base::str(names.empty() ? "" : ", ", "xla:", d->ordinal());
    }
    base::check(false, "device index ", ordinal, " does not exist, there are ", devices.size(),
                " xla devices (", names, ")");
  }
  return *devices[static_cast<std::size_t>(ordinal)];
}

void use_spmd() {
  if (process().is_spmd.exchange(true)) return;
  Client* const existing = process().client.load();
  if (existing == nullptr || existing->devices().size() == 1) return;
  try {
    existing->make_one_device();
  } catch (...) {
    process().is_spmd.store(false);
    throw;
  }
}

bool is_spmd() { return process().is_spmd.load(std::memory_order_relaxed); }

int num_runtime_devices() {
  std::size_t count = 0;
  for (const Device* const device : client().devices()) count += device->num_devices();
  return static_cast<int>(count);
}

int num_addressable_runtime_devices() {
  std::size_t count = 0;
  for (const Device* const device : client().devices()) count += device->pjrt_devices().size();
  return static_cast<int>(count);
}

int device_count() { return static_cast<int>(client().devices().size()); }

int device_count_upper_bound() noexcept {
  if (const Client* existing = process().client.load(std::memory_order_acquire)) {
    return static_cast<int>(existing->devices().size());
  }
  try {
    const std::string type = to_upper(base::settings().pjrt_device());
    // As many as one machine has of any other kind; each may cost PyTorch an idle thread.
    constexpr int kMostAccelerators = 16;
    if (!type.empty() && type != "CPU") return kMostAccelerators;
    return static_cast<int>(base::settings().cpu_num_devices());
  } catch (...) {
    return 1;
  }
}

const std::string& platform() { return client().platform(); }

namespace {

// What is left of the process's way out is skipped if threads still use what it would destroy. The
// handler comes last of all, hence is called first.
void end_process_in_time(bool runs_launches) {
  static std::atomic<bool> has_running_launches{false};
  if (runs_launches) has_running_launches.store(true);
  on_exit(
      [](int status, void*) {
        if (!has_running_launches.load() && BackgroundWork::count() == 0) return;
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
}

bool runs_what_was_interrupted(Process& state) {
  const std::lock_guard lock(state.mutex);
  return state.owned_client != nullptr &&
         std::ranges::any_of(state.owned_client->all_devices(), [](Device* device) {
           return device->launches().runs_what_was_interrupted();
         });
}

// To be called without the lock: tensors are freed.
std::vector<void (*)()> forgetting_of(Process& state) {
  const std::lock_guard lock(state.mutex);
  return state.owned_client != nullptr ? state.forgetting : std::vector<void (*)()>();
}

}  // namespace

void shutdown_at_exit() {
  if (process().is_broken_fork.load()) return;
  if (runs_what_was_interrupted(process())) {
    end_process_in_time(/*runs_launches=*/true);
  } else {
    shutdown();
  }
}

void at_shutdown(void (*forget)()) {
  const std::lock_guard lock(process().mutex);
  process().forgetting.push_back(forget);
}

void shutdown() {
  Process& state = process();
  if (state.is_broken_fork.load()) return;
  for (void (*const forget)() : forgetting_of(state)) forget();
  const std::lock_guard lock(state.mutex);
  if (state.owned_client == nullptr) return;
  const auto error = std::make_exception_ptr(
      base::Error(base::ErrorKind::kRuntime, "the tensor's device was shut down"));
  if (BackgroundWork::count() > 0) end_process_in_time(/*runs_launches=*/false);
  state.owned_client->close(error);
  state.client.store(nullptr);
  state.owned_client.reset();
}

}  // namespace torch_xla::runtime
