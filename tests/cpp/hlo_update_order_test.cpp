// Which updates of parameters wait for what reads these.
#include <string>

#include "check.h"
#include "hlo/ops.h"
#include "hlo/update_order.h"

namespace torch_xla::hlo {
namespace {

DotDimensionNumbers contracting(std::int64_t lhs, std::int64_t rhs) {
  DotDimensionNumbers dims;
  dims.lhs_contracting_dimensions = {lhs};
  dims.rhs_contracting_dimensions = {rhs};
  return dims;
}

// The backward pass of a layer, and its weight's update.
struct Layer {
  explicit Layer(std::int64_t width = 256) {
    builder.set_barrier_call("test.barrier");
    weight = builder.parameter({DType::kFloat32, {width, width}});
    input = builder.parameter({DType::kFloat32, {8, width}});
    grad = builder.parameter({DType::kFloat32, {8, width}});
  }

  Value weight_gradient() { return dot_general(input, grad, contracting(0, 0)); }
  Value input_gradient() { return dot_general(grad, weight, contracting(1, 1)); }
  Value updated(Value gradient) { return subtract(weight, multiply(gradient, gradient)); }
  std::string text(Value update, Value other) {
    const Update updates[] = {{weight, update}};
    let_updates_wait(builder, updates);
    const Value results[] = {update, other};
    return builder.finish(results);
  }

  Builder builder;
  Value weight;
  Value input;
  Value grad;
};

bool is_waiting(const std::string& text) { return text.find("test.barrier") != std::string::npos; }

std::string line_of(const std::string& text, std::string_view word) {
  const std::size_t found = text.find(word);
  if (found == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', found) + 1;
  return text.substr(begin, text.find('\n', found) - begin);
}

TEST(an_update_waits_for_what_reads_its_parameter) {
  for (const bool is_update_first : {true, false}) {
    Layer layer;
    Value other;
    if (!is_update_first) other = layer.input_gradient();
    const Value gradient = layer.weight_gradient();
    if (is_update_first) other = layer.input_gradient();
    const Value update = layer.updated(gradient);
    const std::string text = layer.text(update, other);
    const std::string names = base::str("(%", gradient.id(), ", %", other.id(), ")");
    EXPECT(line_of(text, "test.barrier").find(names) != std::string::npos);
    EXPECT_EQ(line_of(text, "stablehlo.multiply").find(base::str("%", gradient.id(), ",")),
              std::string::npos);
    EXPECT(text.find("stablehlo.multiply") > text.find("test.barrier"));
  }
}

TEST(a_gradient_that_is_a_result_is_the_one_that_has_waited) {
  Layer layer;
  const Value other = layer.input_gradient();
  const Value gradient = layer.weight_gradient();
  const Value update = layer.updated(gradient);
  const Update updates[] = {{layer.weight, update}};
  let_updates_wait(layer.builder, updates);
  const Value results[] = {update, other, gradient};
  const std::string line = line_of(layer.builder.finish(results), "\"func.return\"");
  EXPECT(line.find(base::str("%", other.id(), ",")) != std::string::npos);
  EXPECT_EQ(line.find(base::str("%", gradient.id(), ")")), std::string::npos);
}

TEST(an_update_that_needs_all_readers_does_not_wait) {
  Layer layer;
  const Value forward = dot_general(layer.input, layer.weight, contracting(1, 0));
  const Value gradient = dot_general(layer.input, forward, contracting(0, 0));
  EXPECT(!is_waiting(layer.text(layer.updated(gradient), forward)));
}

TEST(readers_that_are_fused_are_not_waited_for) {
  Layer layer;
  const Value other = negate(layer.weight);
  EXPECT(!is_waiting(layer.text(layer.updated(layer.weight_gradient()), other)));
}

TEST(a_gradient_that_was_read_before_waits_for_nothing) {
  Layer layer;
  const Value gradient = layer.weight_gradient();
  const Value update = layer.updated(gradient);
  EXPECT(!is_waiting(layer.text(update, layer.input_gradient())));
}

TEST(a_product_that_is_the_update_waits_for_nothing) {
  Layer layer;
  const Value other = layer.input_gradient();
  EXPECT(!is_waiting(layer.text(layer.weight_gradient(), other)));
}

TEST(small_parameters_are_copied) {
  Layer layer(64);
  const Value other = layer.input_gradient();
  EXPECT(!is_waiting(layer.text(layer.updated(layer.weight_gradient()), other)));
}

TEST(results_of_one_call_do_not_wait_for_each_other) {
  Layer layer;
  CustomCall call;
  call.call_target_name = "test.backward";
  call.results = {layer.input.type(), layer.weight.type()};
  const Values gradients = custom_call({layer.input, layer.grad, layer.weight}, call);
  EXPECT(!is_waiting(layer.text(layer.updated(gradients[1]), gradients[0])));
}

TEST(regions_read_what_has_waited) {
  Layer layer;
  const Value gradient = layer.weight_gradient();
  const Value other = layer.input_gradient();
  const Value predicate = scalar(layer.builder, DType::kBool, 1);
  const Value chosen = if_(
      predicate, [&]() -> Values { return {negate(gradient)}; },
      [&]() -> Values { return {gradient}; })[0];
  const Value update = subtract(add(layer.weight, chosen), gradient);
  const std::string text = layer.text(update, other);
  const std::size_t end_of_barrier = text.find('\n', text.find("test.barrier"));
  EXPECT(is_waiting(text));
  EXPECT(text.find("stablehlo.negate") > end_of_barrier);
  EXPECT_EQ(text.find(base::str("(%", gradient.id(), ")"), end_of_barrier), std::string::npos);
}

}  // namespace
}  // namespace torch_xla::hlo
