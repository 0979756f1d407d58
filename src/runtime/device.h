// A device as users see it, `xla:N`: its live tensors, its queue of launches and the plugin's
// device behind it. Everything that recording and running share is per device, so that threads on
// different devices never wait for each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/alias.h"
#include "pjrt/device.h"
#include "runtime/array.h"
#include "runtime/kept_arguments.h"
#include "runtime/launch_queue.h"
#include "runtime/program_spec.h"

namespace torch_xla::runtime {

// Made by the client; lives until the process ends, also after a shutdown.
class Device {
 public:
  Device(int ordinal, std::string name, pjrt::Device& device)
      : ordinal_(ordinal),
        name_(std::move(name)),
        pjrt_device_(&device),
        launches_("xla:" + std::to_string(ordinal)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The N of `xla:N`.
  int ordinal() const { return ordinal_; }
  // Kind and number: "CPU:0".
  const std::string& name() const { return name_; }
  // Dangles after a shutdown.
  pjrt::Device& pjrt_device() const { return *pjrt_device_; }
  // Where programs run that are for it.
  const Placement& placement() const { return placement_; }

  graph::LiveSet& live() { return live_; }
  LaunchQueue& launches() { return launches_; }
  ArrayList& arrays() { return arrays_; }
  // The graphs that keep arguments for their next calls. Under the recording lock.
  std::vector<std::weak_ptr<KeptArguments>>& keepers() { return keepers_; }

 private:
  const int ordinal_;
  const std::string name_;
  pjrt::Device* const pjrt_device_;
  const Placement placement_;
  graph::LiveSet live_;
  ArrayList arrays_;
  std::vector<std::weak_ptr<KeptArguments>> keepers_;
  LaunchQueue launches_;
};

}  // namespace torch_xla::runtime
