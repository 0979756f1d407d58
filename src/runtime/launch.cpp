// Gathering the arguments of a launch and handing out its results.
#include "runtime/launch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/memory_maps.h"
#include "base/metrics.h"
#include "pjrt/client.h"
#include "runtime/device.h"
#include "runtime/origin.h"
#include "runtime/replica_programs.h"

namespace torch_xla::runtime {
namespace {

Array& array_of(const graph::DataPtr& data) { return static_cast<Array&>(*data); }

// A vector of numbers as an argument. Tiny, so the plugin copies it during the call.
pjrt::Buffer upload_vector(pjrt::Device& device, base::DType dtype,
                           const std::vector<std::uint64_t>& numbers) {
  const std::int64_t dims[] = {static_cast<std::int64_t>(numbers.size())};
  return device.client().buffer_from_host_buffer(
      numbers.data(), dtype, dims, {}, &device,
      pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
}

// An array's buffers, out of the results of a launch.
std::vector<pjrt::Buffer> take_result(pjrt::ExecuteResult& result, std::size_t i) {
  std::vector<pjrt::Buffer> shards;
  shards.reserve(result.outputs.size());
  for (std::vector<pjrt::Buffer>& of_device : result.outputs) {
    shards.push_back(std::move(of_device[i]));
  }
  return shards;
}

// Whoever else holds an input may read it later: a user's tensor, a transfer, another launch.
std::vector<std::int64_t> find_non_donatable(const std::vector<graph::DataPtr>& inputs,
                                             const std::vector<ops::Donation>& donations) {
  std::vector<std::int64_t> indices;
  for (const ops::Donation& donation : donations) {
    const graph::DataPtr& input = inputs[donation.leaf];
    if (input.use_count() > 1 && !array_of(input).is_given_away()) {
      indices.push_back(donation.leaf);
    }
  }
  return indices;
}

}  // namespace

Array& Launch::input(std::size_t i) const {
  return array_of(inputs[i] != nullptr ? inputs[i] : (*kept)[i]);
}

void Launch::release() {
  inputs.clear();
  kept.reset();
  replaced.clear();
  recipe = {};
}

// Whether the input is as it was before the launch was attempted.
bool Launch::is_intact(std::size_t i) const {
  const Array& array = array_of(inputs[i]);
  try {
    return array.is_pending() || array.is_failed() ||
           std::ranges::none_of(array.memory(), &pjrt::Buffer::is_deleted);
  } catch (const base::Error&) {
    return false;  // nobody can tell
  }
}

// Whether all that the graph needs is there, and nothing of it has run.
bool Launch::may_run_again() const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_intact(i)) return false;
  }
  return !recipe.is_empty();
}

// After a failed attempt: how much of what it was to take is gone, and how much is not.
void Launch::describe_loss() {
  description.can_run_again = may_run_again();
  if (inputs.empty()) return;  // the launch was a success, or has none
  description.num_donated = 0;
  for (const ops::Donation& donation : donations) {
    if (!is_intact(donation.leaf)) ++description.num_donated;
  }
  for (const Replaced& of : replaced) {
    if (of.leaf != Replaced::kNoLeaf && is_intact(of.leaf)) ++description.num_kept;
  }
}

void Launch::release_after_execution() {
  for (const ops::Donation& donation : donations) {
    if (std::ranges::find(non_donatable_, donation.leaf) != non_donatable_.end()) continue;
    graph::DataPtr& input = inputs[donation.leaf];
    array_of(input).set_taken();
    taken_.push_back(std::move(input));
  }
  release();
}

std::vector<pjrt::Buffer*> Launch::arguments(std::vector<pjrt::Buffer>& numbers) const {
  static base::Metric& time = base::metric("UnwrapXlaData");
  const base::TimedSection timed(time);
  const std::size_t num_devices = device->pjrt_devices().size();
  std::vector<pjrt::Buffer*> buffers;
  buffers.reserve(num_devices * inputs.size() + numbers.size());
  auto number = numbers.begin();
  for (std::size_t place = 0; place < num_devices; ++place) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      buffers.push_back(input(i).launch_argument(place));
    }
    const auto end = number + static_cast<std::ptrdiff_t>(numbers.size() / num_devices);
    for (; number != end; ++number) buffers.push_back(&*number);
  }
  return buffers;
}

// Where an input's memory is not as large as the program's parameter, a copy that is takes its
// place: at the first launch of a bounded program, and of another one behind it.
void Launch::give_room(std::vector<pjrt::Buffer*>& arguments) {
  static base::Counter& copies = base::counter("BoundedInputCopies");
  if (device->num_devices() != 1) return;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Array& array = input(i);
    if (program->input_dims.empty() && !array.has_room()) continue;
    const base::Dims& dims =
        program->input_dims.empty() ? array.shape().dims : program->input_dims[i];
    if (array.memory_shape().dims == dims) continue;
    copies.add();
    converted_.push_back(array.copy_with_room(dims));
    places.push_back(i);
    const auto index = static_cast<std::int64_t>(i);
    if (std::ranges::find(non_donatable_, index) == non_donatable_.end()) {
      non_donatable_.push_back(index);
    }
  }
  for (std::size_t k = 0; k < places.size(); ++k) arguments[places[k]] = &converted_[k];
}

