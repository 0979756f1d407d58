// The suite of every plugin (pjrt_suite.h): devices, arrays, programs on one device, donation,
// serialized executables, custom calls, errors. Several devices: pjrt_test_suite_devices.cpp.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "pjrt/ffi.h"
#include "pjrt_suite.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)
using Floats = std::vector<float>;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

PLUGIN_TEST(test_a_plugin_is_loaded_once) { EXPECT(plugin.load() == plugin.load()); }

PLUGIN_TEST(test_devices_describe_themselves) {
  const auto client = plugin.client(2);
  EXPECT(!client->platform_name().empty());
  EXPECT(!client->platform_version().empty());
  for (const Device* device : client->addressable_devices()) {
    EXPECT(device == client->lookup_device(device->id()));
    EXPECT_EQ(device->process_index(), client->process_index());
    EXPECT(device->is_addressable());
    EXPECT(!device->kind().empty());
    EXPECT(!device->debug_string().empty());
    EXPECT(!device->to_string().empty());
    EXPECT(!device->default_memory_kind().empty());
    EXPECT(!device->memory_kinds().empty());
  }
  EXPECT_THROWS(client->lookup_device(1 << 20), "there is no device with id 1048576");
  EXPECT_EQ(client->default_device_assignment(2, 1).size(), std::size_t{2});
}

PLUGIN_TEST(test_memory_in_use_is_told) {
  const auto client = plugin.client();
  Device* device = client->addressable_devices()[0];
  const Buffer buffer = upload(device, Floats(25, 1.0F));
  const std::optional<MemoryStats> stats = device->memory_stats();
  if (!stats) throw Unsupported{"memory statistics"};
  EXPECT(stats->bytes_in_use >= 100);
}

PLUGIN_TEST(test_arrays_of_every_dtype_come_back) {
  const auto client = plugin.client();
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
    EXPECT(buffer.on_device_size_in_bytes() >= bytes.size());
    std::vector<char> back(bytes.size());
    buffer.to_host(back.data(), back.size()).await();
    EXPECT(back == bytes);
  }
}

PLUGIN_TEST(test_strided_empty_and_scalar_arrays_are_copied) {
  const auto client = plugin.client();
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

PLUGIN_TEST(test_done_is_called_once_for_every_semantics) {
  const auto client = plugin.client();
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
      const bool may_borrow = semantics == HostBufferSemantics::kImmutableZeroCopy;
      if (may_borrow && buffer.is_on_cpu()) {
        EXPECT_EQ(buffer.unsafe_pointer(), reinterpret_cast<std::uintptr_t>(aligned.get()));
        EXPECT_EQ(calls.load(), 0);
      }
    }
    EXPECT(eventually([&] { return calls.load() == 1; }));
  }
}

