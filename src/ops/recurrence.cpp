// Layers of LSTM, GRU and RNN cells in one direction, as a loop over the steps: the program's size
// does not depend on their number. The products with the inputs come in, those of all steps
// at once; what the derivative knows of a step before the steps behind it are derived is computed
// for all of them too, so that its loop has two products' work at most. On the CPU a kernel of the
// host takes a layer of float32 without projections through its steps
// (aten/recurrence_kernel.cpp), and oneDNN's take one of an LSTM, products with the inputs and all.
// src/aten/recurrences.cpp makes layers into what PyTorch's `lstm`, `gru`, `rnn_tanh` and
// `rnn_relu` are.
//
// Sequences are rows, those of one step side by side, all of it seen as a matrix. Halves are
// computed in float32.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "hlo/in_place.h"
#include "ops/expression.h"
#include "ops/host_choice.h"
#include "ops/linear_algebra.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

using hlo::Values;
using MaybeValue = std::optional<Value>;

enum class Cell : std::uint8_t { kLstm, kGru, kTanh, kRelu };

// In the order of Cell.
constexpr std::array<std::string_view, 4> kCellNames = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

Cell cell_of(const std::string& name) {
  const auto found = std::ranges::find(kCellNames, name);
  base::internal_check(found != kCellNames.end(), "no cell is called ", name);
  return static_cast<Cell>(found - kCellNames.begin());
}

Value as_rows(Value sequence) {
  if (sequence.rank() == 2) return sequence;
  return hlo::reshape(sequence, {sequence.dim(0) * sequence.dim(1), sequence.dim(2)});
}

Value transposed(Value matrix) { return hlo::transpose(matrix, {1, 0}); }

// Where the rows of each step are. All steps have `batch`, unless `places` gives each step's first
// row and how many there are, int64 of [steps, 2].
class Steps {
 public:
  Steps(std::int64_t num_rows, std::int64_t batch, MaybeValue places)
      : num_rows_(num_rows), batch_(batch), places_(places) {}

  struct Place {
    Value first;
    MaybeValue is_row;  // bool of [batch]; none: all are
  };

  std::int64_t count() const { return places_.has_value() ? places_->dim(0) : num_rows_ / batch_; }
  std::int64_t batch() const { return batch_; }
  bool have_places() const { return places_.has_value(); }
  const MaybeValue& places() const { return places_; }

  Place place(Value step) const {
    if (!places_.has_value()) return {step * static_cast<double>(batch_), {}};
    const Value zero = hlo::full_like(step, 0);
    const Value place = hlo::dynamic_slice(*places_, {step, zero}, {1, 2});
    const auto number = [&](std::int64_t i) {
      return hlo::reshape(hlo::slice(place, {0, i}, {1, i + 1}, {1, 1}), {});
    };
    return {number(0), less(hlo::iota(step.builder(), {DType::kInt64, {batch_}}, 0), number(1))};
  }

  // With rows behind the last, so that each step can be read, and written, as a whole batch.
  std::int64_t num_padded() const { return places_.has_value() ? num_rows_ + batch_ : num_rows_; }
  Value padded(Value rows) const {
    if (!places_.has_value()) return rows;
    return hlo::pad(rows, hlo::scalar(rows.builder(), rows.dtype(), 0), {0, 0}, {batch_, 0});
  }
  Value unpadded(Value rows) const {
    return hlo::slice(rows, {0, 0}, {num_rows_, rows.dim(1)}, {1, 1});
  }

  Value read(Value rows, const Place& place) const {
    return hlo::dynamic_slice(rows, {place.first, hlo::full_like(place.first, 0)},
                              {batch_, rows.dim(1)});
  }
  // Other steps' rows stay.
  Value write(Value rows, Value values, const Place& place) const {
    values = chosen(place, values, read(rows, place));
    return hlo::update_slice(rows, values, {place.first, hlo::full_like(place.first, 0)});
  }
  static Value chosen(const Place& place, Value at_rows, Value elsewhere) {
    if (!place.is_row.has_value()) return at_rows;
    return hlo::select(hlo::broadcast_in_dim(*place.is_row, at_rows.dims(), {0}), at_rows,
                       elsewhere);
  }

