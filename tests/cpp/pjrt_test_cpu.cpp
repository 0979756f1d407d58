// src/pjrt against the real CPU plugin: programs compile and run, on one device and on several,
// with donation, from serialized executables, and with custom calls.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pjrt/ffi.h"
#include "pjrt_fixture.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)
using Floats = std::vector<float>;

TEST(test_cpu_plugin_states_its_versions) {
  if (skip_without_cpu_plugin()) return;
  const auto plugin = Plugin::load(kCpuPlugin);
  EXPECT_EQ(plugin->api_version().major_version, 0);
  EXPECT(plugin->api_version().minor_version > 0);
  const NamedValues attributes = plugin->attributes();
  const auto found = attributes.find("stablehlo_current_version");
  EXPECT(found != attributes.end());
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(found->second).size(), std::size_t{3});
}

TEST(test_a_plugin_is_loaded_once) {
  if (skip_without_cpu_plugin()) return;
  EXPECT(Plugin::load(kCpuPlugin) == Plugin::load(kCpuPlugin));
}

TEST(test_devices_describe_themselves) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(4);
  EXPECT_EQ(client->platform_name(), "cpu");
  EXPECT_EQ(client->process_index(), 0);
  EXPECT_EQ(client->addressable_devices().size(), std::size_t{4});
  EXPECT_EQ(client->devices().size(), std::size_t{4});
  const Device* last = client->lookup_device(3);
  EXPECT_EQ(last->id(), 3);
  EXPECT_EQ(last->local_hardware_id(), 3);
  EXPECT_EQ(last->process_index(), 0);
  EXPECT(last->is_addressable());
  EXPECT_EQ(last->kind(), "cpu");
  EXPECT(!last->debug_string().empty());
  EXPECT(last->to_string().find('3') != std::string::npos);
  EXPECT(!last->default_memory_kind().empty());
  EXPECT(!last->memory_kinds().empty());
  EXPECT(!last->memory_stats().has_value());
  EXPECT_THROWS(client->lookup_device(7), "there is no device with id 7");
  EXPECT(client->default_device_assignment(2, 2) == (std::vector<int>{0, 1, 2, 3}));
}

TEST(test_arrays_of_every_dtype_come_back) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  Device* device = client->addressable_devices()[0];
  const std::int64_t dims[] = {2, 3};
  for (int i = 0; i < base::kNumDTypes; ++i) {
    const auto dtype = static_cast<base::DType>(i);
    std::vector<char> bytes(6 * static_cast<std::size_t>(base::size_bytes(dtype)));
    for (std::size_t b = 0; b < bytes.size(); ++b) {
      bytes[b] = static_cast<char>(dtype == base::DType::kBool ? b % 2 : b);
    }
    const Buffer buffer = client->buffer_from_host_buffer(
        bytes.data(), dtype, dims, {}, device, HostBufferSemantics::kImmutableOnlyDuringCall);
    EXPECT(buffer.shape() == (base::Shape{dtype, {2, 3}}));
    EXPECT(buffer.device() == device);
    EXPECT(buffer.is_on_cpu());
    EXPECT_EQ(buffer.on_device_size_in_bytes(), bytes.size());
    std::vector<char> back(bytes.size());
    buffer.to_host(back.data(), back.size()).await();
    EXPECT(back == bytes);
  }
}

TEST(test_strided_empty_and_scalar_arrays_are_copied) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  Device* device = client->addressable_devices()[0];
  const Floats values = {1, 2, 3, 4, 5, 6};
  const std::int64_t dims[] = {3, 2};
  const std::int64_t transposed[] = {4, 12};
  const auto semantics = HostBufferSemantics::kImmutableOnlyDuringCall;
  const Buffer strided = client->buffer_from_host_buffer(values.data(), base::DType::kFloat32, dims,
                                                         transposed, device, semantics);
  EXPECT(download(strided) == (Floats{1, 4, 2, 5, 3, 6}));
  const std::int64_t no_elements[] = {0, 2};
  const Buffer empty = client->buffer_from_host_buffer(nullptr, base::DType::kFloat32, no_elements,
                                                       {}, device, semantics);
  EXPECT(download(empty).empty());
  const Buffer scalar = client->buffer_from_host_buffer(values.data() + 4, base::DType::kFloat32,
                                                        {}, {}, device, semantics);
  EXPECT(download(scalar) == Floats{5});
}

