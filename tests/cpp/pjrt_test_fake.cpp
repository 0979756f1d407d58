// src/pjrt against the fake plugin: what happens when a plugin is missing, old, slow or failing,
// and that nothing leaks then.
#include <array>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pjrt/ffi.h"
#include "pjrt_c_api.h"
#include "pjrt_fixture.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)
using Floats = std::vector<float>;

struct RunningOptions {
  bool is_async = false;
  std::string attributes = {};  // of the program's first parameter
};

// With a client, its first device, and a program compiled for it.
struct RunningFake : Fake {
  explicit RunningFake(const RunningOptions& options = {})
      // Clients are asynchronous or not from the start.
      : client((controls.set_async(options.is_async), make_client())),
        device(client->addressable_devices()[0]),
        executable(client->compile(add_program(options.attributes), portable())) {}

  const std::shared_ptr<Client> client;
  Device* const device;
  const std::unique_ptr<Executable> executable;
};

TEST(test_a_missing_or_wrong_file_is_a_clear_error) {
  const Error missing = error_of([] { Plugin::load("/no/such/plugin.so"); });
  EXPECT(missing.code() == ErrorCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot use the PJRT plugin '/no/such/plugin.so': no such file");
  const Error no_library = error_of([] { Plugin::load(__FILE__); });
  EXPECT(no_library.code() == ErrorCode::kFailedPrecondition);
  EXPECT_EQ(no_library.call(), "dlopen");
}

TEST(test_another_major_version_is_refused) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  fake.set_version(1, 3);
  const Error error = error_of([&] { Plugin::load(fake.path()); });
  EXPECT(error.code() == ErrorCode::kFailedPrecondition);
  EXPECT(error.message().find("its PJRT API version is 1.3, this build needs 0.x") !=
         std::string::npos);
  fake.reset();
  EXPECT_EQ(Plugin::load(fake.path())->api_version().major_version, 0);
}

TEST(test_another_minor_version_is_accepted) {
  for (const int minor : {PJRT_API_MINOR - 20, PJRT_API_MINOR + 20}) {
    const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
    fake.set_version(0, minor);
    EXPECT_EQ(Plugin::load(fake.path())->api_version().minor_version, minor);
  }
}

TEST(test_a_plugin_that_cannot_state_its_version_is_refused) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  fake.set_struct_size(8);
  EXPECT_THROWS(Plugin::load(fake.path()), "too old to state its PJRT API version");
}

TEST(test_a_failed_initialization_can_be_tried_again) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  fake.fail("PJRT_Plugin_Initialize", 14, "no driver");
  const Error error = error_of([&] { Plugin::load(fake.path()); });
  EXPECT_EQ(std::string(error.what()), "PJRT_Plugin_Initialize: UNAVAILABLE: no driver");
  fake.fail("PJRT_Plugin_Initialize", 0, "");
  EXPECT(Plugin::load(fake.path()) != nullptr);
  EXPECT(Plugin::load(fake.path()) != nullptr);
  EXPECT_EQ(fake.calls("PJRT_Plugin_Initialize"), 2);
}

TEST(test_a_call_that_the_plugin_is_too_old_for_is_named) {
  const RunningFake fake;
  EXPECT(!fake.executable->fingerprint().empty());
  fake.controls.set_struct_size(offsetof(PJRT_Api, PJRT_Executable_Fingerprint));
  const Error error = error_of([&] { fake.executable->fingerprint(); });
  EXPECT(error.code() == ErrorCode::kUnimplemented);
  EXPECT(error.kind() == base::ErrorKind::kUnimplemented);
  EXPECT_EQ(error.call(), "PJRT_Executable_Fingerprint");
  EXPECT(error.message().find("the plugin is too old for this call") != std::string::npos);
}

