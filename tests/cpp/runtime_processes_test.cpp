// A client whose devices are of two processes: this one's launches have arguments for its own
// alone, and programs are partitioned over all. The other process is a thread with a client of its
// own.
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::FakePlugin;
using testing::Floats;
using testing::kFakePlugin;

// What both processes' clients are told of each other by.
class Job {
 public:
  pjrt::KeyValueStore store() {
    return {[this](std::string_view key, std::chrono::milliseconds timeout) {
              std::unique_lock lock(mutex_);
              const std::string name(key);
              changed_.wait_for(lock, timeout, [&] { return values_.contains(name); });
              base::check(values_.contains(name), "no ", name);
              return values_.at(name);
            },
            nullptr,
            [this](std::string_view key, std::string_view value) {
              const std::lock_guard lock(mutex_);
              values_.insert_or_assign(std::string(key), std::string(value));
              changed_.notify_all();
            }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

pjrt::NamedValues options_of(std::int64_t node) {
  return {{"cpu_device_count", std::int64_t{2}}, {"num_nodes", std::int64_t{2}}, {"node_id", node}};
}

// This process's client is the first; the other one's is made at the same time.
class TwoProcesses {
 public:
  TwoProcesses() : plugin_(FakePlugin::copy_of(kFakePlugin)) {
    const std::string path = plugin_.path();
    runtime::set_plugin_resolver(
        [path, this] { return runtime::PluginSpec{"FAKE", path, options_of(0), job_.store()}; });
    auto making = std::async(std::launch::async, [&] {
      return pjrt::Client::create(pjrt::Plugin::load(path), options_of(1), job_.store());
    });
    runtime::Client& own = runtime::client();
    other_ = making.get();
    device_ = &own.make_device(own.pjrt_client().devices());
  }
  ~TwoProcesses() {
    other_.reset();
    runtime::shutdown();
    EXPECT(testing::eventually([] { return pjrt::live_objects().total() == 0; }));
  }
  TwoProcesses(const TwoProcesses&) = delete;
  TwoProcesses& operator=(const TwoProcesses&) = delete;

  runtime::Device& device() { return *device_; }
  pjrt::Client& other() { return *other_; }

  // What the other process does meanwhile: a launch of the program, with these parts.
  std::future<std::vector<Floats>> launch_there(const std::string& program,
                                                const std::vector<Floats>& parts, int launch_id) {
    return std::async(std::launch::async, [=, this] {
      pjrt::CompileOptions options;
      options.num_partitions = 4;
      options.use_spmd_partitioning = options.use_shardy_partitioner = true;
      options.device_assignment = {0, 1, 2, 3};
      const auto executable = other_->compile(program, options);
      std::vector<pjrt::Buffer> arguments;
      std::vector<pjrt::Buffer*> pointers;
      arguments.reserve(parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::int64_t dims[] = {static_cast<std::int64_t>(parts[i].size())};
        arguments.push_back(other_->buffer_from_host_buffer(
            parts[i].data(), base::DType::kFloat32, dims, {}, other_->addressable_devices()[i],
            pjrt::HostBufferSemantics::kImmutableOnlyDuringCall));
        pointers.push_back(&arguments.back());
      }
      pjrt::ExecuteOptions launch;
      launch.launch_id = launch_id;
      const auto result = executable->execute(pointers, launch, 2);
      std::vector<Floats> values;
      for (const auto& outputs : result.outputs) {
        values.emplace_back(static_cast<std::size_t>(outputs[0].shape().num_elements()));
        outputs[0].to_host(values.back().data(), values.back().size() * sizeof(float)).await();
      }
      return values;
    });
  }

 private:
  FakePlugin plugin_;
  Job job_;
  std::shared_ptr<pjrt::Client> other_;
  runtime::Device* device_ = nullptr;
};

const base::Shape kEight{base::DType::kFloat32, {8}};

const base::Sharding* split() { return base::Sharding::make({{4}, {}, {"x"}}, {{0}}); }

// Twice a vector of eight, which is split before and comes out as the attribute says.
std::string doubled(const std::string& result) {
  const std::string by_parts = " {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>}";
  return "module @doubled {\nsdy.mesh @mesh = <[\"x\"=4]>\n"
         "func.func public @main(%0: tensor<8xf32>" +
         by_parts + ") -> (tensor<8xf32>" + (result == "split" ? by_parts : "") +
         ") {\n%1 = \"stablehlo.add\"(%0, %0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>\n"
         "\"func.return\"(%1) : (tensor<8xf32>) -> ()\n}\n}";
}

Floats part_of(const runtime::Array& array, std::size_t i) {
  Floats values(2);
  array.buffers()[i].to_host(values.data(), sizeof(float) * values.size()).await();
  return values;
}

runtime::ArrayPtr upload(runtime::Device& device) {
  const Floats values{0, 1, 2, 3, 4, 5, 6, 7};
  return runtime::Array::upload(device, values.data(), kEight, split());
}

TEST(a_device_stands_for_those_of_two_processes) {
  TwoProcesses job;
  runtime::Device& device = job.device();
  EXPECT_EQ(device.num_devices(), std::size_t{4});
  EXPECT_EQ(device.pjrt_devices().size(), std::size_t{2});
  EXPECT(device.spans_processes() && !runtime::device(0).spans_processes());
  EXPECT(device.placement().device_assignment == (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(job.other().addressable_devices()[0]->id(), 2);
  EXPECT_EQ(job.other().process_index(), 1);
}

TEST(an_upload_keeps_the_parts_of_this_process) {
  TwoProcesses job;
  const runtime::ArrayPtr array = upload(job.device());
  EXPECT_EQ(array->buffers().size(), std::size_t{2});
  EXPECT(part_of(*array, 1) == (Floats{2, 3}));
  EXPECT_EQ(array->num_bytes(), 4 * 4);
  EXPECT(!array->is_complete());
  EXPECT_THROWS(testing::download(*array), "parts are on devices of other processes");
  EXPECT_THROWS(runtime::reshard(*array, job.device().whole()), "full_tensor()");
}

TEST(what_each_device_has_is_read_without_the_other_process) {
  TwoProcesses job;
  const Floats values{1, 2};
  const runtime::ArrayPtr whole =
      runtime::upload(job.device(), values.data(), {base::DType::kFloat32, {2}});
  EXPECT(whole->is_complete() && testing::download(*whole) == values);
  // Each process has all of it, in two parts.
  const base::Sharding* const within = base::Sharding::make({{2, 2}}, {{1}});
  const runtime::ArrayPtr twice =
      runtime::Array::upload(job.device(), values.data(), {base::DType::kFloat32, {2}}, within);
  EXPECT(twice->is_complete() && testing::download(*twice) == values);
}

TEST(programs_run_on_the_devices_of_both_processes) {
  TwoProcesses job;
  const runtime::ArrayPtr array = upload(job.device());
  const runtime::ResultType by_parts{kEight, split()};
  auto there = job.launch_there(doubled("split"), {{40, 50}, {60, 70}}, 1);
  const auto sums = runtime::run_program(job.device(), doubled("split"), {2, 1}, {array},
                                         std::span(&by_parts, 1));
  sums[0]->wait_ready();
  EXPECT(part_of(*sums[0], 0) == (Floats{0, 2}) && part_of(*sums[0], 1) == (Floats{4, 6}));
  EXPECT(there.get() == (std::vector<Floats>{{80, 100}, {120, 140}}));
  // Once it is whole everywhere, this process has the other one's parts.
  const runtime::ResultType whole{kEight, job.device().whole()};
  there = job.launch_there(doubled("whole"), {{40, 50}, {60, 70}}, 2);
  const auto gathered =
      runtime::run_program(job.device(), doubled("whole"), {2, 2}, {array}, std::span(&whole, 1));
  EXPECT(testing::download(*gathered[0]) == (Floats{0, 2, 4, 6, 80, 100, 120, 140}));
  EXPECT_EQ(there.get().size(), std::size_t{2});
}

}  // namespace
}  // namespace torch_xla