TEST(test_done_is_called_once_for_every_semantics) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  const std::unique_ptr<float[], decltype(&std::free)> aligned(
      static_cast<float*>(std::aligned_alloc(64, 64)), &std::free);
  std::fill_n(aligned.get(), 16, 2.5F);
  const std::int64_t dims[] = {16};
  for (const auto semantics : {HostBufferSemantics::kImmutableOnlyDuringCall,
                               HostBufferSemantics::kImmutableUntilTransferCompletes,
                               HostBufferSemantics::kImmutableZeroCopy}) {
    std::atomic<int> calls{0};
    {
      const Buffer buffer = client->buffer_from_host_buffer(
          aligned.get(), base::DType::kFloat32, dims, {}, client->addressable_devices()[0],
          semantics, [&] { ++calls; });
      buffer.ready_event().await();
      const bool borrows = semantics == HostBufferSemantics::kImmutableZeroCopy;
      if (borrows) {
        EXPECT_EQ(buffer.unsafe_pointer(), reinterpret_cast<std::uintptr_t>(aligned.get()));
        EXPECT_EQ(calls.load(), 0);
      }
    }
    EXPECT(eventually([&] { return calls.load() == 1; }));
  }
}

TEST(test_memory_of_others_becomes_a_buffer_and_back) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  const std::unique_ptr<float[], decltype(&std::free)> memory(
      static_cast<float*>(std::aligned_alloc(64, 64)), &std::free);
  std::fill_n(memory.get(), 16, 7.0F);
  const std::int64_t dims[] = {16};
  std::atomic<int> deletions{0};
  {
    const Buffer view = client->create_view_of_device_buffer(memory.get(), base::DType::kFloat32,
                                                             dims, client->addressable_devices()[0],
                                                             [&] { ++deletions; });
    const ExternalReference reference(view);
    EXPECT(reference.data() == memory.get());
    EXPECT_EQ(download(view)[15], 7.0F);
  }
  EXPECT(eventually([&] { return deletions.load() == 1; }));
}

TEST(test_a_portable_program_runs_on_the_device_of_the_launch) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(4);
  const auto executable = client->compile(add_program(), portable());
  EXPECT_EQ(executable->num_outputs(), std::size_t{1});
  EXPECT(executable->output_shapes() == (std::vector<base::Shape>{{base::DType::kFloat32, {4}}}));
  for (Device* device : client->addressable_devices()) {
    Buffer a = upload(device, {1, 2, 3, 4});
    Buffer b = upload(device, {10, 20, 30, static_cast<float>(device->id())});
    Buffer* arguments[] = {&a, &b};
    const ExecuteResult result = executable->execute(arguments, on(device));
    EXPECT(result.events.empty());
    EXPECT(result.outputs[0][0].device() == device);
    EXPECT(download(result.outputs[0][0]) ==
           (Floats{11, 22, 33, 4 + static_cast<float>(device->id())}));
  }
}

TEST(test_an_assigned_program_refuses_another_device) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(4);
  const auto executable = client->compile(add_program(), CompileOptions{});
  Device* device = client->lookup_device(2);
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a, &a};
  const Error error = error_of([&] { executable->execute(arguments, on(device)); });
  EXPECT_EQ(error.call(), "PJRT_LoadedExecutable_Execute");
}

TEST(test_a_donated_argument_is_deleted_unless_the_launch_forbids_it) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  Device* device = client->addressable_devices()[0];
  const auto executable = client->compile(add_program(kDonated), portable());
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer b = upload(device, {1, 1, 1, 1});
  Buffer* arguments[] = {&a, &b};
  ExecuteOptions options = on(device);
  const std::int64_t first[] = {0};
  options.non_donatable_input_indices = first;
  const ExecuteResult kept = executable->execute(arguments, options);
  EXPECT(!a.is_deleted());
  EXPECT(download(a) == (Floats{1, 2, 3, 4}));
  const ExecuteResult donated = executable->execute(arguments, on(device));
  EXPECT(a.is_deleted());
  EXPECT(!b.is_deleted());
  EXPECT(download(donated.outputs[0][0]) == download(kept.outputs[0][0]));
  const Error error = error_of([&] { download(a); });
  EXPECT_EQ(error.call(), "PJRT_Buffer_ToHostBuffer");
  EXPECT(error.code() == ErrorCode::kInvalidArgument);
}

constexpr const char* kAllReduce = R"(module @test attributes {mhlo.num_replicas = 4 : i32} {
func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
})";

CompileOptions four_replicas(std::vector<int> assignment) {
  CompileOptions options;
  options.num_replicas = 4;
  options.device_assignment = std::move(assignment);
  return options;
}