 private:
  std::int64_t num_rows_;
  std::int64_t batch_;
  MaybeValue places_;
};

// What a loop has: states, which each turn replaces, and matrices of which it writes a step's rows.
struct Carried {
  Values states;
  Values rows;
};
// Gives the next states and the step's rows.
using Turn = std::function<Carried(const Steps::Place&, std::span<const Value> states)>;

Carried over_steps(const Steps& steps, bool is_reversed, const Values& states,
                   const std::vector<Shape>& row_types, const Turn& turn) {
  hlo::Builder& builder = states[0].builder();
  const auto num_states = static_cast<std::ptrdiff_t>(states.size());
  Values start = {hlo::scalar(builder, DType::kInt64, 0)};
  start.insert(start.end(), states.begin(), states.end());
  for (const Shape& type : row_types) start.push_back(hlo::full(builder, type, 0));
  const Values end = hlo::while_(
      start,
      [&](std::span<const Value> x) { return less(x[0], static_cast<double>(steps.count())); },
      [&](std::span<const Value> x) {
        const Value last = hlo::full_like(x[0], steps.count() - 1);
        const Steps::Place place = steps.place(is_reversed ? last - x[0] : x[0]);
        const std::span<const Value> before = x.subspan(1, states.size());
        const Carried after = turn(place, before);
        Values next = {x[0] + 1.0};
        for (std::size_t i = 0; i < states.size(); ++i) {
          next.push_back(Steps::chosen(place, after.states[i], before[i]));
        }
        for (std::size_t i = 0; i < row_types.size(); ++i) {
          const Value values = convert(after.rows[i], row_types[i].dtype);
          next.push_back(steps.write(x[1 + states.size() + i], values, place));
        }
        return next;
      });
  Carried results{{end.begin() + 1, end.begin() + 1 + num_states}, {}};
  for (std::size_t i = 1 + states.size(); i < end.size(); ++i) {
    results.rows.push_back(steps.unpadded(end[i]));
  }
  return results;
}

// One layer's arguments.
struct Layer {
  Cell cell;
  Value inputs;          // [rows, gates * hidden], with the biases that can be added there
  Value hx;              // [batch, state]
  MaybeValue cx;         // [batch, hidden], of an LSTM
  Value weight_hh;       // [gates * hidden, state]
  MaybeValue bias_hh;    // [gates * hidden], of a GRU
  MaybeValue weight_hr;  // [state, hidden], of an LSTM with projections
  Steps steps;
  bool is_reversed;

  bool is_lstm() const { return cell == Cell::kLstm; }
  std::int64_t num_gates() const { return is_lstm() ? 4 : cell == Cell::kGru ? 3 : 1; }
  std::int64_t hidden() const { return weight_hh.dim(0) / num_gates(); }
  // In which a step is computed.
  DType wide() const { return accumulate_dtype(hx.dtype()); }
  // Under autocast products are narrower than the states that they are added to.
  DType product_dtype() const { return inputs.dtype(); }
  DType cell_dtype() const { return is_lstm() ? cx->dtype() : hx.dtype(); }
  DType output_dtype() const {
    const bool is_product = !is_lstm() && cell != Cell::kGru;
    return is_product || weight_hr.has_value() ? product_dtype() : cell_dtype();
  }

  Value gate(Value x, std::int64_t index) const {
    return hlo::slice(x, {0, index * hidden()}, {x.dim(0), (index + 1) * hidden()}, {1, 1});
  }
  Value widened(Value x) const { return convert(x, wide()); }
  // x weights, in the weights' dtype but for the sums.
  Value product(Value x, Value weights) const {
    return widened(contract(convert(x, weights.dtype()), weights, {{}, {}, {1}, {0}}));
  }
  Shape rows_type(DType dtype, std::int64_t columns) const {
    return {dtype, {steps.num_padded(), columns}};
  }
  Value spread_rows(Value vector, std::int64_t count) const {
    return hlo::broadcast_in_dim(widened(vector), {count, vector.dim(0)}, {1});
  }
};

// Whether a kernel on the host takes the layer through its steps (aten/recurrence_kernel.cpp).
bool is_called(const Context& context, const Layer& layer) {
  const DType dtype = layer.hx.dtype();
  if (!context.has_host_kernels || layer.weight_hr.has_value() || dtype != DType::kFloat32) {
    return false;
  }
  return layer.inputs.dtype() == dtype && layer.weight_hh.dtype() == dtype &&
         (!layer.is_lstm() || layer.cx->dtype() == dtype);
}

