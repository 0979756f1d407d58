// How the fake plugin launches programs: a Launch per device. The launches of several replicas run
// side by side and meet in their collectives. Those of the partitions of one program that is
// partitioned by its shardings meet once: each brings its parts of the arguments, runs the program
// on whole arrays, and keeps its parts of the results.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fake_collectives.h"
#include "fake_objects.h"

namespace fake {

class Launch {
 public:
  // A portable executable has one replica and one partition, on any device.
  Launch(const PJRT_LoadedExecutable& executable, PJRT_Device* the_device, int launch_id)
      : device(the_device), compiled_(executable) {
    const auto found = std::ranges::find(executable.devices, device);
    const bool is_assigned = found != executable.devices.end();
    const int index = is_assigned ? static_cast<int>(found - executable.devices.begin()) : 0;
    place_.num_replicas = executable.options.num_replicas;
    place_.num_partitions = executable.options.num_partitions;
    place_.replica = index / place_.num_partitions;
    place_.partition = index % place_.num_partitions;
    place_.launch_id = launch_id;
    place_.meetings = executable.client->meetings.get();
    for (const PJRT_Device* each : executable.devices) {
      place_.device_ids.push_back(is_assigned ? each->description.id : device->description.id);
    }
  }

  // Takes hold of the arguments, checks them, and drops those that are donated.
  void take_arguments(PJRT_Buffer* const* arguments, const std::set<std::int64_t>& non_donatable) {
    const std::size_t count = compiled_.program->parameters().size();
    for (std::size_t i = 0; i < count; ++i) {
      const ArrayType type = compiled_.parameter_part(i, place_.partition).type;
      if (arguments[i]->type != type) fail_argument("argument of another type");
      if (arguments[i]->device != device) fail_argument("argument on another device");
      inputs_.push_back(arguments[i]->live_storage());
      inputs_ready_.push_back(arguments[i]->ready);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool may_donate = !non_donatable.contains(static_cast<std::int64_t>(i));
      if (compiled_.program->donates(i) && may_donate) arguments[i]->donate(begun);
    }
  }

  ArrayType output_type(std::size_t i) const {
    return compiled_.result_part(i, place_.partition).type;
  }
  void allocate_outputs() {
    for (std::size_t i = 0; i < compiled_.program->results().size(); ++i) {
      outputs.push_back(
          std::make_shared<Storage>(device->bytes_in_use, size_bytes(output_type(i))));
    }
  }

  void run() const {
    std::optional<Status> error;
    for (const auto& ready : inputs_ready_) {
      if (!error) error = ready->wait();
    }
    begun->complete(std::nullopt);
    const std::optional<Status> failure = control().enter("Execution");
    if (!error) error = failure;
    try {
      if (!error) compute();
    } catch (const Status& status) {
      error = status;
    } catch (const std::exception& exception) {
      error = Status{PJRT_Error_Code_INTERNAL, exception.what()};
    }
    if (!error) error = control().enter("Completion");
    done->complete(error);
  }

  PJRT_Device* const device;
  std::vector<std::shared_ptr<Storage>> outputs;
  const std::shared_ptr<Completion> begun = std::make_shared<Completion>();
  const std::shared_ptr<Completion> done = std::make_shared<Completion>();

 private:
  void compute() const {
    int num_collectives = 0;
    const Surroundings surroundings{
        place_.replica, [&](const Operation& operation, const Values& operands) {
          return Collective(operation, place_, num_collectives++).run(operands);
        }};
    const bool is_divided = compiled_.options.use_spmd_partitioning && place_.num_partitions > 1;
    const Values own = arguments();
    const Values results = compiled_.program->run(is_divided ? assemble(own) : own, surroundings);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Value part = extract(results[i], compiled_.result_part(i, place_.partition));
      std::ranges::copy(part.bytes, outputs[i]->data);
    }
  }

  Values arguments() const {
    Values result;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      result.push_back(zeros(compiled_.parameter_part(i, place_.partition).type));
      std::copy_n(inputs_[i]->data, result[i].bytes.size(), result[i].bytes.data());
    }
    return result;
  }

  // The whole arguments, of which every partition brings a part.
  Values assemble(const Values& own) const {
    const std::string key = "launch " + std::to_string(place_.launch_id) +
                            ", partitions of replica " + std::to_string(place_.replica);
    const std::string what =
        "program " + std::to_string(std::hash<std::string>()(compiled_.program->text()));
    const auto met = place_.meetings->meet(key, static_cast<std::size_t>(place_.num_partitions),
                                           place_.device_id(), {what, own});
    Values wholes;
    for (std::size_t i = 0; i < own.size(); ++i) {
      wholes.push_back(zeros(compiled_.program->parameters()[i]));
      for (int partition = 0; partition < place_.num_partitions; ++partition) {
        const int device_id = place_.device_ids[place_.replica * place_.num_partitions + partition];
        insert(wholes[i], compiled_.parameter_part(i, partition),
               met->at(device_id).values[i].bytes);
      }
    }
    return wholes;
  }

  const Compiled compiled_;
  Place place_;
  std::vector<std::shared_ptr<Storage>> inputs_;
  std::vector<std::shared_ptr<Completion>> inputs_ready_;
};

// Runs what one call launches. Devices that work inside the call get a thread each, so that they
// can meet.
inline void start(const std::vector<std::shared_ptr<Launch>>& launches) {
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < launches.size(); ++i) {
    others.emplace_back(
        [launch = launches[i]] { launch->device->stream.add([launch] { launch->run(); }); });
  }
  launches.front()->device->stream.add([launch = launches.front()] { launch->run(); });
  for (std::thread& other : others) other.join();
}

}  // namespace fake
