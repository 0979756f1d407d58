// Operations with regions, linear algebra, gathers, calls and collectives on the real CPU plugin.
#include <cmath>

#include "check.h"
#include "hlo_evaluate.h"

namespace torch_xla::hlo {
namespace {

using testing::Array;
using testing::evaluate;
using testing::evaluate_replicas;
using testing::f32;
using testing::i32;
using Vector = std::vector<double>;

Value zero(const Value& like) { return scalar(like.builder(), like.dtype(), 0); }

TEST(reduce_over_any_dimensions) {
  const auto out = evaluate({f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({0, 2}, {})}, [](auto x) {
    return Values{reduce(x[0], zero(x[0]), {0}, add), reduce(x[0], zero(x[0]), {1, 0}, add),
                  reduce(x[0], lowest(x[0].builder(), {DType::kFloat32, {}}), {1}, maximum),
                  reduce(x[1], zero(x[1]), {0}, add), reduce(x[0], zero(x[0]), {}, add)};
  });
  EXPECT_EQ(out[0].values, (Vector{5, 7, 9}));
  EXPECT_EQ(out[1].values, (Vector{21}));
  EXPECT_EQ(out[2].values, (Vector{3, 6}));
  EXPECT_EQ(out[3].values, (Vector{0, 0}));
  EXPECT_EQ(out[4].values, (Vector{1, 2, 3, 4, 5, 6}));
}

TEST(reduce_several_operands_at_once) {
  const auto out = evaluate({f32({4}, {1, 7, 7, 3})}, [](auto x) {
    Builder& b = x[0].builder();
    const Value index = iota(b, {DType::kInt32, {4}}, 0);
    return reduce({x[0], index}, {lowest(b, {DType::kFloat32, {}}), scalar(b, DType::kInt32, 0)},
                  {0}, [](std::span<const Value> v) {
                    const Value keep = ge(v[0], v[2]);
                    return Values{select(keep, v[0], v[2]), select(keep, v[1], v[3])};
                  });
  });
  EXPECT_EQ(out[0].values, (Vector{7}));
  EXPECT_EQ(out[1].values, (Vector{1}));
}

TEST(reduce_window_pools_and_pads) {
  const auto out = evaluate({f32({5}, {1, 5, 2, 4, 3})}, [](auto x) {
    const Value low = lowest(x[0].builder(), {DType::kFloat32, {}});
    return Values{
        reduce_window(x[0], low, {.dimensions = {2}}, maximum),
        reduce_window(x[0], zero(x[0]), {.dimensions = {3}, .strides = {2}, .padding = {{1, 1}}},
                      add),
        reduce_window(x[0], zero(x[0]),
                      {.dimensions = {2}, .base_dilations = {2}, .window_dilations = {3}}, add),
        reduce_window(x[0], zero(x[0]), {.dimensions = {6}}, add)};
  });
  EXPECT_EQ(out[0].values, (Vector{5, 5, 4, 4}));
  EXPECT_EQ(out[1].values, (Vector{6, 11, 7}));
  EXPECT_EQ(out[2].values, (Vector{1, 2, 5, 4, 2, 3}));
  EXPECT_EQ(out[2].type.dims, (Dims{6}));
  EXPECT_EQ(out[3].type.dims, (Dims{0}));
}

TEST(select_and_scatter_is_the_gradient_of_max_pooling) {
  const auto out = evaluate({f32({4}, {1, 5, 4, 2}), f32({2}, {10, 20})}, [](auto x) {
    return Values{
        select_and_scatter(x[0], x[1], zero(x[0]), {.dimensions = {2}, .strides = {2}}, ge, add)};
  });
  EXPECT_EQ(out[0].values, (Vector{0, 10, 20, 0}));
}

TEST(sort_one_and_several_operands) {
  const auto out = evaluate({f32({2, 3}, {3, 1, 2, 9, 9, 0})}, [](auto x) {
    const Value index = iota(x[0].builder(), {DType::kInt32, {2, 3}}, 1);
    Values results =
        sort({x[0], index}, 1, true, [](std::span<const Value> v) { return gt(v[0], v[1]); });
    results.push_back(sort(x[0], 1, false, lt));
    return results;
  });
  EXPECT_EQ(out[0].values, (Vector{3, 2, 1, 9, 9, 0}));
  EXPECT_EQ(out[1].values, (Vector{0, 2, 1, 0, 1, 2}));
  EXPECT_EQ(out[2].values, (Vector{1, 2, 3, 0, 9, 9}));
}

TEST(top_k_gives_values_and_indices) {
  const auto out = evaluate({f32({2, 4}, {3, 1, 2, 0, 9, 7, 0, 8})}, [](auto x) {
    const auto [values, indices] = top_k(x[0], 2);
    return Values{values, indices};
  });
  EXPECT_EQ(out[0].values, (Vector{3, 2, 9, 8}));
  EXPECT_EQ(out[1].values, (Vector{0, 2, 0, 3}));
}

TEST(gather_rows_and_batches) {
  const auto out = evaluate(
      {f32({3, 2}, {0, 1, 2, 3, 4, 5}), i32({2}, {2, 0}), i32({3, 1}, {1, 0, 1})}, [](auto x) {
        return Values{gather(x[0], x[1],
                             {.offset_dims = {1},
                              .collapsed_slice_dims = {0},
                              .start_index_map = {0},
                              .index_vector_dim = 1},
                             {1, 2}),
                      gather(x[0], x[2],
                             {.offset_dims = {},
                              .collapsed_slice_dims = {1},
                              .operand_batching_dims = {0},
                              .start_indices_batching_dims = {0},
                              .start_index_map = {1},
                              .index_vector_dim = 1},
                             {1, 1})};
      });
  EXPECT_EQ(out[0].values, (Vector{4, 5, 0, 1}));
  EXPECT_EQ(out[1].type.dims, (Dims{3}));
  EXPECT_EQ(out[1].values, (Vector{1, 2, 5}));
}

TEST(scatter_adds_and_overwrites) {
  const ScatterDimensionNumbers rows{.update_window_dims = {1},
                                     .inserted_window_dims = {0},
                                     .scatter_dims_to_operand_dims = {0},
                                     .index_vector_dim = 1};
  const auto out = evaluate(
      {f32({3, 2}, {0, 0, 0, 0, 0, 0}), i32({3}, {2, 2, 9}), f32({3, 2}, {1, 2, 3, 4, 5, 6}),
       f32({3, 2}, {-9, 9, 0, 0, 0, 0})},
      [&](auto x) {
        Values results{scatter(x[0], x[1], x[2], rows, add)};
        const Values both = scatter(
            {x[0], x[3]}, x[1], {x[2], negate(x[2])}, rows,
            [](std::span<const Value> v) { return Values{add(v[0], v[2]), minimum(v[1], v[3])}; });
        results.insert(results.end(), both.begin(), both.end());
        return results;
      });
  EXPECT_EQ(out[0].values, (Vector{0, 0, 0, 0, 4, 6}));
  EXPECT_EQ(out[1].values, (Vector{0, 0, 0, 0, 4, 6}));
  EXPECT_EQ(out[2].values, (Vector{-9, 9, 0, 0, -3, -4}));
}

TEST(dot_general_with_batches_and_wider_results) {
  const auto out = evaluate(
      {f32({2, 1, 2}, {1, 2, 3, 4}), f32({2, 2, 1}, {1, 1, 2, 2}), f32({0, 2}, {})}, [](auto x) {
        const DotDimensionNumbers batched{{0}, {0}, {2}, {1}};
        const Value lhs = convert(x[0], DType::kBFloat16);
        const Value rhs = convert(x[1], DType::kBFloat16);
        return Values{
            dot_general(x[0], x[1], batched),
            dot_general(lhs, rhs, batched, DType::kFloat32, Precision::kHighest),
            dot_general(x[2], x[2], {{}, {}, {0}, {0}}),
            dot_general(x[0], x[1], {{}, {}, {}, {}}),
            dot_general(convert(x[0], DType::kInt32), convert(x[1], DType::kInt32), batched),
        };
      });
  EXPECT_EQ(out[0].values, (Vector{3, 14}));
  EXPECT_EQ(out[1].values, (Vector{3, 14}));
  EXPECT_EQ(out[2].values, (Vector{0, 0, 0, 0}));
  EXPECT_EQ(out[3].type.dims, (Dims{2, 1, 2, 2, 2, 1}));
  EXPECT_EQ(out[4].values, (Vector{3, 14}));
}

TEST(convolution_with_all_its_arguments) {
  const auto channels_first = ConvolutionDimensionNumbers::channels_first(1);
  const auto out =
      evaluate({f32({1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), f32({2, 1, 2}, {1, 10, 1, 1}),
                f32({1, 2, 1}, {1, 1})},
               [&](auto x) {
                 ConvolutionDimensionNumbers channels_last = channels_first;
                 channels_last.output_feature_dimension = 2;
                 channels_last.output_spatial_dimensions = {1};
                 return Values{convolution(x[0], x[1], {}, channels_first, 2),
                               convolution(x[0], x[1],
                                           {.strides = {2},
                                            .padding = {{1, 1}},
                                            .lhs_dilation = {2},
                                            .rhs_dilation = {3},
                                            .reversal = {true}},
                                           channels_last, 2, 1, std::nullopt, Precision::kHigh),
                               convolution(x[0], x[2], {}, channels_first)};
               });
  EXPECT_EQ(out[0].values, (Vector{21, 32, 43, 11, 13, 15}));
  EXPECT_EQ(out[1].type.dims, (Dims{1, 3, 2}));
  EXPECT_EQ(out[1].values, (Vector{2, 6, 3, 7, 4, 8}));
  EXPECT_EQ(out[2].values, (Vector{6, 8, 10, 12}));
}

TEST(factorisations_and_solves) {
  const auto out = evaluate({f32({2, 2}, {4, 2, 2, 5}), f32({2, 1}, {4, 8})}, [](auto x) {
    const Value l = cholesky(x[0], true);
    return Values{
        l, triangular_solve(l, x[1], true, true, false, TransposeA::kNoTranspose),
        triangular_solve(l, transpose(x[1], {1, 0}), false, true, true, TransposeA::kTranspose)};
  });
  EXPECT_EQ(out[0].values[0], 2);
  EXPECT_EQ(out[0].values[2], 1);
  EXPECT_EQ(out[0].values[3], 2);
  EXPECT_CLOSE(out[1].values, {2, 3});
  EXPECT_CLOSE(out[2].values, {4, 4});
}

TEST(fourier_transforms_invert) {
  const auto out = evaluate({f32({4}, {1, 2, 3, 5})}, [](auto x) {
    const Value half = fft(x[0], FftType::kRfft, {4});
    const Value whole = fft(complex(x[0], full_like(x[0], 0)), FftType::kFft, {4});
    return Values{half, fft(half, FftType::kIrfft, {4}), real(fft(whole, FftType::kIfft, {4}))};
  });
  EXPECT_CLOSE(out[0].values, {11, 0, -2, 3, -3, 0});
  EXPECT_CLOSE(out[1].values, {1, 2, 3, 5});
  EXPECT_CLOSE(out[2].values, {1, 2, 3, 5});
}

TEST(batch_norm_and_its_gradient) {
  const auto out = evaluate({f32({2, 1}, {1, 3}), f32({1}, {2}), f32({1}, {5})}, [](auto x) {
    const BatchNorm n = batch_norm_training(x[0], x[1], x[2], 0.0, 1);
    const BatchNormGradient g = batch_norm_grad(x[0], x[1], n.mean, n.variance, x[0], 1e-5, 1);
    return Values{
        n.output,       n.mean,
        n.variance,     batch_norm_inference(x[0], x[1], x[2], n.mean, n.variance, 0.0, 1),
        g.grad_operand, g.grad_scale,
        g.grad_offset};
  });
  EXPECT_CLOSE(out[0].values, {3, 7});
  EXPECT_CLOSE(out[1].values, {2});
  EXPECT_CLOSE(out[2].values, {1});
  EXPECT_CLOSE(out[3].values, {3, 7});
  EXPECT_CLOSE(out[6].values, {4});
}

TEST(while_uses_values_from_outside) {
  const auto out = evaluate({i32({}, {5}), f32({2}, {1, 2})}, [](auto x) {
    Builder& b = x[0].builder();
    const Value one = scalar(b, DType::kInt32, 1);
    return while_(
        {scalar(b, DType::kInt32, 0), x[1]},
        [&](std::span<const Value> v) { return lt(v[0], x[0]); },
        [&](std::span<const Value> v) { return Values{add(v[0], one), add(v[1], x[1])}; });
  });
  EXPECT_EQ(out[0].values, (Vector{5}));
  EXPECT_EQ(out[1].values, (Vector{6, 12}));
}

TEST(branches_are_chosen_by_value) {
  const auto out = evaluate({i32({}, {7}), f32({2}, {1, 2})}, [](auto x) {
    const Value pred = gt(x[0], scalar(x[0].builder(), DType::kInt32, 3));
    const Values chosen =
        if_(pred, [&] { return Values{negate(x[1])}; }, [&] { return Values{x[1]}; });
    const Values last =
        case_(x[0], {[&] { return Values{x[1]}; }, [&] { return Values{full_like(x[1], 9)}; }});
    return Values{chosen[0], last[0], optimization_barrier({x[1]})[0]};
  });
  EXPECT_EQ(out[0].values, (Vector{-1, -2}));
  EXPECT_EQ(out[1].values, (Vector{9, 9}));
  EXPECT_EQ(out[2].values, (Vector{1, 2}));
}

TEST(random_bits_follow_the_state) {
  const auto out = evaluate({}, [](std::span<const Value> x) {
    Builder& b = x[0].builder();
    Values results;
    for (const RngAlgorithm algorithm :
         {RngAlgorithm::kDefault, RngAlgorithm::kThreeFry, RngAlgorithm::kPhilox}) {
      const Value state = constant(b, {DType::kUInt64, {2}}, {1, 2});
      const RngBits first = rng_bit_generator(state, algorithm, {DType::kUInt32, {4}});
      const RngBits second =
          rng_bit_generator(first.output_state, algorithm, {DType::kUInt32, {4}});
      results.push_back(first.output);
      results.push_back(second.output);
    }
    return results;
  });
  for (std::size_t i = 0; i < out.size(); i += 2) EXPECT(out[i].values != out[i + 1].values);
}

TEST(functions_are_defined_once_and_called) {
  const auto out = evaluate({f32({2}, {1, 2})}, [](auto x) {
    Builder& b = x[0].builder();
    for (int i = 0; i < 2; ++i) {
      b.define_function("double.it", {x[0].type()}, [](std::span<const Value> v) {
        return Values{add(v[0], v[0]), scalar(v[0].builder(), DType::kInt32, 3)};
      });
    }
    const Values first = b.call("double.it", {x[0]});
    const Values second = b.call("double.it", {first[0]});
    return Values{second[0], second[1],
                  composite({x[0]}, "test.double", "double.it",
                            {{"axis", std::int64_t{1}}, {"name", std::string("a\"b")}})[0]};
  });
  EXPECT_EQ(out[0].values, (Vector{4, 8}));
  EXPECT_EQ(out[1].values, (Vector{3}));
  EXPECT_EQ(out[2].values, (Vector{2, 4}));
}

TEST(custom_call_that_the_plugin_knows) {
  const auto out = evaluate({f32({2, 2}, {3, 1, 4, 1})}, [](auto x) {
    return custom_call({x[0]}, {.call_target_name = "Qr",
                                .results = {x[0].type(), {DType::kFloat32, {2}}},
                                .api_version = 1});
  });
  EXPECT_CLOSE(Vector{std::abs(out[0].values[0])}, {5});
}

TEST(custom_call_attributes_are_parsed) {
  // The target does not exist, which the plugin says only after it has read the whole program.
  const CustomCall call{.call_target_name = "no.such.target",
                        .results = {{DType::kFloat32, {2, 3}}},
                        .backend_config = {{"flag", true},
                                           {"small", std::int32_t{1}},
                                           {"wide", std::int64_t{-1}},
                                           {"single", 0.5F},
                                           {"double", 1e-30},
                                           {"infinite", INFINITY},
                                           {"text", std::string("x\ny")},
                                           {"list", std::vector<std::int64_t>{1, 2}},
                                           {"empty", std::vector<std::int64_t>{}},
                                           {"numbers", std::vector<double>{1, 2.5}}},
                        .api_version = 4,
                        .has_side_effect = true,
                        .frontend_attributes = {{"a.b", std::string("c")}},
                        .output_operand_aliases = {{0, 0}},
                        .operand_layouts = {{0, 1}},
                        .result_layouts = {{1, 0}}};
  EXPECT_THROWS(
      evaluate({f32({2, 3}, Vector(6, 0))}, [&](auto x) { return custom_call({x[0]}, call); }),
      "no.such.target");
}

TEST(donation_location_and_module_attributes_are_parsed) {
  Builder builder;
  const Value x = builder.parameter({DType::kFloat32, {2}});
  builder.set_parameter_attribute(0, "tf.aliasing_output", "0 : i32");
  builder.set_module_attribute("mhlo.num_partitions", "1 : i32");
  builder.set_location("train.py:12");
  builder.add_module_operation("sdy.mesh @mesh = <[\"x\"=1]>");
  builder.add_module_operation("sdy.mesh @mesh = <[\"x\"=1]>");
  const Value y = add(x, x);
  builder.set_result_attribute(0, "jax.result_info", "\"y\"");
  pjrt::CompileOptions options;
  const auto executable = testing::cpu_client().compile(builder.finish(std::span(&y, 1)), options);
  pjrt::Buffer in =
      testing::to_device(f32({2}, {1, 2}), testing::cpu_client().addressable_devices()[0]);
  pjrt::Buffer* argument = &in;
  const auto out = executable->execute(std::span<pjrt::Buffer* const>(&argument, 1), {});
  EXPECT_EQ(testing::to_host(out.outputs[0][0]).values, (Vector{2, 4}));
  EXPECT(in.is_deleted());
}

TEST(collectives_meet_across_replicas) {
  const Collective all{.replica_groups = {{0, 1}}};
  const auto out = evaluate_replicas(2, {f32({2}, {1, 2})}, [&](auto x) {
    const Value id = convert(replica_id(x[0].builder()), DType::kFloat32);
    const Value mine = add(x[0], broadcast_in_dim(id, {2}, {}));
    return Values{all_reduce({mine}, all, add)[0],
                  all_gather(mine, 0, all),
                  reduce_scatter(mine, 0, all, add),
                  all_to_all(mine, 0, 0, 2, all),
                  collective_permute(mine, {{0, 1}, {1, 0}}),
                  convert(partition_id(x[0].builder()), DType::kInt32)};
  });
  EXPECT_EQ(out[0][0].values, (Vector{3, 5}));
  EXPECT_EQ(out[1][0].values, (Vector{3, 5}));
  EXPECT_EQ(out[0][1].values, (Vector{1, 2, 2, 3}));
  EXPECT_EQ(out[0][2].values, (Vector{3}));
  EXPECT_EQ(out[1][2].values, (Vector{5}));
  EXPECT_EQ(out[0][3].values, (Vector{1, 2}));
  EXPECT_EQ(out[1][3].values, (Vector{2, 3}));
  EXPECT_EQ(out[0][4].values, (Vector{2, 3}));
  EXPECT_EQ(out[1][4].values, (Vector{1, 2}));
  EXPECT_EQ(out[1][5].values, (Vector{0}));
}

}  // namespace
}  // namespace torch_xla::hlo
