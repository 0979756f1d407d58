// Loading a plugin and agreeing on a version with it.
#include "pjrt/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "pjrt/api.h"

namespace torch_xla::pjrt {
namespace {

// Every function that an Error needs, and no plugin of this major version lacks.
constexpr std::size_t kSmallestApi = PJRT_STRUCT_SIZE(PJRT_Api, PJRT_Plugin_Initialize);

[[noreturn]] void fail_load(ErrorCode code, const char* call, const std::string& path,
                            const std::string& why) {
  throw Error(code, call, base::str("cannot use the PJRT plugin '", path, "': ", why));
}

std::string dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown reason";
}

const PJRT_Api* open_library(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    fail_load(ErrorCode::kNotFound, "dlopen", path, "no such file");
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail_load(ErrorCode::kFailedPrecondition, "dlopen", path, dl_error());
  }
  using GetPjrtApi = const PJRT_Api*();
  auto* get_api = reinterpret_cast<GetPjrtApi*>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    // The library stays open: unloading one whose initializers ran is not safe in general.
    fail_load(ErrorCode::kFailedPrecondition, "GetPjrtApi", path,
              "it exports no GetPjrtApi, so it is not a PJRT plugin");
  }
  const PJRT_Api* api = get_api();
  if (api == nullptr) {
    fail_load(ErrorCode::kFailedPrecondition, "GetPjrtApi", path, "GetPjrtApi returned nothing");
  }
  return api;
}

void check_version(const std::string& path, const PJRT_Api* api) {
  if (api->struct_size < PJRT_STRUCT_SIZE(PJRT_Api, pjrt_api_version)) {
    fail_load(ErrorCode::kFailedPrecondition, "GetPjrtApi", path,
              "it is too old to state its PJRT API version");
  }
  const PJRT_Api_Version& version = api->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR || api->struct_size < kSmallestApi) {
    fail_load(ErrorCode::kFailedPrecondition, "GetPjrtApi", path,
              base::str("its PJRT API version is ", version.major_version, ".",
                        version.minor_version, ", this build needs ", PJRT_API_MAJOR,
                        ".x (it knows ", PJRT_API_MAJOR, ".", PJRT_API_MINOR, ")"));
  }
}

}  // namespace

Plugin::Plugin(std::string path, const PJRT_Api* api) : path_(std::move(path)), api_(api) {}

std::shared_ptr<const Plugin> Plugin::load(const std::string& path) {
  static std::mutex mutex;
  // Never destroyed: objects freed while the process exits may still need their plugin.
  static auto& loaded = *new std::map<const PJRT_Api*, std::shared_ptr<const Plugin>>;
  const std::lock_guard lock(mutex);
  const PJRT_Api* api = open_library(path);
  const auto found = loaded.find(api);
  if (found != loaded.end()) return found->second;
  check_version(path, api);
  auto args = PJRT_MAKE(PJRT_Plugin_Initialize_Args);
  PJRT_CALL(api, PJRT_Plugin_Initialize, args);
  std::shared_ptr<const Plugin> plugin(new Plugin(path, api));
  loaded.emplace(api, plugin);
  return plugin;
}

ApiVersion Plugin::api_version() const {
  return {api_->pjrt_api_version.major_version, api_->pjrt_api_version.minor_version};
}

NamedValues Plugin::attributes() const {
  if (!has_function(api_, &PJRT_Api::PJRT_Plugin_Attributes)) return {};
  auto args = PJRT_MAKE(PJRT_Plugin_Attributes_Args);
  PJRT_CALL(api_, PJRT_Plugin_Attributes, args);
  return from_named_values(args.attributes, args.num_attributes);
}

const PJRT_Extension_Base* Plugin::find_extension(int type) const {
  for (const PJRT_Extension_Base* e = api_->extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) == type) return e;
  }
  return nullptr;
}

}  // namespace torch_xla::pjrt