TEST(test_four_replicas_meet_in_one_launch) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(4);
  const auto executable = client->compile(kAllReduce, four_replicas({3, 2, 1, 0}));
  EXPECT_EQ(executable->num_replicas(), 4);
  EXPECT_EQ(executable->num_partitions(), 1);
  const std::vector<Device*> devices = executable->addressable_devices();
  EXPECT_EQ(devices.size(), std::size_t{4});
  EXPECT_EQ(devices[0]->id(), 3);
  std::vector<Buffer> inputs;
  for (Device* device : devices) {
    inputs.push_back(upload(device, {1, 0, static_cast<float>(device->id()), 0}));
  }
  std::vector<Buffer*> pointers;
  for (Buffer& input : inputs) pointers.push_back(&input);
  ExecuteOptions options;
  options.launch_id = 1;
  options.want_events = true;
  const ExecuteResult result = executable->execute(pointers, options, 4);
  EXPECT_EQ(result.events.size(), std::size_t{4});
  for (const Event& event : result.events) event.await();
  for (const auto& outputs : result.outputs) {
    EXPECT(download(outputs[0]) == (Floats{4, 0, 6, 0}));
  }
}

TEST(test_four_threads_meet_in_a_collective) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(4);
  const auto executable = client->compile(kAllReduce, four_replicas({}));
  std::vector<Floats> results(4);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      Device* device = client->lookup_device(id);
      Buffer input = upload(device, {1, 2, 3, static_cast<float>(id)});
      Buffer* arguments[] = {&input};
      results[id] = download(executable->execute(arguments, on(device)).outputs[0][0]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Floats& result : results) EXPECT(result == (Floats{4, 8, 12, 6}));
}

TEST(test_a_buffer_is_copied_to_another_device) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(2);
  const Buffer a = upload(client->lookup_device(0), {1, 2, 3});
  const Buffer b = a.copy_to_device(client->lookup_device(1));
  EXPECT_EQ(b.device()->id(), 1);
  EXPECT(download(b) == (Floats{1, 2, 3}));
}

TEST(test_a_serialized_executable_runs_in_another_client) {
  if (skip_without_cpu_plugin()) return;
  std::string bytes;
  {
    const auto client = cpu_client();
    bytes = client->compile(add_program(), portable())->serialize();
  }
  const auto client = cpu_client(2);
  Device* device = client->lookup_device(1);
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a, &a};
  for (const auto& options : {std::optional<CompileOptions>(), std::optional(portable())}) {
    const auto executable = client->deserialize(bytes, options);
    const ExecuteResult result = executable->execute(arguments, on(device));
    EXPECT(download(result.outputs[0][0]) == (Floats{2, 4, 6, 8}));
  }
  const Error error = error_of([&] { client->deserialize("not an executable"); });
  EXPECT_EQ(error.call(), "PJRT_Executable_DeserializeAndLoad");
}

TEST(test_the_compiler_tells_what_it_made) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  const auto executable = client->compile(add_program(kDonated), portable());
  EXPECT(!executable->name().empty());
  EXPECT_EQ(std::get<float>(executable->cost_analysis().at("flops")), 4.0F);
  const CompiledMemoryStats stats = executable->compiled_memory_stats();
  EXPECT_EQ(stats.argument_size_in_bytes, 32);
  EXPECT_EQ(stats.alias_size_in_bytes, 16);
  EXPECT(stats.output_size_in_bytes >= 16);
  EXPECT(!executable->optimized_program().format.empty());
  EXPECT(executable->optimized_program().code.find("add") != std::string::npos);
  EXPECT_EQ(executable->fingerprint(),
            client->compile(add_program(kDonated), portable())->fingerprint());
}

TEST(test_xla_flags_reach_the_compiler) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  CompileOptions options = portable();
  options.env_option_overrides = {{"xla_cpu_enable_fast_math", true},
                                  {"xla_backend_optimization_level", std::int64_t{1}}};
  EXPECT(client->compile(add_program(), options) != nullptr);
  options.env_option_overrides = {{"xla_no_such_flag", true}};
  const Error error = error_of([&] { client->compile(add_program(), options); });
  EXPECT(error.message().find("xla_no_such_flag") != std::string::npos);
}

TEST(test_a_malformed_program_is_an_error_with_code_and_call) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  const Error error = error_of([&] { client->compile("module { nonsense", portable()); });
  EXPECT_EQ(error.call(), "PJRT_Client_Compile");
  EXPECT(error.code() != ErrorCode::kOk);
  EXPECT(error.kind() == base::ErrorKind::kRuntime);
  EXPECT(error.message().find("Failed to parse") != std::string::npos);
  EXPECT(std::string(error.what()).starts_with("PJRT_Client_Compile: "));
  // The client goes on working.
  EXPECT(client->compile(add_program(), portable()) != nullptr);
}

TEST(test_wrong_arguments_are_errors) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client();
  Device* device = client->addressable_devices()[0];
  const auto executable = client->compile(add_program(), portable());
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* one[] = {&a};
  EXPECT_EQ(error_of([&] { executable->execute(one, on(device)); }).call(),
            "PJRT_LoadedExecutable_Execute");
  float too_small[2];
  const Error error = error_of([&] { a.to_host(too_small, sizeof(too_small)); });
  EXPECT(error.code() == ErrorCode::kInvalidArgument);
  a.delete_();
  a.delete_();
  EXPECT(a.is_deleted());
}

