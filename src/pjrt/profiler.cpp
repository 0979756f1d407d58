// Calls of the profiler extension. Its errors are not PJRT's.
#include "pjrt/profiler.h"

#include <vector>

#include "pjrt/profiler_extension.h"

namespace torch_xla::pjrt {
namespace {

void throw_if(const ProfilerApi* api, PluginProfilerError* error, const char* call) {
  if (error == nullptr) return;
  ProfilerMessageArgs message = {sizeof(ProfilerMessageArgs), nullptr, error, nullptr, 0};
  api->error_message(&message);
  const std::string text(message.message, message.message_size);
  ProfilerErrorArgs args = {sizeof(ProfilerErrorArgs), nullptr, error};
  api->error_destroy(&args);
  throw Error(ErrorCode::kInternal, call, text);
}

}  // namespace

std::unique_ptr<Profiler> Profiler::create(const Plugin& plugin) {
  const auto* const extension = reinterpret_cast<const ProfilerExtension*>(
      plugin.find_extension(static_cast<int>(PJRT_Extension_Type_Profiler)));
  if (extension == nullptr || extension->profiler_api == nullptr) return nullptr;
  std::unique_ptr<Profiler> profiler(new Profiler(extension->profiler_api));
  ProfilerCreateArgs args = {sizeof(ProfilerCreateArgs), "", 0, nullptr};
  throw_if(profiler->api_, profiler->api_->create(&args), "PLUGIN_Profiler_Create");
  profiler->profiler_ = args.profiler;
  return profiler;
}

Profiler::~Profiler() {
  if (profiler_ == nullptr) return;
  ProfilerArgs args = {sizeof(ProfilerArgs), profiler_};
  PluginProfilerError* const error = api_->destroy(&args);
  if (error == nullptr) return;
  ProfilerErrorArgs dropped = {sizeof(ProfilerErrorArgs), nullptr, error};
  api_->error_destroy(&dropped);
}

void Profiler::start() {
  ProfilerArgs args = {sizeof(ProfilerArgs), profiler_};
  throw_if(api_, api_->start(&args), "PLUGIN_Profiler_Start");
}

void Profiler::stop() {
  ProfilerArgs args = {sizeof(ProfilerArgs), profiler_};
  throw_if(api_, api_->stop(&args), "PLUGIN_Profiler_Stop");
}

std::string Profiler::collect() {
  ProfilerCollectArgs args = {sizeof(ProfilerCollectArgs), profiler_, nullptr, 0};
  throw_if(api_, api_->collect_data(&args), "PLUGIN_Profiler_CollectData");
  std::vector<std::uint8_t> own;
  if (args.buffer == nullptr && args.buffer_size_in_bytes > 0) {
    // This plugin fills memory of the caller's, in a second call.
    own.resize(args.buffer_size_in_bytes);
    args.buffer = own.data();
    throw_if(api_, api_->collect_data(&args), "PLUGIN_Profiler_CollectData");
  }
  if (args.buffer == nullptr) return "";
  return {reinterpret_cast<const char*>(args.buffer), args.buffer_size_in_bytes};
}

}  // namespace torch_xla::pjrt