Values call(const char* name, const Layer& layer, const std::vector<MaybeValue>& operands,
            std::vector<Shape> results, hlo::Attributes attributes) {
  hlo::CustomCall custom_call;
  custom_call.call_target_name = name;
  custom_call.results = std::move(results);
  custom_call.backend_config = std::move(attributes);
  custom_call.backend_config.emplace_back(
      "cell", std::string(kCellNames[static_cast<std::size_t>(layer.cell)]));
  custom_call.backend_config.emplace_back("has_places", layer.steps.have_places());
  custom_call.backend_config.emplace_back("reverse", layer.is_reversed);
  Values given;
  for (const MaybeValue& operand : operands) {
    if (operand.has_value()) given.push_back(*operand);
  }
  return hlo::custom_call(given, custom_call);
}

Value one_minus(Value x) { return 1.0 - x; }
Value slope_of_logistic(Value y) { return y * one_minus(y); }
Value slope_of_tanh(Value y) { return one_minus(y * y); }

// ---- Forward ------------------------------------------------------------------------------------

// A turn's states, and the rows that are the output and what the derivative needs: of an LSTM the
// gates before their functions and the cells, of a GRU the products with the hidden state.
Carried lstm_turn(const Layer& layer, Value x, std::span<const Value> states, Value weight,
                  const MaybeValue& projection) {
  const Value gates = x + layer.product(states[0], weight);
  const Value kept = hlo::logistic(layer.gate(gates, 1)) * states[1];
  const Value added = hlo::logistic(layer.gate(gates, 0)) * hlo::tanh(layer.gate(gates, 2));
  const Value cell = kept + added;
  Value hidden = hlo::logistic(layer.gate(gates, 3)) * hlo::tanh(cell);
  if (projection.has_value()) hidden = layer.product(hidden, *projection);
  return {{hidden, cell}, {hidden, gates, cell}};
}

Carried gru_turn(const Layer& layer, Value x, Value state, Value weight) {
  Value products = layer.product(state, weight);
  if (layer.bias_hh.has_value()) {
    products = products + layer.spread_rows(*layer.bias_hh, products.dim(0));
  }
  const auto sum = [&](std::int64_t i) { return layer.gate(x, i) + layer.gate(products, i); };
  const Value reset = hlo::logistic(sum(0));
  const Value update = hlo::logistic(sum(1));
  const Value fresh = hlo::tanh(layer.gate(x, 2) + layer.gate(products, 2) * reset);
  const Value hidden = (state - fresh) * update + fresh;
  return {{hidden}, {hidden, products}};
}

Carried forward_turn(const Layer& layer, Value x, std::span<const Value> states, Value weight,
                     const MaybeValue& projection) {
  if (layer.is_lstm()) return lstm_turn(layer, x, states, weight, projection);
  if (layer.cell == Cell::kGru) return gru_turn(layer, x, states[0], weight);
  const Value sum = x + layer.product(states[0], weight);
  const Value hidden =
      layer.cell == Cell::kTanh ? hlo::tanh(sum) : hlo::maximum(sum, hlo::full_like(sum, 0));
  return {{hidden}, {hidden}};
}

// As `recurrence`.
std::vector<Value> called_recurrence(const Layer& layer, const Dims& output_dims, bool saves) {
  const DType dtype = layer.wide();
  const std::int64_t num_rows = layer.inputs.dim(0);
  std::vector<Shape> results = {{dtype, {num_rows, layer.hidden()}}, layer.hx.type()};
  if (layer.is_lstm()) results.push_back(layer.cx->type());
  if (saves && (layer.is_lstm() || layer.cell == Cell::kGru)) {
    results.push_back(layer.inputs.type());
    if (layer.is_lstm()) results.push_back({dtype, {num_rows, layer.hidden()}});
  }
  Values found =
      call("torch_xla.recurrence", layer,
           {layer.inputs, layer.hx, layer.cx, layer.weight_hh, layer.bias_hh, layer.steps.places()},
           results, {{"has_bias", layer.bias_hh.has_value()}, {"saves", saves}});
  found[0] = hlo::reshape(found[0], output_dims);
  return found;
}

