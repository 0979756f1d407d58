// One execution of a compiled program on all devices of its `Device` at once: what it reads, what
// it makes, and how its failure reaches both. Made by the executor, started by the launch queue's
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/node.h"
#include "graph/recipe.h"
#include "ops/lower.h"
#include "pjrt/event.h"
#include "runtime/array.h"
#include "runtime/compile_cache.h"
#include "runtime/kept_arguments.h"
#include "runtime/recovery.h"

namespace torch_xla::runtime {

class Device;

struct Launch {
  Device* device = nullptr;
  CompiledProgramPtr program;
  // One reference each: an input that someone else holds too is not donated.
  std::vector<graph::DataPtr> inputs;
  // Stands in for the inputs that are null, if there are such; they are not donated.
  ArgumentListPtr kept;
  // The numbers that travel with the nodes, in the order of the program's two vectors.
  std::vector<std::uint64_t> floats;
  std::vector<std::uint64_t> ints;
  std::vector<ops::Donation> donations;
  std::vector<ArrayPtr> outputs;
  // What the outputs replace of the inputs: after a failure the outputs keep it.
  std::vector<Replaced> replaced;
  // The graph, and which of its results the outputs are: after a failure they are computed from it
  // if someone asks for them. Empty where only the program is known.
  graph::Recipe recipe;
  std::vector<graph::Source> roots;
  LaunchDescription description;

  // Fills in the outputs, or fails them, and lets go of everything but the inputs whose memory the
  // program takes: to destroy one blocks until it has, so that goes with the launch, which is best
  // kept until the events are ready, one for each device. Returns none after a failure. May block.
  // Never throws.
  std::vector<pjrt::Event> start();

  // Runs to the end without filling in the outputs: results that replace an input become it. After
  // a failure the outputs have failed, and the answer is false. Never throws.
  bool rehearse();

  void fail(const std::exception_ptr& error);

 private:
  // Inputs of `donations` that the program may not take, in their order.
  std::vector<std::int64_t> non_donatable_;
  std::vector<graph::DataPtr> taken_;
  bool has_met_ = false;  // the other replicas
  // Copies of inputs whose memory has not the room that the program expects.
  std::vector<pjrt::Buffer> converted_;

  Array& input(std::size_t i) const;
  void release();
  void release_after_execution();
  bool is_intact(std::size_t i) const;
  bool may_run_again() const;
  void describe_loss();
  std::vector<pjrt::Buffer> upload_numbers() const;
  std::vector<pjrt::Buffer*> arguments(std::vector<pjrt::Buffer>& numbers) const;
  void give_room(std::vector<pjrt::Buffer*>& arguments);
  pjrt::ExecuteResult execute();
  void set_outputs(pjrt::ExecuteResult& result);
  base::Dims room(std::size_t root) const;
};

}  // namespace torch_xla::runtime