TEST(test_every_code_becomes_the_right_error) {
  const Fake fake;
  const auto client = fake.make_client();
  for (int code = 1; code <= 16; ++code) {
    fake.controls.fail("PJRT_Client_Compile", code, "because");
    const Error error = error_of([&] { client->compile(add_program(), portable()); });
    EXPECT_EQ(static_cast<int>(error.code()), code);
    EXPECT_EQ(error.call(), "PJRT_Client_Compile");
    EXPECT_EQ(error.message(), "because");
    EXPECT_EQ(std::string(error.what()),
              base::str("PJRT_Client_Compile: ", to_string(error.code()), ": because"));
    const base::ErrorKind expected = code == 8    ? base::ErrorKind::kOutOfMemory
                                     : code == 12 ? base::ErrorKind::kUnimplemented
                                                  : base::ErrorKind::kRuntime;
    EXPECT(error.kind() == expected);
  }
}

TEST(test_internal_error_about_memory_is_out_of_memory) {
  const Fake fake;
  const auto client = fake.make_client();
  fake.controls.fail("PJRT_Client_Compile", 13,
                     "Error preparing computation: Out of memory allocating 8 bytes.");
  const Error error = error_of([&] { client->compile(add_program(), portable()); });
  EXPECT(error.code() == ErrorCode::kInternal);
  EXPECT(error.kind() == base::ErrorKind::kOutOfMemory);
}

TEST(test_a_client_that_does_not_start_leaves_nothing) {
  const Fake fake;
  EXPECT_THROWS(fake.make_client({{"no_such_option", true}}), "unknown option no_such_option");
  for (const char* call : {"PJRT_Client_Create", "PJRT_Client_AddressableDevices",
                           "PJRT_Client_Devices", "PJRT_DeviceDescription_Id"}) {
    fake.controls.fail(call, 13, "broken");
    EXPECT_EQ(error_of([&] { fake.make_client(); }).call(), call);
    fake.controls.fail(call, 0, "");
    EXPECT_EQ(fake.controls.live("client"), 0);
  }
}

TEST(test_client_options_of_every_type_arrive) {
  const Fake fake;
  const auto client = fake.make_client(
      {{"cpu_device_count", std::int64_t{3}}, {"version", "fake 2.0"}, {"use_store", false}});
  EXPECT_EQ(client->addressable_devices().size(), std::size_t{3});
  EXPECT_EQ(client->platform_version(), "fake 2.0");
}

TEST(test_the_plugin_reaches_the_key_value_store) {
  const Fake fake;
  std::map<std::string, std::string> stored;
  KeyValueStore store;
  store.put = [&](std::string_view key, std::string_view value) { stored.emplace(key, value); };
  store.get = [&](std::string_view key, std::chrono::milliseconds timeout) {
    EXPECT_EQ(timeout.count(), 50);
    return stored.at(std::string(key));
  };
  store.try_get = [&](std::string_view key) -> std::optional<std::string> {
    const auto found = stored.find(std::string(key));
    return found != stored.end() ? std::optional(found->second) : std::nullopt;
  };
  const auto plugin = Plugin::load(kFakePlugin);
  EXPECT_EQ(Client::create(plugin, {{"use_store", true}}, store)->platform_version(),
            "stored, missing");

  store.get = [](std::string_view, std::chrono::milliseconds) -> std::string {
    throw Error(ErrorCode::kDeadlineExceeded, "get", "nobody came");
  };
  const Error late = error_of([&] { Client::create(plugin, {{"use_store", true}}, store); });
  EXPECT(late.code() == ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "nobody came");
  store.put = [](std::string_view, std::string_view) { throw std::runtime_error("disk full"); };
  const Error failed = error_of([&] { Client::create(plugin, {{"use_store", true}}, store); });
  EXPECT(failed.code() == ErrorCode::kInternal);
  EXPECT_EQ(failed.message(), "disk full");
}

TEST(test_memory_statistics_are_read_where_the_plugin_has_them) {
  const Fake fake;
  const auto client = fake.make_client();
  Device* device = client->addressable_devices()[0];
  const Buffer buffer = upload(device, Floats(25, 1.0F));
  const std::optional<MemoryStats> stats = device->memory_stats();
  EXPECT_EQ(stats->bytes_in_use, 100);
  EXPECT_EQ(stats->bytes_limit.value_or(0), std::int64_t{1} << 30);
  EXPECT(!stats->peak_bytes_in_use.has_value());
  EXPECT_EQ(std::get<std::int64_t>(device->attributes().at("num_cores")), 2);
}