// The output's rows, the last states, and with `saves` what the derivative needs.
std::vector<Value> recurrence(Context& context, const std::string& cell, Value inputs, Value hx,
                              const MaybeValue& cx, Value weight_hh, const MaybeValue& bias_hh,
                              const MaybeValue& weight_hr, const MaybeValue& places, bool reverse,
                              bool saves) {
  const Value rows = as_rows(inputs);
  const Layer layer{cell_of(cell), rows,    hx,        cx,
                    weight_hh,     bias_hh, weight_hr, Steps(rows.dim(0), hx.dim(0), places),
                    reverse};
  Dims output_dims = inputs.dims();
  output_dims.back() = hx.dim(1);
  if (is_called(context, layer)) return called_recurrence(layer, output_dims, saves);
  Values states = {layer.widened(hx)};
  if (layer.is_lstm()) states.push_back(layer.widened(*cx));
  std::vector<Shape> types = {layer.rows_type(layer.output_dtype(), hx.dim(1))};
  if (saves && (layer.is_lstm() || layer.cell == Cell::kGru)) {
    types.push_back(layer.rows_type(layer.product_dtype(), rows.dim(1)));
    if (layer.is_lstm()) types.push_back(layer.rows_type(layer.cell_dtype(), layer.hidden()));
  }
  // Once, not in each turn.
  const Value weight = transposed(weight_hh);
  const MaybeValue projection =
      weight_hr.has_value() ? MaybeValue(transposed(*weight_hr)) : weight_hr;
  const Value sequence = layer.steps.padded(rows);
  const Carried end = over_steps(layer.steps, reverse, states, types,
                                 [&](const Steps::Place& place, std::span<const Value> before) {
                                   const Value x = layer.widened(layer.steps.read(sequence, place));
                                   return forward_turn(layer, x, before, weight, projection);
                                 });
  std::vector<Value> results = {hlo::reshape(end.rows[0], output_dims),
                                convert(end.states[0], layer.output_dtype())};
  if (layer.is_lstm()) results.push_back(convert(end.states[1], layer.cell_dtype()));
  results.insert(results.end(), end.rows.begin() + 1, end.rows.end());
  return results;
}

// ---- Backward -----------------------------------------------------------------------------------

// What is known of all steps at once. A gate's gradient is its factor times that of the cell, for
// an LSTM's first three gates, or of the hidden state.
struct Factors {
  Value of_gates;             // [rows, gates * hidden]
  MaybeValue hidden_to_cell;  // [rows, hidden]; of an LSTM, as the others
  MaybeValue kept;            // of the state that the step starts from, what it keeps: also a GRU's
  MaybeValue unprojected;     // the hidden states before their projection
  MaybeValue fresh;           // of a GRU: the factor of the inputs to its third gate
};

// The state that each row's step starts from. `before` has, for sequences with places, which row
// that is, counting the initial states behind the last row.
Value states_before(const Layer& layer, Value rows, Value initial, const MaybeValue& before) {
  rows = layer.widened(rows);
  initial = layer.widened(initial);
  const std::int64_t batch = layer.steps.batch();
  if (before.has_value()) {
    hlo::GatherDimensionNumbers numbers;
    numbers.offset_dims = {1};
    numbers.collapsed_slice_dims = {0};
    numbers.start_index_map = {0};
    numbers.index_vector_dim = 1;
    return hlo::gather(hlo::concatenate({rows, initial}, 0), *before, numbers, {1, rows.dim(1)});
  }
  if (layer.is_reversed) {
    return hlo::concatenate(
        {hlo::slice(rows, {batch, 0}, {rows.dim(0), rows.dim(1)}, {1, 1}), initial}, 0);
  }
  return hlo::concatenate(
      {initial, hlo::slice(rows, {0, 0}, {rows.dim(0) - batch, rows.dim(1)}, {1, 1})}, 0);
}

