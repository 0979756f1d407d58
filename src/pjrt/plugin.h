// A PJRT plugin: a shared library that exports GetPjrtApi. Next: `client.h`.
#pragma once

#include <memory>
#include <string>

#include "pjrt/named_value.h"

struct PJRT_Api;
struct PJRT_Extension_Base;

namespace torch_xla::pjrt {

struct ApiVersion {
  int major_version = 0;
  int minor_version = 0;
  friend bool operator==(const ApiVersion&, const ApiVersion&) = default;
};

// Loaded once per process and never unloaded: plugins start threads and register process-wide state
// that outlive every object made through them. All methods are thread-safe.
class Plugin {
 public:
  // Loads and initializes the library at `path`, or returns the plugin already loaded from it.
  // Throws Error: NOT_FOUND (no such file), FAILED_PRECONDITION (not a loadable library, no
  // GetPjrtApi, or another major version of the API than ours), or what PJRT_Plugin_Initialize
  // said. After a failure the process goes on working and the load may be tried again.
  static std::shared_ptr<const Plugin> load(const std::string& path);

  const std::string& path() const { return path_; }
  // The version of the C API that the plugin was built with. A plugin with another minor version
  // works; calls that it is too old for throw UNIMPLEMENTED with their name.
  ApiVersion api_version() const;
  // What the plugin says of itself, such as "stablehlo_current_version". Empty if it says nothing.
  NamedValues attributes() const;
  // The extension of a PJRT_Extension_Type, or nullptr. Has the lifetime of the process.
  const PJRT_Extension_Base* find_extension(int type) const;

  const PJRT_Api* api() const { return api_; }

 private:
  Plugin(std::string path, const PJRT_Api* api);

  std::string path_;
  const PJRT_Api* api_;
};

}  // namespace torch_xla::pjrt
