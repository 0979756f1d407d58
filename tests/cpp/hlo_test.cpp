// The text that src/hlo prints, the types it infers, the constraints it checks, and how fast it is.
// What the text means to a compiler is tested in hlo_test_plugin.cpp.
#include <chrono>
#include <string>

#include "check.h"
#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr DType kI32 = DType::kInt32;

// The operations of a main function with one parameter, without the lines around them.
std::string operations(const Type& type, const std::function<Values(Value)>& body) {
  Builder builder;
  const Value x = builder.parameter(type);
  const std::string text = builder.finish(body(x));
  const std::size_t begin = text.find("{\n", text.find("@\"main\"")) + 2;
  return text.substr(begin, text.find("\"func.return\"") - begin);
}

TEST(a_module_reads_as_mlir_generic_form) {
  Builder builder;
  const Value x = builder.parameter({kF32, {8}});
  const Value y = builder.parameter({kF32, {8}});
  builder.set_parameter_attribute(1, "tf.aliasing_output", "0 : i32");
  builder.set_location("a.py:3");
  const Value sum = add(x, y);
  EXPECT_EQ(builder.finish(std::span(&sum, 1)), std::string(R"(module @torch_xla {
func.func public @"main"(%0: tensor<8xf32>, %1: tensor<8xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<8xf32>) {
%2 = "stablehlo.add"(%0, %1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("a.py:3")
"func.return"(%2) : (tensor<8xf32>) -> () loc("a.py:3")
}
}
)"));
}

TEST(attributes_are_properties) {
  EXPECT_EQ(operations({kF32, {2, 3}}, [](Value x) { return Values{transpose(x, {1, 0})}; }),
            "%1 = \"stablehlo.transpose\"(%0) <{permutation = array<i64: 1, 0>}> : "
            "(tensor<2x3xf32>) -> tensor<3x2xf32>\n");
  EXPECT_EQ(operations({kF32, {}}, [](Value x) { return Values{broadcast_in_dim(x, {0}, {})}; }),
            "%1 = \"stablehlo.broadcast_in_dim\"(%0) <{broadcast_dimensions = array<i64>}> : "
            "(tensor<f32>) -> tensor<0xf32>\n");
}

TEST(regions_are_printed_inside_their_operation) {
  const std::string text = operations({kF32, {4}}, [](Value x) {
    return Values{reduce(x, scalar(x.builder(), kF32, 0), {0}, add)};
  });
  EXPECT_EQ(
      text,
      std::string(
          R"(%1 = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
%5 = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 0>}> ({
^bb0(%2: tensor<f32>, %3: tensor<f32>):
%4 = "stablehlo.add"(%2, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%4) : (tensor<f32>) -> ()
}) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
)"));
}

std::string constant_text(const Type& type, std::initializer_list<double> numbers) {
  const std::string text =
      operations({kF32, {}}, [&](Value x) { return Values{constant(x.builder(), type, numbers)}; });
  const std::size_t begin = text.find("dense<") + 6;
  return text.substr(begin, text.find("> : tensor", begin) - begin);
}

TEST(constants_are_spelled_exactly) {
  EXPECT_EQ(constant_text({kF32, {}}, {0.1}), "0.10000000149011612");
  EXPECT_EQ(constant_text({DType::kFloat64, {}}, {0.1}), "0.1");
  EXPECT_EQ(constant_text({DType::kFloat64, {}}, {1e300}), "1.0e+300");
  EXPECT_EQ(constant_text({kF32, {}}, {-0.0}), "-0.0");
  EXPECT_EQ(constant_text({kF32, {}}, {1e300}), "0x7F800000");
  EXPECT_EQ(constant_text({kF32, {2}}, {1, 1}), "1.0");
  EXPECT_EQ(constant_text({DType::kBFloat16, {}}, {1.0 / 3}), "0.333984375");
  EXPECT_EQ(constant_text({DType::kFloat16, {}}, {65520}), "0x7C00");
  EXPECT_EQ(constant_text({DType::kFloat8E4M3FN, {}}, {500}), "0x7F");
  EXPECT_EQ(constant_text({DType::kFloat8E5M2, {}}, {0.3}), "0.3125");
  EXPECT_EQ(constant_text({DType::kComplex64, {}}, {2}), "(2.0, 0.0)");
  EXPECT_EQ(constant_text({kI32, {2, 2}}, {1, 2, 3, -4}), "[[1, 2], [3, -4]]");
  EXPECT_EQ(constant_text({DType::kUInt8, {}}, {-1}), "255");
  EXPECT_EQ(constant_text({kI32, {}}, {1e20}), "2147483647");
  EXPECT_EQ(constant_text({DType::kBool, {2}}, {0, 2}), "[false, true]");
  EXPECT_EQ(constant_text({kF32, {0, 2}}, {}), "");
}

TEST(equal_constants_are_emitted_once) {
  const std::string text = operations({kF32, {}}, [](Value x) {
    Builder& b = x.builder();
    const Value one = scalar(b, kF32, 1);
    EXPECT(one == scalar(b, kF32, 1.0));
    EXPECT(!(one == scalar(b, DType::kFloat64, 1.0)));
    EXPECT(!(one == full(b, {kF32, {1}}, 1.0)));
    return Values{add(one, full_like(x, 1))};
  });
  std::size_t count = 0;
  for (std::size_t at = text.find("constant"); at != std::string::npos;
       at = text.find("constant", at + 1)) {
    ++count;
  }
  EXPECT_EQ(count, 3U);
}

TEST(equal_operations_of_scalars_are_emitted_once) {
  Builder b;
  const Value x = b.parameter({kF32, {}});
  const Value y = b.parameter({kF32, {2}});
  EXPECT(convert(x, DType::kFloat64) == convert(x, DType::kFloat64));
  EXPECT(subtract(x, x) == subtract(x, x));
  EXPECT(broadcast_in_dim(x, {2, 3}, {}) == broadcast_in_dim(x, {2, 3}, {}));
  EXPECT(!(broadcast_in_dim(x, {2, 3}, {}) == broadcast_in_dim(x, {3, 2}, {})));
  EXPECT(!(compare(x, x, ComparisonDirection::kLt) == compare(x, x, ComparisonDirection::kLe)));
  EXPECT(!(add(y, y) == add(y, y)));
  // What a region computes is not there outside of it.
  const Value inside = if_(
      b.parameter({DType::kBool, {}}), [&]() -> Values { return {negate(add(x, x))}; },
      [&]() -> Values { return {x}; })[0];
  const Value results[] = {inside, add(x, x)};
  const std::string text = b.finish(results);
  EXPECT(text.rfind("stablehlo.add") > text.find("stablehlo.if"));
}

TEST(operations_that_change_nothing_give_their_operand_back) {
  Builder b;
  Value x = b.parameter({kF32, {2, 3}});
  x.mark = 1;
  x.note = 2;
  const Value zero = scalar(b, kF32, 0);
  for (const Value& same :
       {convert(x, kF32), reshape(x, {2, 3}), transpose(x, {0, 1}),
        slice(x, {0, 0}, {2, 3}, {1, 1}), pad(x, zero, {0, 0}, {0, 0}), concatenate({x}, 0),
        reverse(x, {}), broadcast_in_dim(x, {2, 3}, {0, 1}), bitcast_convert(x, kF32), conj(x)}) {
    EXPECT(same == x);
    EXPECT_EQ(same.mark, 0);
    EXPECT_EQ(same.note, 2);
  }
  // The size is kept, the elements are not.
  EXPECT(!(pad(x, zero, {1, 0}, {-1, 0}) == x));
  EXPECT(!(broadcast_in_dim(x, {2, 2, 3}, {0, 2}) == x));
}

TEST(divisors_that_cannot_be_zero_need_no_select) {
  const auto has_select = [](const auto& divisor_of) {
    Builder b;
    const Value x = b.parameter({kI32, {3}});
    const Value out = divide(x, divisor_of(x));
    return b.finish(std::span(&out, 1)).find("select") != std::string::npos;
  };
  EXPECT(!has_select([](Value x) { return full_like(x, 7); }));
  EXPECT(
      !has_select([](Value x) { return broadcast_in_dim(scalar(x.builder(), kI32, 7), {3}, {}); }));
  EXPECT(has_select([](Value x) { return full_like(x, 0); }));
  EXPECT(has_select([](Value x) { return constant(x.builder(), x.type(), {1, 0, 2}); }));
  EXPECT(has_select([](Value x) { return x; }));
}

TEST(types_are_inferred_without_text) {
  Builder b(Mode::kTypesOnly);
  const Value x = b.parameter({kF32, {4, 6}});
  EXPECT_EQ(slice(x, {1, 0}, {4, 6}, {2, 5}).dims(), (Dims{2, 2}));
  EXPECT_EQ(abs(full(b, {DType::kComplex128, {3}}, 0)).dtype(), DType::kFloat64);
  EXPECT_EQ(is_finite(x).dtype(), DType::kBool);
  EXPECT_EQ(pad(x, scalar(b, kF32, 0), {-1, 0}, {2, 0}, {0, 1}).dims(), (Dims{5, 11}));
  EXPECT_EQ(reduce(x, scalar(b, kF32, 0), {1}, add).dims(), (Dims{4}));
  EXPECT_EQ(dot_general(x, x, {{}, {}, {1}, {1}}, DType::kFloat64).type(),
            (Type{DType::kFloat64, {4, 4}}));
  EXPECT_EQ(fft(x, FftType::kRfft, {6}).type(), (Type{DType::kComplex64, {4, 4}}));
  EXPECT_EQ(b.finish(std::span(&x, 1)), "");
}

TEST(convolution_sizes_follow_the_specification) {
  Builder b(Mode::kTypesOnly);
  const auto layout = ConvolutionDimensionNumbers::channels_first(2);
  const Value image = b.parameter({kF32, {2, 4, 8, 9}});
  const Value kernel = b.parameter({kF32, {6, 2, 3, 3}});
  const Value out = convolution(image, kernel,
                                {.strides = {2, 1},
                                 .padding = {{1, 1}, {0, 2}},
                                 .lhs_dilation = {1, 2},
                                 .rhs_dilation = {2, 1}},
                                layout, 2);
  EXPECT_EQ(out.dims(), (Dims{2, 6, 3, 17}));
  const Value small = b.parameter({kF32, {2, 4, 1, 9}});
  EXPECT_EQ(convolution(small, kernel, {}, layout, 2).dims(), (Dims{2, 6, 0, 7}));
}

TEST(mismatched_operands_are_errors) {
  Builder b;
  const Value x = b.parameter({kF32, {2}});
  const Value y = b.parameter({kF32, {3}});
  const Value i = b.parameter({kI32, {2}});
  const Value none;
  EXPECT_THROWS(add(x, y), "stablehlo.add: the operands must have one type, got f32[2] and f32[3]");
  EXPECT_THROWS(add(x, i), "stablehlo.add: the operands must have one type");
  EXPECT_THROWS(add(x, none), "stablehlo.add: an operand is no value");
  EXPECT_THROWS(abs(none), "stablehlo.abs: an operand is no value");
  EXPECT_THROWS(
      sqrt(i), "stablehlo.sqrt: the operand must be of floating-point or complex type, got s32[2]");
  EXPECT_THROWS(not_(x), "must be of bool or integer type, got f32[2]");
  EXPECT_THROWS(select(x, x, x), "must be of bool type");
  EXPECT_THROWS(select(eq(y, y), x, x), "pred must be 0-d or have the operands' sizes");
  EXPECT_THROWS(clamp(y, x, y), "min and max must be 0-d");
  EXPECT_THROWS(gt(complex(x, x), complex(x, x)),
                "must be of bool, integer or floating-point type");
  EXPECT_THROWS(maximum(complex(x, x), complex(x, x)), "got c64[2]");
  EXPECT_THROWS(remainder(complex(x, x), complex(x, x)),
                "must be of integer or floating-point type");
  EXPECT_THROWS(full(x.builder(), {kF32, {std::int64_t{1} << 31, std::int64_t{1} << 31}}, 1),
                "larger than a program can hold");
  EXPECT_THROWS(complex(i, i), "the operands must be f32 or f64");
  Builder other;
  EXPECT_THROWS(add(x, other.parameter({kF32, {2}})), "an operand is of another module");
}

TEST(wrong_shapes_are_errors) {
  Builder b;
  const Value x = b.parameter({kF32, {2, 3}});
  const Value zero = scalar(b, kF32, 0);
  EXPECT_THROWS(reshape(x, {5}), "stablehlo.reshape: the result must have as many elements");
  EXPECT_THROWS(reshape(x, {-2, -3}), "must not be negative");
  EXPECT_THROWS(transpose(x, {0, 0}), "permutation must be unique, got [0, 0]");
  EXPECT_THROWS(transpose(x, {0}), "permutation must have 2 elements, got 1");
  EXPECT_THROWS(broadcast_in_dim(x, {2, 4}, {0, 1}), "an operand dimension must be 1");
  EXPECT_THROWS(slice(x, {0, 0}, {2, 4}, {1, 1}), "0 <= start <= limit <= size");
  EXPECT_THROWS(pad(x, zero, {-3, 0}, {0, 0}), "takes away more than there is");
  EXPECT_THROWS(pad(x, x, {0, 0}, {0, 0}), "padding_value must be f32[]");
  EXPECT_THROWS(concatenate({x, transpose(x, {1, 0})}, 0), "inputs must agree but in dimension 0");
  EXPECT_THROWS(concatenate({}, 0), "needs at least 1 operands");
  EXPECT_THROWS(dynamic_slice(x, {zero, zero}, {1, 1}), "must be of integer type");
  EXPECT_THROWS(iota(b, {kI32, {}}, 0), "iota_dimension must be in [0, 0), got 0");
  EXPECT_THROWS(dot_general(x, x, {{}, {}, {1}, {0}}),
                "contracting dimensions must have equal sizes");
  EXPECT_THROWS(cholesky(x, true), "the matrices must be square");
  EXPECT_THROWS(top_k(x, 4), "chlo.top_k: k must be in [0, 3], got 4");
  EXPECT_THROWS(constant(b, {kF32, {2}}, {1.0}), "must have 2 elements for f32[2], got 1");
}

TEST(wrong_indexing_is_an_error) {
  Builder b;
  const Value x = b.parameter({kF32, {3, 2}});
  const Value i = b.parameter({kI32, {4}});
  const Value u = b.parameter({kF32, {4, 2}});
  const GatherDimensionNumbers rows{.offset_dims = {1},
                                    .collapsed_slice_dims = {0},
                                    .start_index_map = {0},
                                    .index_vector_dim = 1};
  EXPECT_EQ(gather(x, i, rows, {1, 2}).dims(), (Dims{4, 2}));
  EXPECT_THROWS(gather(x, i, rows, {1, 3}), "slice_sizes must be in [0, size]");
  EXPECT_THROWS(gather(x, i, rows, {2, 2}), "has slice size 1");
  EXPECT_THROWS(gather(x, x, rows, {1, 2}), "must be of integer type");
  GatherDimensionNumbers wrong = rows;
  wrong.offset_dims = {};
  EXPECT_THROWS(gather(x, i, wrong, {1, 2}), "offset_dims must have 1 elements, got 0");
  const ScatterDimensionNumbers into{.update_window_dims = {1},
                                     .inserted_window_dims = {0},
                                     .scatter_dims_to_operand_dims = {0},
                                     .index_vector_dim = 1};
  EXPECT_EQ(scatter(x, i, u, into, add).dims(), (Dims{3, 2}));
  EXPECT_THROWS(scatter(x, i, x, into, add), "dimension 0 of the update f32[3,2] does not fit");
  EXPECT_THROWS(scatter({x, x}, i, {u, u}, into, [](auto v) { return Values{v[0], v[1]}; }),
                "the inputs must be different values");
}

TEST(wrong_regions_are_errors) {
  Builder b;
  const Value x = b.parameter({kF32, {2}});
  const Value zero = scalar(b, kF32, 0);
  EXPECT_THROWS(reduce(x, zero, {0}, lt), "stablehlo.reduce: the region must yield f32[]");
  EXPECT_THROWS(reduce(x, zero, {1}, add), "dimensions must be in [0, 1), got [1]");
  EXPECT_THROWS(reduce(x, x, {0}, add), "an initial value must be f32[], got f32[2]");
  EXPECT_THROWS(sort(x, 0, false, add), "the region must yield pred[]");
  EXPECT_THROWS(
      while_(
          {x}, [&](auto v) { return lt(v[0], v[0]); }, [](auto v) { return Values{v[0]}; }),
      "the region must yield pred[]");
  const Value p = lt(zero, zero);
  EXPECT_THROWS(if_(
                    p, [&] { return Values{x}; }, [&] { return Values{zero}; }),
                "the region must yield f32[2]");
  EXPECT_THROWS(case_(zero, {[&] { return Values{x}; }}), "index must be s32[]");
  EXPECT_THROWS(reduce_window(x, zero, {.dimensions = {0}}, add),
                "window dimensions must be positive");
  EXPECT_THROWS(b.call("nothing", {x}), "call of undefined function nothing");
  // What an abandoned region had emitted is gone with it.
  const Value sum = add(x, x);
  EXPECT_EQ(b.finish(std::span(&sum, 1)).find("^bb0"), std::string::npos);
}

TEST(wrong_collectives_are_errors) {
  Builder b;
  const Value x = b.parameter({kF32, {3}});
  EXPECT_THROWS(all_reduce({x}, {.replica_groups = {{0, 1}, {1, 2}}}, add),
                "a replica must be in one group, got 1");
  EXPECT_THROWS(reduce_scatter(x, 0, {.replica_groups = {{0, 1}}}, add), "must divide into groups");
  EXPECT_THROWS(collective_permute(x, {{0, 1}, {1, 1}}), "must be unique");
  EXPECT_EQ(all_gather(x, 0, {.replica_groups = {{0, 1}}, .channel_id = 3}).dims(), (Dims{6}));
  EXPECT_EQ(collective_broadcast(x, {.replica_groups = {{0, 1}}}).dims(), (Dims{3}));
}

TEST(ten_thousand_operations_are_emitted_in_under_100_ms) {
  const auto start = std::chrono::steady_clock::now();
  Builder builder;
  Value x = builder.parameter({kF32, {128, 256}});
  for (int i = 0; i < 2500; ++i) {
    const Value bias = broadcast_in_dim(scalar(builder, kF32, i * 0.5), {128, 256}, {});
    x = maximum(transpose(transpose(add(x, bias), {1, 0}), {1, 0}), bias);
  }
  const std::string text = builder.finish(std::span(&x, 1));
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  std::cout << "15,000 operations: " << elapsed.count() << " ms, " << text.size() << " bytes\n";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT(elapsed.count() < 100);
#endif
}

}  // namespace
}  // namespace torch_xla::hlo