Factors lstm_factors(const Layer& layer, Value gates, Value cells_before) {
  gates = layer.widened(gates);
  const Value in = hlo::logistic(layer.gate(gates, 0));
  const Value kept = hlo::logistic(layer.gate(gates, 1));
  const Value fresh = hlo::tanh(layer.gate(gates, 2));
  const Value out = hlo::logistic(layer.gate(gates, 3));
  const Value cell = hlo::tanh(kept * cells_before + in * fresh);
  const Value of_gates =
      hlo::concatenate({fresh * slope_of_logistic(in), cells_before * slope_of_logistic(kept),
                        in * slope_of_tanh(fresh), cell * slope_of_logistic(out)},
                       1);
  return {of_gates, out * slope_of_tanh(cell), kept, out * cell, {}};
}

Factors gru_factors(const Layer& layer, Value products, Value before) {
  products = layer.widened(products);
  const Value inputs = layer.widened(layer.inputs);
  const auto sum = [&](std::int64_t i) { return layer.gate(inputs, i) + layer.gate(products, i); };
  const Value reset = hlo::logistic(sum(0));
  const Value update = hlo::logistic(sum(1));
  const Value product = layer.gate(products, 2);
  const Value fresh = hlo::tanh(layer.gate(inputs, 2) + product * reset);
  const Value of_fresh = one_minus(update) * slope_of_tanh(fresh);
  const Value of_gates =
      hlo::concatenate({of_fresh * product * slope_of_logistic(reset),
                        (before - fresh) * slope_of_logistic(update), of_fresh * reset},
                       1);
  return {of_gates, {}, update, {}, of_fresh};
}

Factors rnn_factors(const Layer& layer, Value output) {
  output = layer.widened(output);
  if (layer.cell == Cell::kTanh) return {slope_of_tanh(output), {}, {}, {}, {}};
  return {convert(greater(output, 0.0), output.dtype()), {}, {}, {}, {}};
}

// [n, hidden] for each gate, of which the LSTM's last takes the hidden state's gradient.
Value for_gates(const Layer& layer, Value hidden, const MaybeValue& cell) {
  const Dims dims = {hidden.dim(0), layer.num_gates(), layer.hidden()};
  Value grads = hlo::broadcast_in_dim(hidden, dims, {0, 2});
  if (cell.has_value()) {
    const Value gate = hlo::iota(hidden.builder(), {DType::kInt32, dims}, 1);
    grads = hlo::select(equal(gate, 3.0), grads, hlo::broadcast_in_dim(*cell, dims, {0, 2}));
  }
  return hlo::reshape(grads, {hidden.dim(0), layer.num_gates() * layer.hidden()});
}

// As `state_gradients`.
Carried called_state_gradients(const Layer& layer, const Factors& factors,
                               const std::vector<Value>& grads) {
  const Shape rows{layer.wide(), {layer.inputs.dim(0), layer.hidden()}};
  const MaybeValue of_cell = layer.is_lstm() ? MaybeValue(layer.widened(grads[2])) : std::nullopt;
  const std::vector<MaybeValue> operands = {layer.widened(as_rows(grads[0])),
                                            layer.widened(grads[1]),
                                            of_cell,
                                            factors.of_gates,
                                            factors.kept,
                                            factors.hidden_to_cell,
                                            layer.weight_hh,
                                            layer.steps.places()};
  std::vector<Shape> results = {rows};
  if (layer.is_lstm()) results.push_back(rows);
  results.push_back(layer.hx.type());
  if (layer.is_lstm()) results.push_back(layer.cx->type());
  const Values found = call("torch_xla.recurrence_state_gradients", layer, operands, results, {});
  const auto middle = found.begin() + std::ssize(found) / 2;
  return {{middle, found.end()}, {found.begin(), middle}};
}