std::vector<pjrt::Event> Launch::start() {
  try {
    // The error of an input is about the program that was to make it; it passes through.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (const std::exception_ptr error = input(i).await_launch()) {
        fail(error);
        return {};
      }
    }
    pjrt::ExecuteResult result = execute();
    // Before the results, so that memory which passes from one to the other is counted once.
    release_after_execution();
    set_outputs(result);
    program.reset();
    return std::move(result.events);
  } catch (const base::Error& error) {
    describe_loss();
    fail(launch_error(description, with_memory(*device, error)));
    return {};
  } catch (...) {
    describe_loss();
    fail(launch_error(description, std::current_exception()));
    return {};
  }
}

bool Launch::rehearse() {
  recipe = {};  // inputs become what their replacements are
  try {
    for (const graph::DataPtr& input : inputs) {
      if (const std::exception_ptr error = array_of(input).await_launch()) {
        std::rethrow_exception(error);
      }
    }
    pjrt::ExecuteResult result = execute();
    for (const pjrt::Event& event : result.events) event.await();
    const auto shared = std::make_shared<const LaunchDescription>(description);
    for (const ops::Donation& donation : donations) {
      const Array& output = *outputs[donation.root];
      ArrayPtr array = Array::make_pending(*device, output.shape(), output.sharding());
      array->set_launched(take_result(result, donation.root), shared, room(donation.root));
      inputs[donation.leaf] = std::move(array);
    }
    return true;
  } catch (...) {
    fail(launch_error(description, std::current_exception()));
    return false;
  }
}

// In the order of the devices, and of the program's parameters.
std::vector<pjrt::Buffer> Launch::upload_numbers() const {
  std::vector<pjrt::Buffer> numbers;
  if (floats.empty() && ints.empty()) return numbers;
  static base::Metric& time = base::metric("TransferToDeviceTime");
  static base::Metric& values = base::metric("IrValueTensorToXlaData");
  static base::Metric& bytes = base::metric("OutboundData", base::MetricKind::kBytes);
  static base::Counter& misses = base::counter("DeviceDataCacheMiss");
  misses.add();
  const base::TimedSection timed(time);
  const base::TimedSection timed_values(values);
  const std::size_t num_devices = device->pjrt_devices().size();
  numbers.reserve(2 * num_devices);
  for (pjrt::Device* const target : device->pjrt_devices()) {
    if (!floats.empty()) {
      numbers.push_back(upload_vector(*target, base::DType::kFloat64, floats));
    }
    if (!ints.empty()) numbers.push_back(upload_vector(*target, base::DType::kInt64, ints));
  }
  bytes.record(
      static_cast<double>(num_devices * (floats.size() + ints.size()) * sizeof(std::uint64_t)));
  return numbers;
}

pjrt::ExecuteResult Launch::execute() {
  if (!base::can_allocate(program->working_bytes)) {
    base::fail(base::ErrorKind::kOutOfMemory, "Out of memory: the program needs ",
               program->working_bytes, " bytes beside its inputs");
  }
  std::vector<pjrt::Buffer> numbers = upload_numbers();
  std::vector<pjrt::Buffer*> buffers = arguments(numbers);
  non_donatable_ = find_non_donatable(inputs, donations);
  give_room(buffers);
  description.num_donated = donations.size() - non_donatable_.size();
  pjrt::ExecuteOptions options;
  options.non_donatable_input_indices = non_donatable_;
  ReplicaLaunch together(*program, *device);
  if (device->placement().is_portable() && !together.is_needed()) {
    options.execute_device = &device->any_pjrt_device();
  }
  options.call_location = description.where.empty() ? nullptr : description.where.c_str();
  options.want_events = true;
  if (device->spans_processes()) options.launch_id = device->next_launch_id();
  if (program->quick != nullptr) program->quick->count_launch();
  if (!together.is_needed()) {
    return program->executable->execute(buffers, options, device->pjrt_devices().size());
  }
  has_met_ = true;
  options.launch_id = together.begin();
  pjrt::ExecuteResult result =
      program->executable->execute(buffers, options, device->pjrt_devices().size());
  together.finish();
  return result;
}

void Launch::set_outputs(pjrt::ExecuteResult& result) {
  static base::Metric& wrapping = base::metric("WrapXlaData");
  const base::TimedSection timed(wrapping);
  const std::size_t num_results = program->executable->num_outputs();
  base::internal_check(num_results == outputs.size(), description.program, " has ", outputs.size(),
                       " results, and the plugin gave ", num_results);
  const auto shared = std::make_shared<const LaunchDescription>(description);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i]->set_launched(take_result(result, i), shared, room(i));
  }
  outputs.clear();
}

// Of a result's memory; empty if there is none behind it.
base::Dims Launch::room(std::size_t root) const {
  return program->output_dims.empty() ? base::Dims() : program->output_dims[root];
}

void Launch::fail(const std::exception_ptr& error) {
  const bool is_missed = program != nullptr && !has_met_;
  OriginPtr origin;
  if (may_run_again()) origin = make_origin(*device, std::move(recipe), inputs);
  if (!inputs.empty()) {
    for (const Replaced& of : replaced) {
      if (of.leaf == Replaced::kNoLeaf || !is_intact(of.leaf)) continue;
      of.result->add_replaced(of.alias, inputs[of.leaf]);
    }
    for (const ops::Donation& donation : donations) array_of(inputs[donation.leaf]).take_back();
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i]->set_failed(error, origin == nullptr ? ResultOf() : ResultOf{origin, roots[i]});
  }
  outputs.clear();
  release();
  const CompiledProgramPtr missed = std::exchange(program, nullptr);
  if (is_missed) ReplicaLaunch(*missed, *device).miss();
}

}  // namespace torch_xla::runtime
