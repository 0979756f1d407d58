// A layer of LSTM, GRU or RNN cells in one direction, and the gradients of its states, as host
// kernels for float32: a turn of a loop of XLA's costs as much as a step of a small layer, and its
// products of few rows more than a kernel's. Rows of a batch do not meet, so each thread takes some
// of them through all steps. src/ops/recurrence.cpp emits the calls.
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "aten/call_arrays.h"
#include "aten/host_tensor.h"
#include "aten/lanes_math.h"
#include "aten/parallel.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So many products of two numbers in all steps are worth another thread.
constexpr std::int64_t kProductsPerThread = 1 << 20;

// The call's arguments in order, of which some are there or not.
class Arguments {
 public:
  explicit Arguments(const HostCall& call) : call_(call) {}

  const float* input(bool is_there = true) {
    return is_there ? data_of<const float>(call_.input(next_input_++)) : nullptr;
  }
  float* output(bool is_there = true) {
    return is_there ? data_of<float>(call_.output(next_output_++)) : nullptr;
  }
  at::Tensor tensor() { return tensor_over(call_.input(next_input_++)); }
  std::size_t next_input() const { return next_input_; }

 private:
  const HostCall& call_;
  std::size_t next_input_ = 0;
  std::size_t next_output_ = 0;
};

// Some rows of a step: where they are in a sequence and in a state.
struct Rows {
  std::int64_t first;
  std::int64_t state;
  std::int64_t count;
};

struct Layer {
  const HostCall& call;
  std::string_view cell;
  std::int64_t width;  // of a state
  std::int64_t gates;  // of all of them
  std::int64_t batch = 0;
  std::vector<Rows> steps = {};  // in the order in which they are computed
  at::Tensor weight = {};        // [gates, width]; forward [width, gates], dense

  Layer(const HostCall& given, std::int64_t state_width, std::int64_t gates_width)
      : call(given), cell(given.text("cell")), width(state_width), gates(gates_width) {}

  bool is_lstm() const { return cell == "lstm"; }
  bool is_gru() const { return cell == "gru"; }

  // The rows of each step; `place` is that of the argument that says which, where one does.
  void set_steps(std::int64_t num_rows, std::int64_t num_states, std::size_t place,
                 bool is_reversed) {
    batch = num_states;
    if (call.integer("has_places") != 0) {
      const auto places = call.input(place);
      const auto* const numbers = data_of<const std::int64_t>(places);
      for (std::int64_t i = 0; i < places.dims[0]; ++i) {
        steps.push_back({numbers[2 * i], 0, numbers[2 * i + 1]});
      }
    } else {
      for (std::int64_t first = 0; first < num_rows; first += batch) {
        steps.push_back({first, 0, batch});
      }
    }
    if (is_reversed) std::ranges::reverse(steps);
  }

  // Calls `step(rows, scratch)` for each step, on several threads with some rows of the batch each.
  // `scratch` holds `columns` numbers for each row.
  template <typename Step>
  void for_steps(std::int64_t columns, const Step& step) const {
    const std::int64_t products = gates * width * std::ssize(steps);
    // One part for each thread: products of few rows cost as much as those of some more.
    const auto threads = static_cast<std::int64_t>(call.num_threads());
    const std::int64_t grain =
        std::max((batch + threads - 1) / threads, kProductsPerThread / products);
    in_parallel(call, batch, grain, [&](std::int64_t begin, std::int64_t end) {
      const OnThisThread on_this_thread;
      std::vector<float> scratch(static_cast<std::size_t>((end - begin) * columns));
      for (const Rows& all : steps) {
        const std::int64_t count = std::min(all.count, end) - begin;
        if (count > 0) step(Rows{all.first + begin, begin, count}, scratch.data());
      }
    });
  }

  // products = states weight + products, or without what was there.
  void multiply(float* products, const float* states, std::int64_t count, bool adds) const {
    at::Tensor out = matrix(products, count, gates);
    const at::Tensor lhs = matrix(states, count, width);
    adds ? at::addmm_out(out, out, lhs, weight) : at::mm_out(out, lhs, weight);
  }
  // states = of_gates weight, of the gradients
  void multiply_back(float* states, const float* of_gates, std::int64_t count) const {
    at::Tensor out = matrix(states, count, width);
    at::mm_out(out, matrix(of_gates, count, gates), weight);
  }

 private:
  at::Tensor matrix(const float* data, std::int64_t rows, std::int64_t columns) const {
    return at::from_blob(const_cast<float*>(data), {rows, columns}, weight.options());
  }
};

