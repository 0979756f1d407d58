// What the real CPU plugin promises beyond what every plugin does (pjrt_suite.h).
#include <memory>
#include <string>
#include <vector>

#include "base/kept_blocks.h"
#include "pjrt/plugin_memory.h"
#include "pjrt_fixture.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)

TEST(test_cpu_plugin_states_its_versions) {
  need_cpu_plugin();
  const auto plugin = Plugin::load(kCpuPlugin);
  EXPECT_EQ(plugin->api_version().major_version, 0);
  EXPECT(plugin->api_version().minor_version > 0);
  const NamedValues attributes = plugin->attributes();
  const auto found = attributes.find("stablehlo_current_version");
  EXPECT(found != attributes.end());
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(found->second).size(), std::size_t{3});
}

TEST(test_cpu_devices_are_as_many_as_asked_for) {
  need_cpu_plugin();
  const auto client = cpu_client(4);
  EXPECT_EQ(client->platform_name(), "cpu");
  EXPECT_EQ(client->process_index(), 0);
  EXPECT_EQ(client->addressable_devices().size(), std::size_t{4});
  EXPECT_EQ(client->devices().size(), std::size_t{4});
  const Device* last = client->lookup_device(3);
  EXPECT_EQ(last->id(), 3);
  EXPECT_EQ(last->local_hardware_id(), 3);
  EXPECT_EQ(last->kind(), "cpu");
  EXPECT(last->to_string().find('3') != std::string::npos);
  EXPECT(client->default_device_assignment(2, 2) == (std::vector<int>{0, 1, 2, 3}));
  const Buffer buffer = upload(client->lookup_device(3), {1, 2});
  EXPECT(buffer.is_on_cpu());
  EXPECT_EQ(buffer.on_device_size_in_bytes(), std::size_t{8});
}

TEST(test_cpu_compiler_counts_operations_and_takes_flags) {
  need_cpu_plugin();
  const auto client = cpu_client();
  CompileOptions options = portable();
  options.env_option_overrides = {{"xla_cpu_enable_fast_math", true}};
  const auto executable = client->compile(add_program(kDonated), options);
  EXPECT_EQ(std::get<float>(executable->cost_analysis().at("flops")), 4.0F);
}

TEST(test_cpu_plugin_takes_large_buffers_from_kept_blocks) {
  need_cpu_plugin();
  constexpr std::size_t kNumbers = std::size_t{1} << 18;
  base::KeptBlocks& blocks = base::kept_blocks();
  const auto client = cpu_client();
  Device* const device = client->addressable_devices()[0];
  auto before = std::make_unique<Buffer>(upload(device, std::vector<float>(kNumbers, 1)));
  EXPECT(keep_freed_memory(client->plugin()));
  EXPECT(keep_freed_memory(client->plugin()));
  before = nullptr;  // the C library's
  EXPECT_EQ(blocks.sizes().in_use, std::size_t{0});
  blocks.keep();
  {
    const Buffer small = upload(device, {1, 2});
    EXPECT_EQ(blocks.sizes().in_use, std::size_t{0});
    const Buffer large = upload(device, std::vector<float>(kNumbers, 3));
    EXPECT(blocks.sizes().in_use >= kNumbers * sizeof(float));
    EXPECT(download(large) == std::vector<float>(kNumbers, 3));
  }
  EXPECT(eventually([&] { return blocks.sizes().in_use == 0; }));  // on a thread of the plugin's
  EXPECT(blocks.sizes().kept >= kNumbers * sizeof(float));
  blocks.let_go();
}

TEST(test_cpu_errors_have_these_codes_and_words) {
  need_cpu_plugin();
  const auto client = cpu_client();
  const Error malformed = error_of([&] { client->compile("module { nonsense", portable()); });
  EXPECT(malformed.message().find("Failed to parse") != std::string::npos);
  Buffer deleted = upload(client->addressable_devices()[0], {1});
  deleted.delete_();
  EXPECT(error_of([&] { download(deleted); }).code() == ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace torch_xla::pjrt