// The gradients of the states after each step, as rows, and of those before the first.
Carried state_gradients(const Context& context, const Layer& layer, const Factors& factors,
                        const std::vector<Value>& grads) {
  if (is_called(context, layer)) return called_state_gradients(layer, factors, grads);
  const Steps& steps = layer.steps;
  const auto sequence = [&](const MaybeValue& rows) {
    return rows.has_value() ? MaybeValue(steps.padded(*rows)) : rows;
  };
  const Value output = steps.padded(as_rows(grads[0]));
  const Value of_gates = steps.padded(factors.of_gates);
  const MaybeValue kept = sequence(factors.kept);
  const MaybeValue to_cell = sequence(factors.hidden_to_cell);
  Values states = {layer.widened(grads[1])};
  std::vector<Shape> types = {layer.rows_type(layer.wide(), layer.hx.dim(1))};
  if (layer.is_lstm()) {
    states.push_back(layer.widened(grads[2]));
    types.push_back(layer.rows_type(layer.wide(), layer.hidden()));
  }
  const auto turn = [&](const Steps::Place& place, std::span<const Value> after) -> Carried {
    const Value hidden = after[0] + layer.widened(steps.read(output, place));
    Value unprojected = hidden;
    if (layer.weight_hr.has_value()) unprojected = layer.product(hidden, *layer.weight_hr);
    MaybeValue cell;
    if (layer.is_lstm()) cell = after[1] + unprojected * steps.read(*to_cell, place);
    const Value gates = steps.read(of_gates, place) * for_gates(layer, unprojected, cell);
    Value before = layer.product(gates, layer.weight_hh);
    if (layer.is_lstm()) return {{before, *cell * steps.read(*kept, place)}, {hidden, *cell}};
    if (layer.cell == Cell::kGru) before = before + hidden * steps.read(*kept, place);
    return {{before}, {hidden}};
  };
  return over_steps(steps, !layer.is_reversed, states, types, turn);
}

// The gradients of all rows' products: [columns of lhs, columns of rhs].
Value weight_gradient(const Context& context, Value lhs, Value rhs, DType dtype) {
  return convert(chosen_product(context, transposed(convert(lhs, dtype)), convert(rhs, dtype)),
                 dtype);
}

// The gradients of inputs, hx, cx, weight_hh, bias_hh and weight_hr, as far as there are these.
std::vector<Value> recurrence_backward(Context& context, const std::string& cell,
                                       const std::vector<Value>& grads, Value inputs, Value hx,
                                       const MaybeValue& cx, Value weight_hh,
                                       const MaybeValue& bias_hh, const MaybeValue& weight_hr,
                                       Value output, const MaybeValue& gates,
                                       const MaybeValue& cells, const MaybeValue& places,
                                       const MaybeValue& before, bool reverse) {
  const Value rows = as_rows(inputs);
  const Layer layer{cell_of(cell), rows,    hx,        cx,
                    weight_hh,     bias_hh, weight_hr, Steps(rows.dim(0), hx.dim(0), places),
                    reverse};
  const Value hidden_before = states_before(layer, as_rows(output), hx, before);
  const Factors factors =
      layer.is_lstm() ? lstm_factors(layer, *gates, states_before(layer, *cells, *cx, before))
      : layer.cell == Cell::kGru ? gru_factors(layer, *gates, hidden_before)
                                 : rnn_factors(layer, as_rows(output));
  const Carried states = state_gradients(context, layer, factors, grads);
  const Value hidden = states.rows[0];
  const Value unprojected = weight_hr.has_value() ? layer.product(hidden, *weight_hr) : hidden;
  const MaybeValue of_cell = layer.is_lstm() ? MaybeValue(states.rows[1]) : std::nullopt;
  const Value of_gates = factors.of_gates * for_gates(layer, unprojected, of_cell);
  Value of_inputs = of_gates;
  if (layer.cell == Cell::kGru) {
    of_inputs =
        hlo::concatenate({hlo::slice(of_gates, {0, 0}, {rows.dim(0), 2 * layer.hidden()}, {1, 1}),
                          hidden * *factors.fresh},
                         1);
  }
  const DType dtype = weight_hh.dtype();
  std::vector<Value> results = {hlo::reshape(convert(of_inputs, inputs.dtype()), inputs.dims()),
                                convert(states.states[0], hx.dtype())};
  if (cx.has_value()) results.push_back(convert(states.states[1], cx->dtype()));
  results.push_back(weight_gradient(context, of_gates, hidden_before, dtype));
  if (bias_hh.has_value()) results.push_back(convert(reduce_sum(of_gates, {0}), dtype));
  if (weight_hr.has_value()) {
    results.push_back(weight_gradient(context, hidden, *factors.unprojected, dtype));
  }
  return results;
}

// ---- Layers of an LSTM with the products of their inputs ----------------------------------------