// ---- Forward ------------------------------------------------------------------------------------

struct Forward {
  const Layer& layer;
  const float* inputs;
  const float* bias;  // of a GRU, or null
  float* output;
  float* hidden;  // the state, which ends as the last one
  float* cell;
  float* saved_gates;  // null where nothing is saved
  float* saved_cells;

  void step(const Rows& rows, float* scratch) const {
    const std::int64_t width = layer.width;
    float* const states = hidden + rows.state * width;
    float* const products =
        saved_gates != nullptr ? saved_gates + rows.first * layer.gates : scratch;
    const float* const x = inputs + rows.first * layer.gates;
    if (!layer.is_gru()) {
      std::copy_n(x, rows.count * layer.gates, products);
      layer.multiply(products, states, rows.count, true);
    } else {
      for (std::int64_t r = 0; bias != nullptr && r < rows.count; ++r) {
        std::copy_n(bias, layer.gates, products + r * layer.gates);
      }
      layer.multiply(products, states, rows.count, bias != nullptr);
    }
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float* const h = states + r * width;
      const float* const gates = products + r * layer.gates;
      if (layer.is_lstm()) {
        float* const kept =
            saved_cells != nullptr ? saved_cells + (rows.first + r) * width : nullptr;
        lstm(gates, h, cell + (rows.state + r) * width, kept);
      } else if (layer.is_gru()) {
        gru(x + r * layer.gates, gates, h);
      } else {
        rnn(gates, h);
      }
    }
    std::copy_n(states, rows.count * width, output + rows.first * width);
  }

 private:
  void lstm(const float* gates, float* h, float* c, float* kept) const {
    for_lanes(layer.width, [=, width = layer.width](std::int64_t i, std::int64_t n) {
      const auto gate = [=](std::int64_t k) { return load(gates + k * width + i, n); };
      const Floats cells =
          sigmoid_of(gate(1)) * load(c + i, n) + sigmoid_of(gate(0)) * tanh_of(gate(2));
      store(c + i, cells, n);
      if (kept != nullptr) store(kept + i, cells, n);
      store(h + i, sigmoid_of(gate(3)) * tanh_of(cells), n);
    });
  }

  void gru(const float* x, const float* products, float* h) const {
    for_lanes(layer.width, [=, width = layer.width](std::int64_t i, std::int64_t n) {
      const auto given = [=](std::int64_t k) { return load(x + k * width + i, n); };
      const auto product = [=](std::int64_t k) { return load(products + k * width + i, n); };
      const Floats reset = sigmoid_of(given(0) + product(0));
      const Floats update = sigmoid_of(given(1) + product(1));
      const Floats fresh = tanh_of(given(2) + product(2) * reset);
      store(h + i, (load(h + i, n) - fresh) * update + fresh, n);
    });
  }

  void rnn(const float* sums, float* h) const {
    const bool is_tanh = layer.cell == "rnn_tanh";
    for_lanes(layer.width, [=](std::int64_t i, std::int64_t n) {
      const Floats sum = load(sums + i, n);
      store(h + i, is_tanh ? tanh_of(sum) : sum < 0.0F ? Floats{} : sum, n);
    });
  }
};

// [inputs, hx, cx?, weight_hh, bias_hh?, places?] to the output, the last states, and with `saves`
// what the derivative needs, as `recurrence` of ops/recurrence.cpp has it.
void recurrence(const HostCall& call) {
  Layer layer(call, call.input(1).dims[1], call.input(0).dims[1]);
  const bool saves = call.integer("saves") != 0;
  const bool is_lstm = layer.is_lstm();
  Arguments arguments(call);
  const float* const inputs = arguments.input();
  const float* const hx = arguments.input();
  const float* const cx = arguments.input(is_lstm);
  layer.weight = arguments.tensor().t().contiguous();
  const float* const bias = arguments.input(call.integer("has_bias") != 0);
  layer.set_steps(call.input(0).dims[0], call.input(1).dims[0], arguments.next_input(),
                  call.integer("reverse") != 0);
  Forward forward{.layer = layer,
                  .inputs = inputs,
                  .bias = bias,
                  .output = arguments.output(),
                  .hidden = arguments.output(),
                  .cell = arguments.output(is_lstm),
                  .saved_gates = nullptr,
                  .saved_cells = nullptr};
  forward.saved_gates = arguments.output(saves && (is_lstm || layer.is_gru()));
  forward.saved_cells = arguments.output(saves && is_lstm);
  std::copy_n(hx, layer.batch * layer.width, forward.hidden);
  if (is_lstm) std::copy_n(cx, layer.batch * layer.width, forward.cell);
  layer.for_steps(layer.gates,
                  [&](const Rows& rows, float* scratch) { forward.step(rows, scratch); });
}