TEST(test_out_of_memory_names_itself_and_still_calls_done) {
  const Fake fake;
  const auto client = fake.make_client();
  fake.controls.fail("PJRT_Client_BufferFromHostBuffer", 8, "out of memory");
  int done = 0;
  const float value = 1;
  const Error error = error_of([&] {
    client->buffer_from_host_buffer(&value, base::DType::kFloat32, {}, {},
                                    client->addressable_devices()[0],
                                    HostBufferSemantics::kImmutableZeroCopy, [&] { ++done; });
  });
  EXPECT(error.kind() == base::ErrorKind::kOutOfMemory);
  EXPECT_EQ(done, 1);
}

TEST(test_borrowed_memory_is_given_back_when_the_buffer_goes) {
  const Fake fake;
  const auto client = fake.make_client();
  const Floats values = {1, 2, 3};
  const std::int64_t dims[] = {3};
  int done = 0;
  {
    const Buffer buffer = client->buffer_from_host_buffer(
        values.data(), base::DType::kFloat32, dims, {}, client->addressable_devices()[0],
        HostBufferSemantics::kImmutableZeroCopy, [&] { ++done; });
    EXPECT(download(buffer) == values);
    EXPECT_EQ(done, 0);
  }
  EXPECT_EQ(done, 1);
}

// Two launches in a row, the second on the first one's output.
ExecuteResult launch_twice(const Executable& executable, Device* device, Buffer& a) {
  Buffer* first[] = {&a, &a};
  ExecuteOptions options = on(device);
  options.want_events = true;
  ExecuteResult sum = executable.execute(first, options);
  Buffer* second[] = {&sum.outputs[0][0], &a};
  return executable.execute(second, options);
}

TEST(test_launches_return_before_the_work_is_done) {
  const RunningFake fake({.is_async = true});
  Buffer a = upload(fake.device, {1, 2, 3, 4});
  fake.controls.hang("Execution");
  const ExecuteResult result = launch_twice(*fake.executable, fake.device, a);
  EXPECT(!result.events[0].is_ready());
  EXPECT(!result.outputs[0][0].ready_event().is_ready());
  std::atomic<int> called{0};
  result.events[0].on_ready([&](const std::optional<Error>& error) {
    EXPECT(!error.has_value());
    ++called;
  });
  EXPECT_EQ(called.load(), 0);
  fake.controls.release();
  result.events[0].await();
  EXPECT(result.events[0].is_ready());
  EXPECT(eventually([&] { return called.load() == 1; }));
  EXPECT(download(result.outputs[0][0]) == (Floats{3, 6, 9, 12}));
}

TEST(test_a_failure_of_asynchronous_work_reaches_events_and_outputs) {
  const RunningFake fake({.is_async = true, .attributes = kDonated});
  Buffer a = upload(fake.device, {1, 2, 3, 4});
  Buffer b = upload(fake.device, {1, 2, 3, 4});
  fake.controls.fail("Execution", 13, "device lost");
  ExecuteOptions options = on(fake.device);
  options.want_events = true;
  Buffer* arguments[] = {&a, &b};
  const ExecuteResult result = fake.executable->execute(arguments, options);
  const Error error = error_of([&] { result.events[0].await(); });
  EXPECT_EQ(std::string(error.what()), "PJRT_LoadedExecutable_Execute: INTERNAL: device lost");
  // Every wait tells it, and so does every callback.
  EXPECT_EQ(error_of([&] { result.events[0].await(); }).message(), "device lost");
  std::promise<std::string> told;
  result.events[0].on_ready([&](const std::optional<Error>& e) { told.set_value(e->message()); });
  EXPECT_EQ(told.get_future().get(), "device lost");
  EXPECT_EQ(error_of([&] { download(result.outputs[0][0]); }).message(), "device lost");
  EXPECT(a.is_deleted());
  EXPECT(!b.is_deleted());
}

