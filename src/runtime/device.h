// A device as users see it, `xla:N`: its live tensors, its queue of launches and the plugin's
// devices behind it: one, or those over which its programs are partitioned. Everything that
// recording and running share is per device, so that threads on different devices never wait for
// each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/sharding.h"
#include "graph/alias.h"
#include "pjrt/device.h"
#include "runtime/array.h"
#include "runtime/births.h"
#include "runtime/capture.h"
#include "runtime/kept_arguments.h"
#include "runtime/launch_queue.h"
#include "runtime/program_spec.h"
#include "runtime/shared_memory.h"
#include "runtime/uncompiled.h"

namespace torch_xla::runtime {

// Made by the client; lives until the process ends, also after a shutdown.
class Device {
 public:
  // Stands for `devices`, all alike: of this process, at least one, and maybe of others.
  Device(int ordinal, std::string name, const std::vector<pjrt::Device*>& devices);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The N of `xla:N`.
  int ordinal() const { return ordinal_; }
  // Kind and number: "CPU:0".
  const std::string& name() const { return name_; }
  // How many it stands for: over so many its programs are partitioned.
  std::size_t num_devices() const { return num_devices_; }
  // Those of this process: arrays have a buffer on each, launches a row of arguments. They dangle
  // after a shutdown.
  std::span<pjrt::Device* const> pjrt_devices() const { return pjrt_devices_; }
  // Where one of `pjrt_devices` stands among all, which is what shardings go by.
  std::size_t place_of(std::size_t i) const { return places_[i]; }
  // Whether there are others, whose processes launch the same programs in the same order.
  bool spans_processes() const { return pjrt_devices_.size() < num_devices_; }
  // Of launches that do: the same in each process, by the order, and never 0.
  std::int32_t next_launch_id();
  // One of them, for what is true of each.
  pjrt::Device& any_pjrt_device() const { return *pjrt_devices_[0]; }
  // The sharding of an array of which each has all; null for one device.
  const base::Sharding* whole() const { return whole_; }
  // How an array lies at the border of programs when its memory is to lie as `sharding` says: whole
  // where that is null, and where a dimension has no equal parts, which plugins do not take.
  const base::Sharding* boundary(const base::Sharding* sharding, const base::Shape& shape) const;
  // Where programs run that are for it.
  const Placement& placement() const { return placement_; }

  graph::LiveSet& live() { return live_; }
  // Lets it stand for all of `devices`, the first of which it stood for, and its arrays be whole on
  // each. Blocks until what was launched has ended; no other thread may use the device meanwhile.
  void spread(const std::vector<pjrt::Device*>& devices);

  LaunchQueue& launches() { return launches_; }
  UncompiledLaunches& uncompiled() { return uncompiled_; }
  Captures& captures() { return captures_; }
  ArrayList& arrays() { return arrays_; }
  SharedMemories& shared_memories() { return shared_memories_; }
  // Under the recording lock.
  SeenBirths& births() { return births_; }
  // The graphs that keep arguments for their next calls. Under the recording lock.
  std::vector<std::weak_ptr<KeptArguments>>& keepers() { return keepers_; }

  // At a shutdown: waits for launches, and gives back all memory of the plugin's. What still waits
  // for the compiler fails with `error`, and so does who reads an array. May be called again after
  // an interruption.
  void close(const std::exception_ptr& error);

 private:
  void stand_for(const std::vector<pjrt::Device*>& devices);

  const int ordinal_;
  const std::string name_;
  // These change once at most, in `spread`.
  std::size_t num_devices_ = 0;
  std::vector<pjrt::Device*> pjrt_devices_;
  std::vector<std::size_t> places_;
  const base::Sharding* whole_ = nullptr;
  Placement placement_;
  std::atomic<std::int32_t> num_launches_{0};
  graph::LiveSet live_;
  SeenBirths births_;
  ArrayList arrays_;
  SharedMemories shared_memories_;
  UncompiledLaunches uncompiled_;
  Captures captures_;
  std::vector<std::weak_ptr<KeptArguments>> keepers_;
  LaunchQueue launches_;
};

}  // namespace torch_xla::runtime
