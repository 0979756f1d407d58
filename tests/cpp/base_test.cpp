// Tests of src/base: dtypes and their promotion, shapes, errors, hashes.
#include <array>
#include <set>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "check.h"

namespace torch_xla::base {
namespace {

DType dtype_named(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype_info(dtype).name == name) return dtype;
  }
  fail(ErrorKind::kInternal, "no dtype ", name);
}

Hash128 hash_of_words(std::initializer_list<std::uint64_t> words) {
  Hasher hasher;
  for (const std::uint64_t word : words) hasher.add(word);
  return hasher.finish();
}

Hash128 hash_of_texts(std::initializer_list<std::string_view> texts) {
  Hasher hasher;
  for (const std::string_view text : texts) hasher.add(text);
  return hasher.finish();
}

// What torch.promote_types answers in PyTorch 2.13, for the types that it promotes at all.
constexpr std::array<std::string_view, 12> kPromotable = {
    "bool",    "uint8",    "int8",    "int16",   "int32",     "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
constexpr std::array<std::array<std::string_view, 12>, 12> kPromotions = {{
    {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128"},
    {"uint8", "uint8", "int16", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128"},
    {"int8", "int16", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128"},
    {"int16", "int16", "int16", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128"},
    {"int32", "int32", "int32", "int32", "int32", "int64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128"},
    {"int64", "int64", "int64", "int64", "int64", "int64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128"},
    {"float16", "float16", "float16", "float16", "float16", "float16", "float16", "float32",
     "float32", "float64", "complex64", "complex128"},
    {"bfloat16", "bfloat16", "bfloat16", "bfloat16", "bfloat16", "bfloat16", "float32", "bfloat16",
     "float32", "float64", "complex64", "complex128"},
    {"float32", "float32", "float32", "float32", "float32", "float32", "float32", "float32",
     "float32", "float64", "complex64", "complex128"},
    {"float64", "float64", "float64", "float64", "float64", "float64", "float64", "float64",
     "float64", "float64", "complex128", "complex128"},
    {"complex64", "complex64", "complex64", "complex64", "complex64", "complex64", "complex64",
     "complex64", "complex64", "complex128", "complex64", "complex128"},
    {"complex128", "complex128", "complex128", "complex128", "complex128", "complex128",
     "complex128", "complex128", "complex128", "complex128", "complex128", "complex128"},
}};

TEST(promotion_agrees_with_pytorch) {
  for (std::size_t i = 0; i < kPromotable.size(); ++i) {
    for (std::size_t j = 0; j < kPromotable.size(); ++j) {
      const DType got = promote_types(dtype_named(kPromotable[i]), dtype_named(kPromotable[j]));
      EXPECT_EQ(dtype_info(got).name, kPromotions[i][j]);
    }
  }
}

TEST(dtype_table_is_complete_and_unambiguous) {
  std::set<std::string_view> names;
  std::set<std::string_view> hlo_names;
  std::set<std::string_view> short_names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DTypeInfo& info = dtype_info(static_cast<DType>(i));
    EXPECT(names.insert(info.name).second);
    EXPECT(hlo_names.insert(info.hlo_name).second);
    EXPECT(short_names.insert(info.short_name).second);
    EXPECT(info.size_bytes >= 1 && info.size_bytes <= 16);
  }
}

TEST(dtype_kinds_answer_as_pytorch_does) {
  EXPECT(is_integral(DType::kBool));
  EXPECT(is_integral(DType::kUInt64));
  EXPECT(!is_integral(DType::kFloat16));
  EXPECT(is_floating(DType::kBFloat16));
  EXPECT(!is_floating(DType::kComplex64));
  EXPECT(is_signed_integral(DType::kInt8));
  EXPECT(!is_signed_integral(DType::kUInt8));
  EXPECT(real_dtype(DType::kComplex128) == DType::kFloat64);
  EXPECT(real_dtype(DType::kInt32) == DType::kInt32);
  EXPECT(complex_dtype(DType::kFloat64) == DType::kComplex128);
  EXPECT(complex_dtype(DType::kFloat16) == DType::kComplex64);
}

TEST(shapes_count_and_print) {
  const Shape matrix{DType::kFloat32, {2, 5}};
  EXPECT_EQ(matrix.rank(), 2);
  EXPECT_EQ(matrix.num_elements(), 10);
  EXPECT_EQ(matrix.num_bytes(), 40);
  EXPECT_EQ(to_string(matrix), "f32[2,5]");
  EXPECT_EQ(to_string(matrix.dims), "[2, 5]");
  const Shape scalar{DType::kBool, {}};
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(to_string(scalar), "pred[]");
  const Shape empty{DType::kInt64, {3, 0}};
  EXPECT_EQ(empty.num_bytes(), 0);
  EXPECT(matrix != scalar);
}

TEST(check_throws_the_whole_message_and_the_kind) {
  check(true, "never said");
  EXPECT_THROWS(check(false, "mm: inner sizes must agree, got ", 2, " and ", 3),
                "mm: inner sizes must agree, got 2 and 3");
  EXPECT_THROWS(internal_check(false, "lost node"), "please report it): lost node");
  try {
    fail(ErrorKind::kIndex, "out of range");
  } catch (const Error& error) {
    EXPECT(error.kind() == ErrorKind::kIndex);
  }
}

TEST(equal_streams_hash_equal) {
  EXPECT(hash_of_words({1, 2, 3}) == hash_of_words({1, 2, 3}));
  EXPECT(hash_of_texts({"abc", "d"}) == hash_of_texts({"abc", "d"}));
}

TEST(hashes_depend_on_order_length_and_boundaries) {
  EXPECT(hash_of_words({1, 2}) != hash_of_words({2, 1}));
  EXPECT(hash_of_words({0}) != hash_of_words({0, 0}));
  EXPECT(hash_of_words({}) != hash_of_words({0}));
  EXPECT(hash_of_texts({"ab", "c"}) != hash_of_texts({"a", "bc"}));
  EXPECT(hash_of_texts({"a"}) != hash_of_texts({std::string_view("a\0", 2)}));
}

TEST(close_words_do_not_collide) {
  std::set<std::string> seen;
  for (std::uint64_t a = 0; a < 200; ++a) {
    for (std::uint64_t b = 0; b < 200; ++b) seen.insert(to_string(hash_of_words({a, b})));
  }
  EXPECT_EQ(seen.size(), std::size_t{40000});
}

TEST(hashes_print_as_32_hexadecimal_digits) {
  const Hash128 hash{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  EXPECT_EQ(to_string(hash), "fedcba98765432100123456789abcdef");
}

}  // namespace
}  // namespace torch_xla::base