TEST(test_a_failed_input_fails_what_is_made_of_it) {
  const RunningFake fake({.is_async = true});
  Buffer a = upload(fake.device, {1, 2, 3, 4});
  fake.controls.fail("Execution", 8, "no memory on the device");
  Buffer* arguments[] = {&a, &a};
  ExecuteResult failed = fake.executable->execute(arguments, on(fake.device));
  EXPECT_THROWS(failed.outputs[0][0].ready_event().await(), "no memory on the device");
  fake.controls.fail("Execution", 0, "");
  Buffer* dependent[] = {&failed.outputs[0][0], &a};
  const ExecuteResult result = fake.executable->execute(dependent, on(fake.device));
  const Error error = error_of([&] { download(result.outputs[0][0]); });
  EXPECT(error.kind() == base::ErrorKind::kOutOfMemory);
  // The device goes on working.
  EXPECT(download(fake.executable->execute(arguments, on(fake.device)).outputs[0][0]) ==
         (Floats{2, 4, 6, 8}));
}

TEST(test_a_failed_launch_leaves_arguments_and_no_outputs) {
  const RunningFake fake({.attributes = kDonated});
  Buffer a = upload(fake.device, {1, 2, 3, 4});
  Buffer b = upload(fake.device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a, &b};
  fake.controls.fail("PJRT_LoadedExecutable_Execute", 10, "aborted");
  EXPECT_THROWS(fake.executable->execute(arguments, on(fake.device)), "ABORTED: aborted");
  EXPECT(!a.is_deleted());
  EXPECT_EQ(live_objects().buffers, 2);
}

TEST(test_an_executable_that_cannot_be_read_is_given_back) {
  const Fake fake;
  const auto client = fake.make_client();
  for (const char* call : {"PJRT_LoadedExecutable_GetExecutable", "PJRT_Executable_NumOutputs"}) {
    fake.controls.fail(call, 13, "broken");
    EXPECT_EQ(error_of([&] { client->compile(add_program(), portable()); }).call(), call);
    fake.controls.fail(call, 0, "");
    EXPECT_EQ(fake.controls.live("executable"), 0);
  }
}

TEST(test_destructors_do_not_throw_when_the_plugin_fails) {
  const Fake fake;
  const auto client = fake.make_client();
  std::optional<Buffer> buffer = upload(client->addressable_devices()[0], {1, 2, 3, 4});
  PJRT_Buffer* c_buffer = buffer->c_buffer();
  fake.controls.fail("PJRT_Buffer_Destroy", 13, "cannot destroy");
  buffer.reset();
  EXPECT_EQ(live_objects().buffers, 0);
  // The fake kept the buffer, so it is destroyed here, as a plugin that works would have done.
  fake.controls.fail("PJRT_Buffer_Destroy", 0, "");
  buffer.emplace(client, c_buffer);
}

TEST(test_a_callback_may_outlive_its_event) {
  const RunningFake fake({.is_async = true});
  Buffer a = upload(fake.device, {1, 2, 3, 4});
  fake.controls.hang("Execution");
  std::promise<void> called;
  {
    const ExecuteResult result = launch_twice(*fake.executable, fake.device, a);
    result.events[0].on_ready([&](const std::optional<Error>&) { called.set_value(); });
  }
  EXPECT(live_objects().events > 0);
  fake.controls.release();
  called.get_future().wait();
  EXPECT(eventually([] { return live_objects().events == 0; }));
}

TEST(test_a_failed_registration_drops_the_callback) {
  const Fake fake;
  const auto client = fake.make_client();
  const Buffer buffer = upload(client->addressable_devices()[0], {1});
  const auto token = std::make_shared<int>(0);
  fake.controls.fail("PJRT_Event_OnReady", 13, "broken");
  const Event event = buffer.ready_event();
  EXPECT_THROWS(event.on_ready([token](const std::optional<Error>&) {}), "broken");
  EXPECT_EQ(token.use_count(), 1L);
}

TEST(test_an_empty_event_is_ready) {
  const Event event;
  EXPECT(event.is_ready());
  event.await();
  bool called = false;
  event.on_ready([&](const std::optional<Error>& error) { called = !error.has_value(); });
  EXPECT(called);
}

