// How tests steer the fake plugin (fake_plugin.cpp): a PJRT plugin over plain host memory whose
// calls fail or hang on demand. Tests do not link it; they load it as any plugin and find these
// functions by name.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace torch_xla::testing {

// The controls of one loaded copy. `call` is the name of a PJRT function, or what happens after a
// call or within it:
// - "Execution": the work of a launch, on each device; "Completion": that this is over;
// - "Collective": a device's coming to a collective; "Collective 2": device 2's;
// - "Meeting": its waiting there for the others (waiting() alone);
// - "Mismatch": a meeting of those who do not take part in the same (calls() alone);
// - "Transfer": a copy to the host;
// - "xla_...": a compilation with that flag of XLA's (calls() alone);
// - "Allocation": what Execute still has to do when it has taken the donated arguments.
// A device that fails before it comes to a collective keeps the others waiting, as real ones do.
class FakePlugin {
 public:
  // Loads the library at `path`. Every copy of the file has a state of its own.
  explicit FakePlugin(std::string path) : path_(std::move(path)) {
    library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }
  // A new copy of the library at `path`, which no test has touched yet. The file goes with the last
  // copy of the result.
  static FakePlugin copy_of(const std::string& path) {
    static std::atomic<int> serial{0};
    const std::string name = "torch_xla_fake_plugin_" + std::to_string(getpid()) + "_" +
                             std::to_string(serial.fetch_add(1)) + ".so";
    const std::filesystem::path copy = std::filesystem::temp_directory_path() / name;
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    FakePlugin result(copy.string());
    result.file_ = std::shared_ptr<void>(nullptr, [copy](void*) {
      std::error_code ignored;
      std::filesystem::remove(copy, ignored);
    });
    return result;
  }

  const std::string& path() const { return path_; }

  // The call fails with that code from now on; 0 lets it work again.
  void fail(const char* call, int code, const char* message) const {
    function<void(const char*, int, const char*)>("fake_plugin_fail")(call, code, message);
  }
  // The call blocks until release(), but for the next `num_passing` times.
  void hang(const char* call, int num_passing = 0) const {
    function<void(const char*, int)>("fake_plugin_hang")(call, num_passing);
  }
  // Lets go of all that hangs; nothing hangs any more. Those who wait for others in a collective
  // fail with DEADLINE_EXCEEDED. A client whose devices hang can't be destroyed before.
  void release() const { function<void()>("fake_plugin_release")(); }
  // How many threads hang in the call now.
  int waiting(const char* call) const {
    return function<int(const char*)>("fake_plugin_waiting")(call);
  }
  // How often the call was made since the last reset.
  int calls(const char* call) const {
    return function<int(const char*)>("fake_plugin_calls")(call);
  }
  // Launches run on a thread per device (true) or inside the call (false, at first). Holds for
  // clients that are created later.
  void set_async(bool is_async) const { function<void(int)>("fake_plugin_set_async")(is_async); }
  // Whether devices whose programs differ in a collective all fail (at first), or get what comes of
  // it, as from XLA's plugin for the CPU.
  void let_mismatches_pass(bool pass) const {
    function<void(int)>("fake_plugin_let_mismatches_pass")(pass);
  }
  void set_version(int major_version, int minor_version) const {
    function<void(int, int)>("fake_plugin_set_version")(major_version, minor_version);
  }
  // How much of the table of functions the plugin claims to have, in bytes; 0: all.
  void set_struct_size(std::size_t size) const {
    function<void(std::size_t)>("fake_plugin_set_struct_size")(size);
  }
  // How many objects of the plugin exist: "client", "buffer", "executable", "event", "error".
  int live(const char* kind) const { return function<int(const char*)>("fake_plugin_live")(kind); }
  // Everything as after loading: no failures, nothing hangs, counts of calls are zero.
  void reset() const { function<void()>("fake_plugin_reset")(); }

 private:
  template <typename Signature>
  Signature* function(const char* name) const {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) throw std::runtime_error(std::string("no ") + name + " in " + path_);
    return reinterpret_cast<Signature*>(symbol);
  }

  std::string path_;
  void* library_ = nullptr;
  std::shared_ptr<void> file_;  // removes a temporary copy
};

}  // namespace torch_xla::testing