PLUGIN_TEST(test_memory_of_others_becomes_a_buffer_and_back) {
  const auto client = plugin.client_on_host_memory();
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

PLUGIN_TEST(test_a_portable_program_runs_on_the_device_of_the_launch) {
  const auto client = plugin.client();
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

PLUGIN_TEST(test_an_assigned_program_refuses_another_device) {
  const auto client = plugin.client(2);
  const auto executable = client->compile(add_program(), CompileOptions{});
  Device* device = client->addressable_devices()[1];
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a, &a};
  const Error error = error_of([&] { executable->execute(arguments, on(device)); });
  EXPECT_EQ(error.call(), "PJRT_LoadedExecutable_Execute");
}

PLUGIN_TEST(test_a_donated_argument_is_deleted_unless_the_launch_forbids_it) {
  const auto client = plugin.client();
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
}

PLUGIN_TEST(test_a_buffer_is_copied_to_another_device) {
  const auto client = plugin.client(2);
  const Buffer a = upload(client->addressable_devices()[0], {1, 2, 3});
  const Buffer b = a.copy_to_device(client->addressable_devices()[1]);
  EXPECT(b.device() == client->addressable_devices()[1]);
  EXPECT(download(b) == (Floats{1, 2, 3}));
}

PLUGIN_TEST(test_a_serialized_executable_runs_in_another_client) {
  std::string bytes;
  {
    const auto client = plugin.client();
    bytes = client->compile(add_program(), portable())->serialize();
  }
  const auto client = plugin.client();
  Device* device = client->addressable_devices().back();
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

PLUGIN_TEST(test_the_compiler_tells_what_it_made) {
  const auto client = plugin.client();
  const auto executable = client->compile(add_program(kDonated), portable());
  EXPECT(!executable->name().empty());
  EXPECT(!executable->cost_analysis().empty());
  const CompiledMemoryStats stats = executable->compiled_memory_stats();
  EXPECT_EQ(stats.argument_size_in_bytes, 32);
  EXPECT_EQ(stats.alias_size_in_bytes, 16);
  EXPECT(stats.output_size_in_bytes >= 16);
  EXPECT(!executable->optimized_program().format.empty());
  EXPECT(executable->optimized_program().code.find("add") != std::string::npos);
  EXPECT_EQ(executable->fingerprint(),
            client->compile(add_program(kDonated), portable())->fingerprint());
}

PLUGIN_TEST(test_an_unknown_flag_of_the_compiler_is_refused) {
  const auto client = plugin.client();
  CompileOptions options = portable();
  options.env_option_overrides = {{"xla_backend_optimization_level", std::int64_t{1}}};
  EXPECT(client->compile(add_program(), options) != nullptr);
  options.env_option_overrides = {{"xla_no_such_flag", true}};
  const Error error = error_of([&] { client->compile(add_program(), options); });
  EXPECT(error.message().find("xla_no_such_flag") != std::string::npos);
}

PLUGIN_TEST(test_a_malformed_program_is_an_error_with_code_and_call) {
  const auto client = plugin.client();
  const Error error = error_of([&] { client->compile("module { nonsense", portable()); });
  EXPECT_EQ(error.call(), "PJRT_Client_Compile");
  EXPECT(error.code() != ErrorCode::kOk);
  EXPECT(error.kind() == base::ErrorKind::kRuntime);
  EXPECT(std::string(error.what()).starts_with("PJRT_Client_Compile: "));
  // The client goes on working.
  EXPECT(client->compile(add_program(), portable()) != nullptr);
}

PLUGIN_TEST(test_wrong_arguments_are_errors) {
  const auto client = plugin.client();
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

PLUGIN_TEST(test_many_threads_execute_at_once) {
  const auto client = plugin.client();
  const auto executable = client->compile(add_program(), portable());
  const std::size_t num_devices = client->addressable_devices().size();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Device* device = client->addressable_devices()[t % num_devices];
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

PLUGIN_TEST(test_objects_keep_their_client_alive_and_leave_nothing) {
  expect_nothing_lives();
  {
    auto client = plugin.client();
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

// ---- Custom calls

std::string scale_program(const std::string& target, int factor) {
  return "module @test {\n"
         "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
         "  %0 = stablehlo.custom_call @" +
         target +
         "(%a) {api_version = 4 : i32,\n"
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

PLUGIN_TEST(test_a_custom_call_runs_our_function) {
  const auto library = plugin.load();
  const std::string target = "torch_xla_test.scale_" + plugin.name();
  register_custom_call(*library, target, &scale);
  const Error error = error_of([&] { register_custom_call(*library, target, &scale); });
  EXPECT(error.code() == ErrorCode::kAlreadyExists);

  const auto client = plugin.client_on_host_memory();
  Device* device = client->addressable_devices()[0];
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a};
  const auto run = [&](int factor) {
    const auto executable = client->compile(scale_program(target, factor), portable());
    return download(executable->execute(arguments, on(device)).outputs[0][0]);
  };
  EXPECT(run(3) == (Floats{3.5, 6.5, 9.5, 12.5}));
  EXPECT_THROWS(run(13), "scale: unlucky factor");
  EXPECT_THROWS(run(14), "no attribute 'absent'");
  EXPECT_THROWS(run(15), "attribute 'mode' is of another kind");
  EXPECT_THROWS(run(16), "unknown exception in a custom call");
  EXPECT(run(2) == (Floats{2.5, 4.5, 6.5, 8.5}));
}

// How many tasks of `scale_in_tasks` have run.
std::atomic<int> num_tasks{0};

// Doubles each element, on whatever threads come: the call itself waits for none of them.
void scale_in_tasks(const CustomCallFrame& frame) {
  const CustomCallArray in = frame.input(0);
  const CustomCallArray out = frame.output(0);
  for (std::int64_t i = 0; i < in.dims[0]; ++i) {
    static_cast<float*>(out.data)[i] = 2 * static_cast<const float*>(in.data)[i];
  }
  const std::size_t num_threads = frame.num_threads();
  base::check(num_threads >= 1, "the calling thread is one");
  if (num_threads == 1) num_tasks = 3;
  for (int i = 0; i < 3; ++i) frame.schedule([] { ++num_tasks; });
}

PLUGIN_TEST(test_a_custom_call_schedules_tasks) {
  num_tasks = 0;
  const auto library = plugin.load();
  const std::string target = "torch_xla_test.scale_in_tasks_" + plugin.name();
  register_custom_call(*library, target, &scale_in_tasks);
#ifdef __SANITIZE_THREAD__
  std::cerr << "skipped: it does not see how the plugin hands work from thread to thread\n";
#else
  const auto client = plugin.client_on_host_memory();
  Device* device = client->addressable_devices()[0];
  Buffer a = upload(device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a};
  const auto executable = client->compile(scale_program(target, 1), portable());
  EXPECT(download(executable->execute(arguments, on(device)).outputs[0][0]) ==
         (Floats{2, 4, 6, 8}));
  for (int i = 0; i < 10000 && num_tasks < 3; ++i) std::this_thread::sleep_for(1ms);
  EXPECT(num_tasks >= 3);
#endif
}

// ---- The list of exceptions

TEST(test_exceptions_are_strict) {
  const auto judged = [](Outcome outcome, std::string_view platform, std::string_view claim) {
    return judge(outcome, "as it should be", platform, claim);
  };
  const Exception& lacks = kExceptions[0];
  EXPECT(judged(Outcome::kUnsupported, lacks.platform, lacks.claim) == Outcome::kUnsupported);
  EXPECT(judged(Outcome::kPassed, lacks.platform, lacks.claim) == Outcome::kFailed);
  EXPECT(judged(Outcome::kFailed, lacks.platform, lacks.claim) == Outcome::kFailed);
  const Exception& fails = kExceptions[1];
  EXPECT(judged(Outcome::kFailed, fails.platform, fails.claim) == Outcome::kExpectedFailure);
  EXPECT(judged(Outcome::kPassed, fails.platform, fails.claim) == Outcome::kFailed);
  EXPECT(judged(Outcome::kUnsupported, fails.platform, fails.claim) == Outcome::kFailed);
  // Without a line.
  EXPECT(judged(Outcome::kUnsupported, "fake", "another") == Outcome::kFailed);
  EXPECT(judged(Outcome::kUnsupported, "new", "another") == Outcome::kUnsupported);
  EXPECT(judged(Outcome::kFailed, "new", "another") == Outcome::kFailed);
  EXPECT(judged(Outcome::kPassed, "new", "another") == Outcome::kPassed);
}

TEST(test_exceptions_are_about_claims_that_exist) {
  for (const Exception& exception : kExceptions) {
    EXPECT(std::ranges::any_of(test_cases(), [&](const TestCase& test) {
      return test.name.starts_with(std::string(exception.claim) + "[");
    }));
  }
}

}  // namespace
}  // namespace torch_xla::pjrt