TEST(test_a_hanging_compile_holds_up_nobody_else) {
  const RunningFake fake;
  fake.controls.hang("PJRT_Client_Compile");
  std::future<std::unique_ptr<Executable>> compiled = std::async(
      std::launch::async, [&] { return fake.client->compile(add_program(), portable()); });
  EXPECT(eventually([&] { return fake.controls.waiting("PJRT_Client_Compile") == 1; }));
  Buffer a = upload(fake.device, {1, 2, 3, 4});
  Buffer* arguments[] = {&a, &a};
  EXPECT(download(fake.executable->execute(arguments, on(fake.device)).outputs[0][0]) ==
         (Floats{2, 4, 6, 8}));
  fake.controls.release();
  EXPECT(compiled.get() != nullptr);
}

TEST(test_external_references_are_released) {
  const Fake fake;
  const auto client = fake.make_client();
  const Buffer buffer = upload(client->addressable_devices()[0], {5});
  {
    ExternalReference reference(buffer);
    ExternalReference moved = std::move(reference);
    EXPECT_EQ(*static_cast<float*>(moved.data()), 5.0F);
    reference = std::move(moved);
  }
  EXPECT_EQ(fake.controls.calls("PJRT_Buffer_IncreaseExternalReferenceCount"), 1);
  EXPECT_EQ(fake.controls.calls("PJRT_Buffer_DecreaseExternalReferenceCount"), 1);
  fake.controls.fail("PJRT_Buffer_OpaqueDeviceMemoryDataPointer", 12, "not here");
  EXPECT_THROWS(ExternalReference{buffer}, "not here");
  EXPECT_EQ(fake.controls.calls("PJRT_Buffer_DecreaseExternalReferenceCount"), 2);
}

TEST(test_a_moved_buffer_has_one_owner) {
  const Fake fake;
  const auto client = fake.make_client();
  Device* device = client->addressable_devices()[0];
  Buffer a = upload(device, {1});
  Buffer b = upload(device, {2});
  EXPECT_EQ(live_objects().buffers, 2);
  a = std::move(b);
  EXPECT_EQ(live_objects().buffers, 1);
  EXPECT(download(a) == Floats{2});
  Buffer& same = a;
  a = std::move(same);
  EXPECT(download(a) == Floats{2});
}

TEST(test_a_plugin_without_ffi_takes_no_custom_calls) {
  const auto plugin = Plugin::load(kFakePlugin);
  const Error error =
      error_of([&] { register_custom_call(*plugin, "x", [](const CustomCallFrame&) {}); });
  EXPECT(error.code() == ErrorCode::kUnimplemented);
}

TEST(test_threads_share_clients_devices_and_executables) {
  const Fake fake;
  fake.controls.set_async(true);
  const auto client = fake.make_client({{"cpu_device_count", std::int64_t{2}}});
  const auto executable = client->compile(add_program(kDonated), portable());
  constexpr int kSteps = 100;
  std::array<Floats, 4> sums;
  std::atomic<int> completed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Device* device = client->lookup_device(t % 2);
      Buffer sum = upload(device, {0, 0, 0, 0});
      Buffer step = upload(device, {1, 2, 3, static_cast<float>(t)});
      ExecuteOptions options = on(device);
      options.want_events = true;
      for (int i = 0; i < kSteps; ++i) {
        Buffer* arguments[] = {&sum, &step};
        ExecuteResult result = executable->execute(arguments, options);
        result.events[0].on_ready([&](const std::optional<Error>&) { ++completed; });
        sum = std::move(result.outputs[0][0]);
      }
      sums[t] = download(sum);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) {
    EXPECT(sums[t] == (Floats{kSteps, 2 * kSteps, 3 * kSteps, static_cast<float>(kSteps * t)}));
  }
  EXPECT(eventually([&] { return completed.load() == 4 * kSteps; }));
  EXPECT(eventually([] { return live_objects().events == 0; }));
}

}  // namespace
}  // namespace torch_xla::pjrt