// ---- Backward -----------------------------------------------------------------------------------

struct Backward {
  const Layer& layer;
  const float* grads;  // of the output's rows
  const float* of_gates;
  const float* kept;     // of an LSTM and a GRU
  const float* to_cell;  // of an LSTM
  float* hiddens;        // rows: the gradients of the states after each step
  float* cells;
  float* hidden;  // the state's, which ends as that of the first one
  float* cell;

  void step(const Rows& rows, float* products) const {
    const std::int64_t width = layer.width;
    float* const before = hidden + rows.state * width;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t row = rows.first + r;
      const float* const factors = of_gates + row * layer.gates;
      float* const of_row = products + r * layer.gates;
      float* const after = hiddens + row * width;
      add(before + r * width, grads + row * width, after);
      if (layer.is_lstm()) through_cell(row, rows.state + r);
      for (std::int64_t k = 0; k * width < layer.gates; ++k) {
        const float* const from = layer.is_lstm() && k < 3 ? cells + row * width : after;
        multiply(factors + k * width, from, of_row + k * width);
      }
    }
    layer.multiply_back(before, products, rows.count);
    for (std::int64_t r = 0; layer.is_gru() && r < rows.count; ++r) {
      add_kept(rows.first + r, before + r * width);
    }
  }

 private:
  void add(const float* a, const float* b, float* sum) const {
    for_lanes(layer.width, [=](std::int64_t i, std::int64_t n) {
      store(sum + i, load(a + i, n) + load(b + i, n), n);
    });
  }
  void multiply(const float* a, const float* b, float* product) const {
    for_lanes(layer.width, [=](std::int64_t i, std::int64_t n) {
      store(product + i, load(a + i, n) * load(b + i, n), n);
    });
  }
  void through_cell(std::int64_t row, std::int64_t state) const {
    const std::int64_t start = row * layer.width;
    for_lanes(
        layer.width, [=, this, c = cell + state * layer.width](std::int64_t i, std::int64_t n) {
          const std::int64_t at = start + i;
          const Floats of_cell = load(c + i, n) + load(hiddens + at, n) * load(to_cell + at, n);
          store(cells + at, of_cell, n);
          store(c + i, of_cell * load(kept + at, n), n);
        });
  }
  void add_kept(std::int64_t row, float* before) const {
    const std::int64_t start = row * layer.width;
    for_lanes(layer.width, [=, this](std::int64_t i, std::int64_t n) {
      const Floats passed = load(hiddens + start + i, n) * load(kept + start + i, n);
      store(before + i, load(before + i, n) + passed, n);
    });
  }
};

// [gradients of the output, of the last states, of_gates, kept?, to_cell?, weight_hh, places?] to
// the gradients of the states after each step, as rows, and of those before the first.
void state_gradients(const HostCall& call) {
  const bool is_lstm = call.text("cell") == "lstm";
  const bool is_gru = call.text("cell") == "gru";
  Layer layer(call, call.input(1).dims[1], call.input(is_lstm ? 3 : 2).dims[1]);
  Arguments arguments(call);
  const float* const grads = arguments.input();
  const float* const of_hidden = arguments.input();
  const float* const of_cell = arguments.input(is_lstm);
  const float* const of_gates = arguments.input();
  const float* const kept = arguments.input(is_lstm || is_gru);
  const float* const to_cell = arguments.input(is_lstm);
  layer.weight = arguments.tensor();
  layer.set_steps(call.input(0).dims[0], call.input(1).dims[0], arguments.next_input(),
                  call.integer("reverse") == 0);
  const Backward backward{.layer = layer,
                          .grads = grads,
                          .of_gates = of_gates,
                          .kept = kept,
                          .to_cell = to_cell,
                          .hiddens = arguments.output(),
                          .cells = arguments.output(is_lstm),
                          .hidden = arguments.output(),
                          .cell = arguments.output(is_lstm)};
  std::copy_n(of_hidden, layer.batch * layer.width, backward.hidden);
  if (is_lstm) std::copy_n(of_cell, layer.batch * layer.width, backward.cell);
  layer.for_steps(layer.gates,
                  [&](const Rows& rows, float* scratch) { backward.step(rows, scratch); });
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.recurrence", recurrence);
  runtime::add_host_kernel("torch_xla.recurrence_state_gradients", state_gradients);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten
