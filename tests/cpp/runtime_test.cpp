// The process's client, its devices, arrays and transfers, on the fake plugin.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "base/metrics.h"
#include "base/settings.h"
#include "runtime/create_options.h"
#include "runtime/host_kernels.h"
#include "runtime/platform_options.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::FakePlugin;
using testing::Floats;
using testing::kCpuPlugin;
using testing::kFakePlugin;
using testing::Session;

TEST(the_client_is_created_on_first_use) {
  const Session session(kFakePlugin, 2);
  EXPECT(!runtime::is_initialized());
  EXPECT_EQ(runtime::device_count(), 2);
  EXPECT(runtime::is_initialized());
  EXPECT_EQ(runtime::client().device_type(), std::string("CPU"));
  EXPECT_EQ(runtime::device(1).name(), std::string("CPU:1"));
  EXPECT_EQ(runtime::device(1).ordinal(), 1);
  EXPECT(&runtime::device(1) == &runtime::device(1));
}

TEST(a_device_that_does_not_exist_is_named) {
  const Session session(kFakePlugin, 2);
  EXPECT_THROWS(runtime::device(2),
                "device index 2 does not exist, there are 2 xla devices (xla:0, xla:1)");
  EXPECT_THROWS(runtime::device(-1), "device index -1 does not exist");
}

TEST(the_upper_bound_of_devices_needs_no_client) {
  const Session session(kFakePlugin, 2);
  base::settings().cpu_num_devices.set(3);
  base::settings().pjrt_device.set("");
  EXPECT_EQ(runtime::device_count_upper_bound(), 3);
  EXPECT(!runtime::is_initialized());
  base::settings().pjrt_device.set("cuda");
  EXPECT(runtime::device_count_upper_bound() >= 8);
  base::settings().reload();
  runtime::client();
  EXPECT_EQ(runtime::device_count_upper_bound(), 2);
}

TEST(settings_name_the_plugin_without_a_resolver) {
  const Session session(kFakePlugin);
  runtime::set_plugin_resolver({});
  base::settings().pjrt_library_path.set("");
  EXPECT_THROWS(runtime::client(), "PJRT_LIBRARY_PATH");
  base::settings().pjrt_library_path.set(kFakePlugin);
  base::settings().cpu_num_devices.set(3);
  EXPECT_EQ(runtime::device_count(), 3);
  base::settings().reload();
}

TEST(create_options_of_the_user_go_before_those_of_the_package) {
  const Session session(kFakePlugin, 3);
  base::settings().pjrt_create_options.set("cpu_device_count=2");
  EXPECT_EQ(runtime::device_count(), 2);
  base::settings().reload();
}

TEST(create_options_have_the_types_that_plugins_tell_apart) {
  const pjrt::NamedValues options = runtime::parse_create_options(
      " preallocate=false  memory_fraction=0.5\tnum_nodes=2 visible_devices=[0,3] allocator=bfc");
  EXPECT(options == (pjrt::NamedValues{{"preallocate", false},
                                       {"memory_fraction", 0.5F},
                                       {"num_nodes", std::int64_t{2}},
                                       {"visible_devices", std::vector<std::int64_t>{0, 3}},
                                       {"allocator", std::string("bfc")}}));
  EXPECT(runtime::parse_create_options("list=[] text=[a]") ==
         (pjrt::NamedValues{{"list", std::vector<std::int64_t>()}, {"text", std::string("[a]")}}));
  EXPECT_THROWS(runtime::parse_create_options("preallocate"),
                "PJRT_CREATE_OPTIONS: an option must look like name=value, got 'preallocate'");
}

TEST(a_client_that_fails_to_start_names_the_plugin_and_may_be_tried_again) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  fake.fail("PJRT_Client_Create", 14, "the device is busy");
  EXPECT_THROWS(runtime::client(),
                "the PJRT plugin for 'CPU' (" + fake.path() + ") could not be started");
  EXPECT_THROWS(runtime::client(), "the device is busy");
  fake.reset();
  EXPECT_EQ(runtime::device_count(), 1);
}

TEST(a_client_without_devices_is_an_error) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  {
    const Session session(fake.path(), 0);
    EXPECT_THROWS(runtime::client(), "it offers no device to this process");
  }
  const Session session(fake.path(), 2);
  EXPECT_EQ(runtime::device_count(), 2);
}

TEST(a_missing_plugin_is_an_error) {
  const Session session("/nowhere/plugin.so");
  EXPECT_THROWS(runtime::device(0), "/nowhere/plugin.so");
  EXPECT(!runtime::is_initialized());
}

TEST(several_threads_create_one_client) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  std::vector<std::thread> threads;
  std::vector<runtime::Device*> devices(4);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] { devices[i] = &runtime::device(0); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const runtime::Device* device : devices) EXPECT(device == devices[0]);
  EXPECT_EQ(fake.calls("PJRT_Client_Create"), 1);
}

TEST(host_kernels_are_those_of_the_client) {
  runtime::add_host_kernel("runtime_test.nothing", [](const runtime::HostCall&) {});
  for (int i = 0; i < 2; ++i) {
    if (!testing::skip_without_cpu_plugin()) {
      const Session session(kCpuPlugin);
      EXPECT(runtime::has_host_kernels());
    }
    const Session session(kFakePlugin);
    EXPECT(!runtime::has_host_kernels());
  }
}

TEST(a_forked_child_is_told_that_it_cannot_use_the_device) {
  const Session session(kFakePlugin);
  runtime::client();
  const pid_t child = fork();
  if (child == 0) {
    try {
      runtime::client();
    } catch (const base::Error& error) {
      _exit(std::string(error.what()).find("forked") != std::string::npos ? 7 : 1);
    }
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(arrays_go_to_the_device_and_back) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = runtime::device(0);
  const Floats values = {1, 2, 3, 4};
  const runtime::ArrayPtr array =
      runtime::upload(device, values.data(), {base::DType::kFloat32, {2, 2}});
  EXPECT(&array->device() == &device);
  EXPECT_EQ(array->shape().num_bytes(), 16);
  EXPECT(array->is_ready());
  EXPECT(testing::download(*array) == values);
  const runtime::ArrayPtr copy = runtime::copy_to_device(*array, runtime::device(1));
  EXPECT(&copy->device() == &runtime::device(1));
  EXPECT(testing::download(*copy) == values);
}

TEST(several_arrays_are_transferred_at_once) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  base::clear_metrics();
  const Floats a = {1, 2};
  const Floats b = {3, 4, 5};
  const std::vector<runtime::HostArray> sources = {{a.data(), {base::DType::kFloat32, {2}}},
                                                   {b.data(), {base::DType::kFloat32, {3}}}};
  const std::vector<runtime::ArrayPtr> arrays = runtime::upload(device, sources);
  Floats first(2);
  Floats second(3);
  const std::vector<runtime::Download> downloads = {{arrays[0].get(), first.data()},
                                                    {arrays[1].get(), second.data()}};
  runtime::download(downloads);
  EXPECT(first == a);
  EXPECT(second == b);
  EXPECT_EQ(base::metric_data("OutboundData")->accumulator, 20.0);
  EXPECT_EQ(base::metric_data("InboundData")->accumulator, 20.0);
  EXPECT_EQ(base::metric_data("TransferToDeviceTime")->total_samples, 1);
  EXPECT_EQ(base::metric_data("TransferFromDeviceTime")->total_samples, 1);
}

TEST(a_transfer_that_fails_throws_and_keeps_its_kind) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const float value = 1;
  fake.fail("PJRT_Client_BufferFromHostBuffer", 8, "no memory left");
  try {
    runtime::upload(device, &value, {base::DType::kFloat32, {1}});
    EXPECT(false);
  } catch (const base::Error& error) {
    EXPECT(error.kind() == base::ErrorKind::kOutOfMemory);
    const std::string text = error.what();
    EXPECT(text.find("copying f32[1] to xla:0 failed") != std::string::npos);
    EXPECT(text.find("live buffers of xla:0, 0 bytes in all") != std::string::npos);
  }
  fake.reset();
  const runtime::ArrayPtr array = runtime::upload(device, &value, {base::DType::kFloat32, {1}});
  fake.fail("Transfer", 13, "the link is down");
  EXPECT_THROWS(testing::download(*array), "the link is down");
  fake.reset();
  EXPECT_EQ(testing::download(*array)[0], 1.0f);
}

TEST(shutdown_gives_back_the_memory_of_tensors_that_still_exist) {
  testing::Tensor kept{};
  {
    const Session session(kFakePlugin);
    kept = testing::tensor(runtime::device(0), {1, 2});
  }
  EXPECT_THROWS(testing::values_of(kept), "was shut down");
  EXPECT_THROWS(testing::values_of(testing::add(kept, kept)), "was shut down");
  const Session session(kFakePlugin);
  EXPECT(testing::values_of(testing::tensor(runtime::device(0), {3})) == Floats{3});
}