// ---- Custom calls

std::string scale_program(int factor) {
  return "module @test {\n"
         "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
         "  %0 = stablehlo.custom_call @torch_xla_test.scale(%a) {api_version = 4 : i32,\n"
         "    backend_config = {factor = " +
         std::to_string(factor) +
         " : i64, mode = \"up\",\n"
         "      exact = true, bias = 0.5 : f64, list = array<i64: 7, 8>}}\n"
         "    : (tensor<4xf32>) -> tensor<4xf32>\n"
         "  return %0 : tensor<4xf32>\n"
         "}\n"
         "}\n";
}

void scale(const CustomCallFrame& frame) {
  const CustomCallArray in = frame.input(0);
  const CustomCallArray out = frame.output(0);
  const bool has_all = frame.num_inputs() == 1 && frame.num_outputs() == 1 &&
                       in.dtype == base::DType::kFloat32 && in.dims.size() == 1 &&
                       frame.text("mode") == "up" && frame.integer("exact") == 1 &&
                       frame.integers("list").size() == 2 && frame.integers("list")[1] == 8 &&
                       frame.has_attribute("bias") && !frame.has_attribute("absent");
  base::check(has_all, "scale: the frame does not hold what the program said");
  const auto factor = static_cast<float>(frame.integer("factor"));
  base::check(factor != 13, "scale: unlucky factor");
  if (factor == 14) frame.integer("absent");
  if (factor == 15) frame.integer("mode");
  if (factor == 16) throw 16;
  const auto bias = static_cast<float>(frame.real("bias"));
  for (std::int64_t i = 0; i < in.dims[0]; ++i) {
    static_cast<float*>(out.data)[i] = static_cast<const float*>(in.data)[i] * factor + bias;
  }
}

TEST(test_a_custom_call_runs_our_function) {
  if (skip_without_cpu_plugin()) return;
  const auto plugin = Plugin::load(kCpuPlugin);
  register_custom_call(*plugin, "torch_xla_test.scale", &scale);
  const Error error =
      error_of([&] { register_custom_call(*plugin, "torch_xla_test.scale", &scale); });
  EXPECT(error.code() == ErrorCode::kAlreadyExists);

  const auto client = cpu_client();
  Device* device = client->addressable_devices()[0];
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a};
  const auto run = [&](int factor) {
    const auto executable = client->compile(scale_program(factor), portable());
    return download(executable->execute(arguments, on(device)).outputs[0][0]);
  };
  EXPECT(run(3) == (Floats{3.5, 6.5, 9.5, 12.5}));
  EXPECT_THROWS(run(13), "scale: unlucky factor");
  EXPECT_THROWS(run(14), "no attribute 'absent'");
  EXPECT_THROWS(run(15), "attribute 'mode' is of another kind");
  EXPECT_THROWS(run(16), "unknown exception in a custom call");
  EXPECT(run(2) == (Floats{2.5, 4.5, 6.5, 8.5}));
}

TEST(test_many_threads_execute_at_once) {
  if (skip_without_cpu_plugin()) return;
  const auto client = cpu_client(2);
  const auto executable = client->compile(add_program(), portable());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Device* device = client->lookup_device(t % 2);
      Buffer sum = upload(device, {0, 0, 0, 0});
      Buffer step = upload(device, {1, 2, 3, static_cast<float>(t)});
      for (int i = 0; i < 200; ++i) {
        Buffer* arguments[] = {&sum, &step};
        sum = std::move(executable->execute(arguments, on(device)).outputs[0][0]);
      }
      if (download(sum) != (Floats{200, 400, 600, static_cast<float>(200 * t)})) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(test_objects_keep_their_client_alive_and_leave_nothing) {
  if (skip_without_cpu_plugin()) return;
  expect_nothing_lives();
  {
    auto client = cpu_client();
    Buffer a = upload(client->addressable_devices()[0], {1, 2, 3, 4});
    auto executable = client->compile(add_program(), portable());
    client.reset();
    EXPECT_EQ(live_objects().clients, 1);
    Buffer* arguments[] = {&a, &a};
    ExecuteOptions options = on(a.device());
    options.want_events = true;
    const ExecuteResult result = executable->execute(arguments, options);
    executable.reset();
    EXPECT(download(result.outputs[0][0]) == (Floats{2, 4, 6, 8}));
    EXPECT_EQ(live_objects().buffers, 2);
  }
  expect_nothing_lives();
}

}  // namespace
}  // namespace torch_xla::pjrt
