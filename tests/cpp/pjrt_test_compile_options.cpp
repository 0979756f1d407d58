// CompileOptions as bytes: what XLA's protobuf parser expects, written out by hand.
#include <string>

#include "check.h"
#include "pjrt/compile_options.h"

namespace torch_xla::pjrt {
namespace {

// Ten bytes: a protobuf stores a negative number as a 64-bit varint.
const std::string kMinusOne = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";

std::string bytes(std::initializer_list<int> values) {
  std::string result;
  for (const int value : values) result.push_back(static_cast<char>(value));
  return result;
}

// Field 3 of CompileOptionsProto: device_ordinal, num_replicas, num_partitions, then `rest`.
std::string build_options(int num_replicas, int num_partitions, const std::string& rest = "") {
  const std::string body =
      "\x08" + kMinusOne + bytes({4 << 3, num_replicas, 5 << 3, num_partitions}) + rest;
  return bytes({3 << 3 | 2, static_cast<int>(body.size())}) + body;
}

TEST(test_default_options_leave_the_device_open) {
  EXPECT_EQ(CompileOptions{}.serialize(), build_options(1, 1));
}

TEST(test_a_portable_program_says_so) {
  CompileOptions options;
  options.portable = true;
  EXPECT_EQ(options.serialize(), build_options(1, 1) + bytes({4 << 3, 1}));
}

TEST(test_partitioners_and_assignment_are_written) {
  CompileOptions options;
  options.num_replicas = 2;
  options.num_partitions = 2;
  options.use_spmd_partitioning = true;
  options.use_shardy_partitioner = true;
  options.device_assignment = {0, 1, 2, 300};
  // Partition 0 has the ids 0 and 2, partition 1 has 1 and 300 (two bytes as a varint).
  const std::string assignment = bytes({1 << 3, 2, 2 << 3, 2}) +
                                 bytes({3 << 3 | 2, 4, 1 << 3 | 2, 2, 0, 2}) +
                                 bytes({3 << 3 | 2, 5, 1 << 3 | 2, 3, 1, 0xac, 0x02});
  const std::string rest = bytes({6 << 3, 1, 9 << 3 | 2, static_cast<int>(assignment.size())}) +
                           assignment + bytes({(19 << 3 & 0x7f) | 0x80, 19 >> 4, 1});
  EXPECT_EQ(options.serialize(), build_options(2, 2, rest));
}

TEST(test_flags_keep_their_type) {
  CompileOptions options;
  options.env_option_overrides = {{"b", true}, {"d", 1.0}, {"i", std::int64_t{5}}, {"s", "x"}};
  const auto entry = [](char name, const std::string& value) {
    return bytes({7 << 3 | 2, static_cast<int>(5 + value.size()), 1 << 3 | 2, 1, name, 2 << 3 | 2,
                  static_cast<int>(value.size())}) +
           value;
  };
  EXPECT_EQ(options.serialize(), build_options(1, 1) + entry('b', bytes({2 << 3, 1})) +
                                     entry('d', bytes({4 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f})) +
                                     entry('i', bytes({3 << 3, 5})) +
                                     entry('s', bytes({1 << 3 | 2, 1, 'x'})));
}

TEST(test_an_assignment_of_the_wrong_size_is_refused) {
  CompileOptions options;
  options.num_replicas = 2;
  options.device_assignment = {0, 1, 2};
  EXPECT_THROWS(options.serialize(), "must have num_replicas * num_partitions = 2 devices, got 3");
  options.num_replicas = 0;
  EXPECT_THROWS(options.serialize(), "must be positive");
}

}  // namespace
}  // namespace torch_xla::pjrt