TEST(flags_are_read_from_xla_flags) {
  const auto flags = runtime::parse_xla_flags(" --xla_a=1  --xla_b --xla_c=x=y\n");
  EXPECT_EQ(flags.size(), std::size_t{3});
  EXPECT(std::get<std::string>(flags.at("xla_a")) == "1");
  EXPECT(std::get<bool>(flags.at("xla_b")));
  EXPECT(std::get<std::string>(flags.at("xla_c")) == "x=y");
  EXPECT_THROWS(runtime::parse_xla_flags("xla_a=1"), "must look like --xla_name=value");
}

TEST(options_of_the_user_are_part_of_the_key) {
  const base::Hash128 before = runtime::compile_options_key("cpu");
  EXPECT(before == runtime::compile_options_key("cpu"));
  EXPECT(before != runtime::compile_options_key("cuda"));
  runtime::set_custom_compile_options({{"xla_cpu_enable_fast_math", false}});
  const base::Hash128 with_custom = runtime::compile_options_key("cpu");
  EXPECT(before != with_custom);
  EXPECT(runtime::compile_options("cpu").env_option_overrides.contains("xla_cpu_enable_fast_math"));
  runtime::set_custom_compile_options({});
  base::settings().xla_flags.set("--xla_llvm_disable_expensive_passes=true");
  EXPECT(before != runtime::compile_options_key("cpu"));
  EXPECT(with_custom != runtime::compile_options_key("cpu"));
  base::settings().xla_flags.set("");
  EXPECT(before == runtime::compile_options_key("cpu"));
  runtime::set_thread_compile_options({{{"xla_cpu_enable_fast_math", false}}});
  EXPECT(with_custom == runtime::compile_options_key("cpu"));
  std::thread([&] { EXPECT(before == runtime::compile_options_key("cpu")); }).join();
  runtime::set_thread_compile_options(std::nullopt);
  EXPECT(before == runtime::compile_options_key("cpu"));
}

TEST(programs_of_several_replicas_have_options_of_their_own) {
  const std::string flag = "xla_gpu_enable_nccl_comm_splitting";
  const auto has_flag = [&](const char* platform, const runtime::Placement& placement) {
    return runtime::compile_options(platform, {}, placement).env_option_overrides.contains(flag);
  };
  const runtime::Placement replicas{.num_partitions = 1, .device_assignment = {0, 1}};
  const runtime::Placement partitions{.num_partitions = 2, .device_assignment = {0, 1}};
  EXPECT(has_flag("cuda", replicas) && !has_flag("cuda", partitions) && !has_flag("cpu", replicas));
  EXPECT(runtime::drop_rejected_defaults("cuda", "unknown flag " + flag));
  EXPECT(!has_flag("cuda", replicas));
}

TEST(passes_that_the_user_disables_are_added_to_ours) {
  const auto passes = [] {
    const auto flags = runtime::compile_options("cpu").env_option_overrides;
    return std::get<std::string>(flags.at("xla_disable_hlo_passes"));
  };
  const std::string ours = passes();
  base::settings().xla_flags.set("--xla_disable_hlo_passes=a,b");
  EXPECT(passes() == ours + ",a,b");
  runtime::set_custom_compile_options({{"xla_disable_hlo_passes", "c"}});
  EXPECT(passes() == ours + ",a,b,c");
  base::settings().xla_flags.set("--xla_disable_hlo_passes=");
  runtime::set_custom_compile_options({});
  EXPECT(passes() == "");
  base::settings().xla_flags.set("");
  EXPECT(passes() == ours);
}

TEST(flags_of_ours_that_a_plugin_does_not_know_are_dropped) {
  const auto flags = [] { return runtime::compile_options("cpu").env_option_overrides; };
  const auto before = flags();
  EXPECT(!runtime::drop_rejected_defaults("cpu", "the compiler gave up"));
  EXPECT(flags() == before);
  const std::string name = before.begin()->first;
  EXPECT(!runtime::drop_rejected_defaults("fake", name));
  EXPECT(runtime::drop_rejected_defaults("cpu", "No such compile option: " + name));
  EXPECT(!flags().contains(name));
  EXPECT(!runtime::drop_rejected_defaults("cpu", "No such compile option: " + name));
}

}  // namespace
}  // namespace torch_xla
