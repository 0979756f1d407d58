// Which updates of a slice are computed before what they replace is overwritten.
#include <string>

#include "check.h"
#include "hlo/in_place.h"
#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

const Type kMatrix{DType::kFloat32, {4, 5}};

bool is_hidden(const std::string& text) {
  return text.find("call_target_name = \"test.barrier\"") != std::string::npos;
}

// The text of an update of 15 of `operand`'s 20 elements from `start` on.
std::string text_of(Builder& builder, Value operand, Value update, std::int64_t start) {
  const Dims starts = {start};
  const Value index = scalar(builder, DType::kInt64, start);
  const Value result = update_slice(operand, update, {index}, &starts);
  return builder.finish({&result, 1});
}

Value head_of(Value flat, std::int64_t start) { return slice(flat, {start}, {start + 15}, {1}); }

struct Flat {
  Flat() {
    builder.set_barrier_call("test.barrier");
    matrix = builder.parameter(kMatrix);
    flat = reshape(matrix, {20});
  }
  Builder builder;
  Value matrix;
  Value flat;
};

TEST(update_that_reads_other_elements_of_a_reshaped_operand_is_computed_first) {
  Flat f;
  EXPECT(is_hidden(text_of(f.builder, f.flat, negate(head_of(f.flat, 0)), 5)));
}

TEST(update_that_reads_the_memory_by_another_reshape_is_computed_first) {
  Flat f;
  const Value other = reshape(reshape(f.matrix, {2, 10}), {20});
  EXPECT(is_hidden(text_of(f.builder, f.flat, negate(head_of(other, 0)), 5)));
}

TEST(update_that_reads_what_it_replaces_is_left_to_be_fused) {
  Flat f;
  const Value again = reshape(f.matrix, {20});
  EXPECT(!is_hidden(text_of(f.builder, f.flat, negate(head_of(again, 5)), 5)));
}

TEST(update_that_reads_what_it_replaces_in_another_order_is_computed_first) {
  Flat f;
  EXPECT(is_hidden(text_of(f.builder, f.flat, reverse(head_of(f.flat, 5), {0}), 5)));
}

TEST(update_from_other_memory_is_left_to_be_fused) {
  Flat f;
  const Value other = f.builder.parameter(Type{DType::kFloat32, {15}});
  EXPECT(!is_hidden(text_of(f.builder, f.flat, negate(other), 5)));
}

TEST(update_of_memory_by_itself_is_left_to_be_fused) {
  Builder builder;
  builder.set_barrier_call("test.barrier");
  const Value memory = builder.parameter(Type{DType::kFloat32, {20}});
  EXPECT(!is_hidden(text_of(builder, memory, negate(head_of(memory, 0)), 5)));
}

TEST(update_of_a_pad_of_what_it_reads_is_left_to_be_fused) {
  Flat f;
  const Value zero = scalar(f.builder, DType::kFloat32, 0);
  EXPECT(!is_hidden(text_of(f.builder, pad(f.flat, zero, {0}, {15}), head_of(f.flat, 0), 20)));
}

TEST(update_of_a_pad_that_adds_nothing_is_computed_first) {
  Flat f;
  const Value zero = scalar(f.builder, DType::kFloat32, 0);
  EXPECT(is_hidden(text_of(f.builder, pad(f.flat, zero, {5}, {-5}), head_of(f.flat, 0), 5)));
}

TEST(platform_without_a_barrier_call_takes_the_operation) {
  Builder builder;
  const Value flat = reshape(builder.parameter(kMatrix), {20});
  const std::string text = text_of(builder, flat, negate(head_of(flat, 0)), 5);
  EXPECT(text.find("stablehlo.optimization_barrier") != std::string::npos);
}

}  // namespace
}  // namespace torch_xla::hlo