struct LstmLayer {
  Value input;  // [steps, batch, features]
  Value weight_ih;
  Value weight_hh;
  MaybeValue bias_ih;
  MaybeValue bias_hh;
  Value hx;
  Value cx;
  bool is_reversed;

  // What `recurrence` takes.
  Value inputs(const Context& context) const {
    Value rows =
        convert(chosen_product(context, as_rows(input), transposed(weight_ih)), input.dtype());
    if (bias_ih.has_value()) {
      rows = rows + hlo::broadcast_in_dim(*bias_ih + *bias_hh, rows.dims(), {1});
    }
    return hlo::reshape(rows, {input.dim(0), input.dim(1), weight_ih.dim(0)});
  }

  std::vector<Shape> types() const {
    std::vector<Shape> types;
    for (const Value& value : values()) types.push_back(value.type());
    return types;
  }

  // By PyTorch's kernel (aten/lstm_kernel.cpp).
  Values call(const char* name, std::span<const Value> more, std::vector<Shape> results) const {
    hlo::CustomCall custom_call;
    custom_call.call_target_name = name;
    custom_call.results = std::move(results);
    custom_call.backend_config = {{"has_biases", bias_ih.has_value()}, {"reverse", is_reversed}};
    Values operands = values();
    operands.insert(operands.end(), more.begin(), more.end());
    return hlo::custom_call(operands, custom_call);
  }

 private:
  Values values() const {
    Values values = {input, weight_ih, weight_hh};
    if (bias_ih.has_value()) values.insert(values.end(), {*bias_ih, *bias_hh});
    values.insert(values.end(), {hx, cx});
    return values;
  }
};

// The output, and the last states. Recorded where a kernel was at hand: the loop is for programs
// that are exported.
std::vector<Value> lstm_layer(Context& context, Value input, Value weight_ih, Value weight_hh,
                              const MaybeValue& bias_ih, const MaybeValue& bias_hh, Value hx,
                              Value cx, bool reverse) {
  const LstmLayer layer{input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx, reverse};
  if (context.has_host_kernels) {
    const Shape output{hx.dtype(), {input.dim(0), input.dim(1), hx.dim(1)}};
    return layer.call("torch_xla.lstm_layer", {}, {output, hx.type(), cx.type()});
  }
  return recurrence(context, "lstm", layer.inputs(context), hx, cx, weight_hh, {}, {}, {}, reverse,
                    /*saves=*/false);
}

// The gradients of the layer's tensors, in their order.
std::vector<Value> lstm_layer_backward(Context& context, const std::vector<Value>& grads,
                                       Value input, Value weight_ih, Value weight_hh,
                                       const MaybeValue& bias_ih, const MaybeValue& bias_hh,
                                       Value hx, Value cx, bool reverse) {
  const LstmLayer layer{input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx, reverse};
  if (context.has_host_kernels) {
    return layer.call("torch_xla.lstm_layer_gradients", grads, layer.types());
  }
  const Value inputs = layer.inputs(context);
  const std::vector<Value> found =
      recurrence(context, "lstm", inputs, hx, cx, weight_hh, {}, {}, {}, reverse, /*saves=*/true);
  const std::vector<Value> of_loop =
      recurrence_backward(context, "lstm", grads, inputs, hx, cx, weight_hh, {}, {}, found[0],
                          found[3], found[4], {}, {}, reverse);
  const Value of_rows = as_rows(of_loop[0]);
  const DType dtype = weight_ih.dtype();
  const Value of_input = convert(chosen_product(context, of_rows, weight_ih), input.dtype());
  std::vector<Value> results = {hlo::reshape(of_input, input.dims()),
                                weight_gradient(context, of_rows, as_rows(input), dtype),
                                of_loop[3]};
  if (bias_ih.has_value()) results.insert(results.end(), 2, reduce_sum(of_rows, {0}));
  results.insert(results.end(), {of_loop[1], of_loop[2]});
  return results;
}

}  // namespace

void register_recurrence(Registry& m) {
  m.impl("xla:_recurrence", recurrence);
  m.impl("xla:_recurrence_backward", recurrence_backward);
  m.impl("xla:_lstm_layer", lstm_layer);
  m.impl("xla:_lstm_layer_backward", lstm_layer_backward);
}

}  // namespace torch_xla::ops
