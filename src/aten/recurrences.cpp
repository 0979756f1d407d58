// `lstm`, `gru`, `rnn_tanh` and `rnn_relu`, which PyTorch takes apart into a dozen calls for each
// step: here a layer in one direction is one operator, a loop of the program (ops/recurrence.cpp),
// with a derivative that is another. What the loop can't serve goes PyTorch's way: wrong
// arguments, for its words, empty batches, tensors of Dynamo, transforms and forward derivatives.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <tuple>

#include "aten/registration.h"
#include "aten/tensor.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Sizes = std::vector<std::int64_t>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// How many rows each step of a packed sequence has, and the same for programs: the steps' places,
// int64 of [steps, 2], and of each row which one its step starts from, forwards and backwards.
struct Packing {
  Sizes sizes;
  at::Tensor places;
  std::array<at::Tensor, 2> before;
};

// The tensors of one layer in one direction. `inputs`: [steps, batch, gates * hidden], or the rows
// of a packed sequence.
struct Layer {
  std::string cell;
  at::Tensor inputs;
  at::Tensor hx;
  OptionalTensor cx;
  at::Tensor weight_hh;
  OptionalTensor bias_hh;
  OptionalTensor weight_hr;
  bool is_reversed = false;

  std::vector<OptionalTensor> tensors() const {
    return {inputs, hx, cx, weight_hh, bias_hh, weight_hr};
  }
};

OptionalTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}
at::Tensor plain(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

template <typename Signature>
auto operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// The output, the last states, and with `saves` what the derivative needs.
variable_list loop(const Layer& layer, const OptionalTensor& places, bool saves) {
  static const auto op = operator_of<std::vector<at::Tensor>(
      std::string_view, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const at::Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, bool,
      bool)>("xla::_recurrence");
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.call(layer.cell, layer.inputs, layer.hx, layer.cx, layer.weight_hh, layer.bias_hh,
                 layer.weight_hr, places, layer.is_reversed, saves);
}

// ---- The derivative -----------------------------------------------------------------------------

// What is saved for the backward pass, in this order.
enum Saved : std::size_t {
  kInputs,
  kHx,
  kCx,
  kWeightHh,
  kBiasHh,
  kWeightHr,
  kOutput,
  kGates,
  kCells,
  kPlaces,
  kBefore,
};

// One step as PyTorch computes it, for what has to be derived again.
variable_list step(const Layer& layer, const at::Tensor& x, const variable_list& states) {
  const at::Tensor products =
      at::linear(states[0].to(layer.weight_hh.scalar_type()), layer.weight_hh, layer.bias_hh);
  if (layer.cell == "rnn_tanh") return {(x + products).tanh()};
  if (layer.cell == "rnn_relu") return {(x + products).relu()};
  if (layer.cell == "gru") {
    const variable_list given = x.chunk(3, 1);
    const variable_list sums = products.chunk(3, 1);
    const at::Tensor reset = (given[0] + sums[0]).sigmoid();
    const at::Tensor update = (given[1] + sums[1]).sigmoid();
    const at::Tensor fresh = (given[2] + sums[2] * reset).tanh();
    return {(states[0] - fresh) * update + fresh};
  }
  const variable_list gates = (x + products).chunk(4, 1);
  const at::Tensor cell = gates[1].sigmoid() * states[1] + gates[0].sigmoid() * gates[2].tanh();
  at::Tensor hidden = gates[3].sigmoid() * cell.tanh();
  if (layer.weight_hr.has_value()) {
    hidden = at::linear(hidden.to(layer.weight_hr->scalar_type()), *layer.weight_hr);
  }
  return {hidden, cell};
}

// The layer's results step by step, `sizes` rows in each.
variable_list unrolled(const Layer& layer, const Sizes& sizes) {
  const at::Tensor& inputs = layer.inputs;
  const at::Tensor rows = inputs.dim() == 3 ? inputs.flatten(0, 1) : inputs;
  const std::int64_t batch = layer.hx.size(0);
  variable_list states = {layer.hx};
  if (layer.cx.has_value()) states.push_back(*layer.cx);
  variable_list outputs(sizes.size());
  std::int64_t first = layer.is_reversed ? rows.size(0) : 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t place = layer.is_reversed ? sizes.size() - 1 - i : i;
    const std::int64_t count = sizes[place];
    if (layer.is_reversed) first -= count;
    variable_list before;
    for (const at::Tensor& state : states) before.push_back(state.narrow(0, 0, count));
    const variable_list after = step(layer, rows.narrow(0, first, count), before);
    if (!layer.is_reversed) first += count;
    for (std::size_t k = 0; k < states.size(); ++k) {
      states[k] = count == batch ? after[k]
                                 : at::cat({after[k], states[k].narrow(0, count, batch - count)});
    }
    outputs[place] = after[0];
  }
  Sizes dims = inputs.sizes().vec();
  dims.back() = layer.hx.size(1);
  states.insert(states.begin(), at::cat(outputs).reshape(dims));
  return states;
}

// For the backward pass of a backward pass: the gradients of these tensors by way of single steps,
// which are derived as any others.
variable_list unrolled_gradients(const Layer& layer, const Sizes& sizes,
                                 const std::vector<OptionalTensor>& tensors,
                                 const variable_list& grads) {
  variable_list wanted;
  for (const OptionalTensor& tensor : tensors) {
    if (tensor.has_value() && tensor->requires_grad()) wanted.push_back(*tensor);
  }
  variable_list outputs;
  variable_list of_outputs;
  const variable_list results = unrolled(layer, sizes);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    outputs.push_back(results[i]);
    of_outputs.push_back(grads[i]);
  }
  const variable_list found = torch::autograd::grad(outputs, wanted, of_outputs,
                                                    /*retain_graph=*/true, /*create_graph=*/true,
                                                    /*allow_unused=*/true);
  variable_list gradients;
  std::size_t next = 0;
  for (const OptionalTensor& tensor : tensors) {
    const bool is_wanted = tensor.has_value() && tensor->requires_grad();
    gradients.push_back(is_wanted ? found[next++] : at::Tensor());
  }
  return gradients;
}

// The gradients that there are, and none for tensors that are not.
variable_list spread(const variable_list& found, const std::vector<OptionalTensor>& tensors) {
  variable_list gradients;
  std::size_t next = 0;
  for (const OptionalTensor& tensor : tensors) {
    gradients.push_back(tensor.has_value() ? found[next++] : at::Tensor());
  }
  return gradients;
}

// In the order of Layer::tensors.
variable_list loop_gradients(const Layer& layer, const variable_list& saved,
                             const variable_list& grads) {
  static const auto op = operator_of<std::vector<at::Tensor>(
      std::string_view, at::TensorList, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const at::Tensor&, const OptionalTensor&, const OptionalTensor&, const at::Tensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      bool)>("xla::_recurrence_backward");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const variable_list found =
      op.call(layer.cell, grads, layer.inputs, layer.hx, layer.cx, layer.weight_hh, layer.bias_hh,
              layer.weight_hr, saved[kOutput], if_defined(saved[kGates]), if_defined(saved[kCells]),
              if_defined(saved[kPlaces]), if_defined(saved[kBefore]), layer.is_reversed);
  return spread(found, layer.tensors());
}

class Recurrence : public torch::autograd::Function<Recurrence> {
 public:
  static variable_list forward(AutogradContext* context, const std::string& cell,
                               const at::Tensor& inputs, const at::Tensor& hx,
                               const OptionalTensor& cx, const at::Tensor& weight_hh,
                               const OptionalTensor& bias_hh, const OptionalTensor& weight_hr,
                               const Packing& packing, bool is_reversed) {
    const Layer layer{cell, inputs, hx, cx, weight_hh, bias_hh, weight_hr, is_reversed};
    variable_list results = loop(layer, if_defined(packing.places), /*saves=*/true);
    const std::size_t num_outputs = cx.has_value() ? 3 : 2;
    const auto saved = [&](std::size_t i) {
      return i < results.size() ? results[i] : at::Tensor();
    };
    context->save_for_backward({inputs, hx, plain(cx), weight_hh, plain(bias_hh), plain(weight_hr),
                                results[0], saved(num_outputs), saved(num_outputs + 1),
                                packing.places, packing.before[is_reversed ? 1 : 0]});
    context->saved_data["cell"] = cell;
    context->saved_data["sizes"] = packing.sizes;
    context->saved_data["is_reversed"] = is_reversed;
    results.resize(num_outputs);
    return results;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const Layer layer{context->saved_data["cell"].toStringRef(),
                      saved[kInputs],
                      saved[kHx],
                      if_defined(saved[kCx]),
                      saved[kWeightHh],
                      if_defined(saved[kBiasHh]),
                      if_defined(saved[kWeightHr]),
                      context->saved_data["is_reversed"].toBool()};
    // Gradients are recorded where they are to be derived.
    variable_list gradients =
        at::GradMode::is_enabled()
            ? unrolled_gradients(layer, context->saved_data["sizes"].toIntVector(), layer.tensors(),
                                 grads)
            : loop_gradients(layer, saved, grads);
    gradients.insert(gradients.begin(), at::Tensor());                // cell
    gradients.insert(gradients.end(), {at::Tensor(), at::Tensor()});  // packing, is_reversed
    return gradients;
  }
};

bool is_differentiated(const std::vector<OptionalTensor>& tensors) {
  return at::GradMode::is_enabled() &&
         std::ranges::any_of(tensors, [](const OptionalTensor& tensor) {
           return tensor.has_value() && tensor->requires_grad();
         });
}

variable_list run_layer(const Layer& layer, const Packing& packing) {
  if (!is_differentiated(layer.tensors())) {
    return loop(layer, if_defined(packing.places), /*saves=*/false);
  }
  return Recurrence::apply(layer.cell, layer.inputs, layer.hx, layer.cx, layer.weight_hh,
                           layer.bias_hh, layer.weight_hr, packing, layer.is_reversed);
}

// ---- Layers of an LSTM by oneDNN's kernels ------------------------------------------------------

// The tensors of one in one direction, in this order.
struct LstmLayer {
  enum : std::size_t { kInput, kWeightIh, kWeightHh, kBiasIh, kBiasHh, kHx, kCx };
  std::vector<OptionalTensor> tensors;
  bool is_reversed;

  const at::Tensor& at(std::size_t i) const { return *tensors[i]; }

  variable_list run() const {
    static const auto op = operator_of<std::vector<at::Tensor>(
        const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
        const OptionalTensor&, const at::Tensor&, const at::Tensor&, bool)>("xla::_lstm_layer");
    const at::AutoDispatchBelowADInplaceOrView guard;
    return op.call(at(kInput), at(kWeightIh), at(kWeightHh), tensors[kBiasIh], tensors[kBiasHh],
                   at(kHx), at(kCx), is_reversed);
  }

  variable_list gradients(const variable_list& grads) const {
    static const auto op = operator_of<std::vector<at::Tensor>(
        at::TensorList, const at::Tensor&, const at::Tensor&, const at::Tensor&,
        const OptionalTensor&, const OptionalTensor&, const at::Tensor&, const at::Tensor&, bool)>(
        "xla::_lstm_layer_backward");
    const at::AutoDispatchBelowADInplaceOrView guard;
    return spread(op.call(grads, at(kInput), at(kWeightIh), at(kWeightHh), tensors[kBiasIh],
                          tensors[kBiasHh], at(kHx), at(kCx), is_reversed),
                  tensors);
  }

  variable_list unrolled_gradients(const variable_list& grads) const {
    OptionalTensor bias;
    if (tensors[kBiasIh].has_value()) bias = at(kBiasIh) + at(kBiasHh);
    const Layer layer{.cell = "lstm",
                      .inputs = at::linear(at(kInput), at(kWeightIh), bias),
                      .hx = at(kHx),
                      .cx = at(kCx),
                      .weight_hh = at(kWeightHh),
                      .bias_hh = {},
                      .weight_hr = {},
                      .is_reversed = is_reversed};
    const Sizes sizes(static_cast<std::size_t>(at(kInput).size(0)), at(kInput).size(1));
    return aten::unrolled_gradients(layer, sizes, tensors, grads);
  }
};

class DerivedLstmLayer : public torch::autograd::Function<DerivedLstmLayer> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                               const OptionalTensor& bias_ih, const OptionalTensor& bias_hh,
                               const at::Tensor& hx, const at::Tensor& cx, bool is_reversed) {
    const LstmLayer layer{{input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx}, is_reversed};
    variable_list saved;
    for (const OptionalTensor& tensor : layer.tensors) saved.push_back(plain(tensor));
    context->save_for_backward(std::move(saved));
    context->saved_data["is_reversed"] = is_reversed;
    return layer.run();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    LstmLayer layer{{}, context->saved_data["is_reversed"].toBool()};
    for (const at::Tensor& tensor : context->get_saved_variables()) {
      layer.tensors.push_back(if_defined(tensor));
    }
    variable_list gradients =
        at::GradMode::is_enabled() ? layer.unrolled_gradients(grads) : layer.gradients(grads);
    gradients.emplace_back();  // is_reversed
    return gradients;
  }
};

variable_list run_layer(const LstmLayer& layer) {
  if (!is_differentiated(layer.tensors)) return layer.run();
  using Of = LstmLayer;
  return DerivedLstmLayer::apply(layer.at(Of::kInput), layer.at(Of::kWeightIh),
                                 layer.at(Of::kWeightHh), layer.tensors[Of::kBiasIh],
                                 layer.tensors[Of::kBiasHh], layer.at(Of::kHx), layer.at(Of::kCx),
                                 layer.is_reversed);
}

// Whether PyTorch's kernels for the CPU can be called for such tensors.
bool has_lstm_kernel(const at::Tensor& input) {
  return input.scalar_type() == at::kFloat && at::hasMKLDNN() &&
         at::globalContext().userEnabledMkldnn() && runtime::has_host_kernels() &&
         as_xla(input)->xla_device().num_devices() == 1 &&
         !at::autocast::is_autocast_enabled(at::kXLA);
}

// ---- Layers of both directions ------------------------------------------------------------------

struct Results {
  at::Tensor output;
  variable_list states;
};

// What the four operators have in common.
struct Network {
  const char* cell;
  at::TensorList params;
  bool has_biases;
  std::int64_t num_layers;
  double dropout;
  bool train;
  bool is_bidirectional;

  bool is_lstm() const { return std::string_view(cell) == "lstm"; }
  std::int64_t num_gates() const { return is_lstm() ? 4 : std::string_view(cell) == "gru" ? 3 : 1; }
  std::int64_t num_directions() const { return is_bidirectional ? 2 : 1; }

  // Whether the loop serves this call. `input` is a sequence, steps first, or rows.
  bool is_served(const at::Tensor& input, at::TensorList hx, std::int64_t batch) const;
  Results run(at::Tensor input, at::TensorList hx, const Packing& packing) const;

 private:
  bool has_fitting_params(std::int64_t hidden, std::int64_t state) const;
  bool is_projected(at::TensorList hx) const { return is_lstm() && hx[0].size(2) != hx[1].size(2); }
  at::TensorList params_of(std::int64_t index, at::TensorList hx) const {
    const std::size_t count = 2 + (has_biases ? 2 : 0) + (is_projected(hx) ? 1 : 0);
    return params.slice(static_cast<std::size_t>(index) * count, count);
  }
  Layer layer(const at::Tensor& input, at::TensorList hx, std::int64_t index) const;
  LstmLayer lstm_layer(const at::Tensor& input, at::TensorList hx, std::int64_t index) const;
};

bool is_ours(const at::Tensor& tensor, const at::Tensor& like) {
  return as_xla(tensor) != nullptr && tensor.device() == like.device() &&
         !tensor._fw_grad(/*level=*/0).defined();
}

// All of one floating type; under autocast of the lower one or of float32, each state the same.
bool have_fitting_dtypes(const at::Tensor& input, at::TensorList hx, at::TensorList params) {
  constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  const bool is_autocast = at::autocast::is_autocast_enabled(at::kXLA);
  const at::ScalarType dtype = input.scalar_type();
  const at::ScalarType lower = is_autocast ? at::autocast::get_autocast_dtype(at::kXLA) : dtype;
  if (std::find(kTypes.begin(), kTypes.end(), lower) == kTypes.end()) return false;
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == lower || (is_autocast && tensor.scalar_type() == at::kFloat);
  };
  for (const at::Tensor& state : hx) {
    if (!fits(state) || state.scalar_type() != hx[0].scalar_type()) return false;
  }
  return fits(input) && std::all_of(params.begin(), params.end(), fits);
}

// PyTorch refuses derivatives that are written in C++ while it transforms.
bool is_transforming() {
  return c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

bool Network::is_served(const at::Tensor& input, at::TensorList hx, std::int64_t batch) const {
  if (is_transforming()) return false;
  if (hx.size() != (is_lstm() ? 2U : 1U) || num_layers < 1) return false;
  for (const at::TensorList tensors : {at::TensorList(input), hx, params}) {
    for (const at::Tensor& tensor : tensors) {
      if (!is_ours(tensor, input)) return false;
    }
  }
  if (!have_fitting_dtypes(input, hx, params)) return false;
  for (const at::Tensor& state : hx) {
    if (state.dim() != 3 || state.numel() == 0 || state.size(1) != batch) return false;
    if (state.size(0) != num_layers * num_directions()) return false;
  }
  return input.numel() > 0 && has_fitting_params(hx.back().size(2), hx.front().size(2));
}

// `linear` looks at the columns of the weights that inputs are multiplied by.
bool Network::has_fitting_params(std::int64_t hidden, std::int64_t state) const {
  const std::int64_t rows = num_gates() * hidden;
  std::size_t next = 0;
  const auto has_sizes = [&](const Sizes& sizes) {
    return next < params.size() && params[next++].sizes() == at::IntArrayRef(sizes);
  };
  for (std::int64_t i = 0; i < num_layers * num_directions(); ++i) {
    if (next >= params.size() || params[next].dim() != 2) return false;
    if (params[next++].size(0) != rows || !has_sizes({rows, state})) return false;
    if (has_biases && (!has_sizes({rows}) || !has_sizes({rows}))) return false;
    if (state != hidden && !has_sizes({state, hidden})) return false;
  }
  return next == params.size();
}

// Autocast, where it is on, casts the weights of products.
at::Tensor cast(const at::Tensor& weight) {
  if (!at::autocast::is_autocast_enabled(at::kXLA)) return weight;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kXLA), weight, at::kXLA);
}

Layer Network::layer(const at::Tensor& input, at::TensorList hx, std::int64_t index) const {
  const at::TensorList mine = params_of(index, hx);
  Layer layer;
  layer.cell = cell;
  layer.hx = hx[0].select(0, index);
  if (is_lstm()) layer.cx = hx[1].select(0, index);
  layer.weight_hh = cast(mine[1]);
  if (is_projected(hx)) layer.weight_hr = cast(mine.back());
  layer.is_reversed = index % num_directions() == 1;
  OptionalTensor bias;
  if (has_biases) {
    // A GRU multiplies a part of the second one.
    const bool is_gru = num_gates() == 3;
    bias = is_gru ? mine[2] : mine[2] + mine[3];
    if (is_gru) layer.bias_hh = cast(mine[3]);
  }
  layer.inputs = at::linear(input, mine[0], bias);
  return layer;
}

LstmLayer Network::lstm_layer(const at::Tensor& input, at::TensorList hx,
                              std::int64_t index) const {
  const at::TensorList mine = params_of(index, hx);
  const auto bias = [&](std::size_t i) {
    return has_biases ? OptionalTensor(mine[i]) : std::nullopt;
  };
  return {
      {input, mine[0], mine[1], bias(2), bias(3), hx[0].select(0, index), hx[1].select(0, index)},
      index % num_directions() == 1};
}

Results Network::run(at::Tensor input, at::TensorList hx, const Packing& packing) const {
  const bool is_called =
      is_lstm() && !is_projected(hx) && !packing.places.defined() && has_lstm_kernel(input);
  std::vector<variable_list> last(hx.size());
  for (std::int64_t i = 0; i < num_layers; ++i) {
    if (i > 0 && train && dropout != 0) input = at::dropout(input, dropout, /*train=*/true);
    variable_list outputs;
    for (std::int64_t k = 0; k < num_directions(); ++k) {
      const std::int64_t index = i * num_directions() + k;
      const variable_list results = is_called ? run_layer(lstm_layer(input, hx, index))
                                              : run_layer(layer(input, hx, index), packing);
      outputs.push_back(results[0]);
      for (std::size_t s = 0; s < hx.size(); ++s) last[s].push_back(results[1 + s]);
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
  }
  Results results{input, {}};
  for (const variable_list& states : last) results.states.push_back(at::stack(states));
  return results;
}

// ---- Sequences ----------------------------------------------------------------------------------

std::optional<Results> of_batch(const Network& network, const at::Tensor& input, at::TensorList hx,
                                bool batch_first) {
  if (as_xla(input) == nullptr || input.dim() != 3) return std::nullopt;
  const at::Tensor sequence = batch_first ? input.transpose(0, 1) : input;
  const std::int64_t batch = sequence.size(1);
  if (!network.is_served(sequence, hx, batch)) return std::nullopt;
  const Packing packing{Sizes(static_cast<std::size_t>(sequence.size(0)), batch), {}, {}};
  Results results = network.run(sequence, hx, packing);
  if (batch_first) results.output = results.output.transpose(0, 1);
  return results;
}

// The rows of each step; nothing where they are not those of a packed sequence.
std::optional<Sizes> sizes_of(const at::Tensor& batch_sizes, std::int64_t num_rows) {
  if (!batch_sizes.device().is_cpu() || batch_sizes.dim() != 1 ||
      batch_sizes.scalar_type() != at::kLong || batch_sizes.numel() == 0) {
    return std::nullopt;
  }
  const at::Tensor contiguous = batch_sizes.contiguous();
  const auto* const data = contiguous.const_data_ptr<std::int64_t>();
  const Sizes sizes(data, data + contiguous.numel());
  if (!std::is_sorted(sizes.rbegin(), sizes.rend()) || sizes.back() < 1) return std::nullopt;
  if (std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != num_rows) return std::nullopt;
  return sizes;
}

Packing packing_of(Sizes sizes, std::int64_t num_rows, c10::Device device) {
  const std::size_t count = sizes.size();
  Sizes places;
  for (std::int64_t first = 0; const std::int64_t size : sizes) {
    places.insert(places.end(), {first, size});
    first += size;
  }
  std::array<Sizes, 2> before;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::int64_t row = 0; row < sizes[i]; ++row) {
      // Initial states count behind the last row.
      before[0].push_back(i == 0 ? num_rows + row : places[2 * i - 2] + row);
      const bool goes_on = i + 1 < count && row < sizes[i + 1];
      before[1].push_back(goes_on ? places[2 * i + 2] + row : num_rows + row);
    }
  }
  const auto sent = [&](const Sizes& numbers, std::int64_t columns) {
    return at::tensor(numbers, at::kLong).reshape({-1, columns}).to(device);
  };
  return {std::move(sizes), sent(places, 2), {sent(before[0], 1), sent(before[1], 1)}};
}

std::optional<Results> of_packed(const Network& network, const at::Tensor& data,
                                 const at::Tensor& batch_sizes, at::TensorList hx) {
  if (as_xla(data) == nullptr || data.dim() != 2) return std::nullopt;
  std::optional<Sizes> sizes = sizes_of(batch_sizes, data.size(0));
  if (!sizes.has_value() || !network.is_served(data, hx, sizes->front())) return std::nullopt;
  const std::int64_t batch = sizes->front();
  if (sizes->back() == batch) {
    const at::Tensor sequence = data.reshape({-1, batch, data.size(1)});
    Results results = network.run(sequence, hx, {std::move(*sizes), {}, {}});
    results.output = results.output.flatten(0, 1);
    return results;
  }
  return network.run(data, hx, packing_of(std::move(*sizes), data.size(0), data.device()));
}

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ThreeTensors lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params,
                  bool has_biases, std::int64_t num_layers, double dropout, bool train,
                  bool bidirectional, bool batch_first) {
  const Network network{"lstm", params, has_biases, num_layers, dropout, train, bidirectional};
  const std::optional<Results> results = of_batch(network, input, hx, batch_first);
  if (results.has_value()) return {results->output, results->states[0], results->states[1]};
  return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                          batch_first);
}

ThreeTensors lstm_data(const at::Tensor& data, const at::Tensor& batch_sizes, at::TensorList hx,
                       at::TensorList params, bool has_biases, std::int64_t num_layers,
                       double dropout, bool train, bool bidirectional) {
  const Network network{"lstm", params, has_biases, num_layers, dropout, train, bidirectional};
  const std::optional<Results> results = of_packed(network, data, batch_sizes, hx);
  if (results.has_value()) return {results->output, results->states[0], results->states[1]};
  return at::native::lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
                          bidirectional);
}

using OfBatch = TwoTensors (*)(const at::Tensor&, const at::Tensor&, at::TensorList, bool,
                               std::int64_t, double, bool, bool, bool);
using OfPacked = TwoTensors (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                at::TensorList, bool, std::int64_t, double, bool, bool);

struct Gru {
  static constexpr const char* kCell = "gru";
  static constexpr OfBatch kOfBatch = at::native::gru;
  static constexpr OfPacked kOfPacked = at::native::gru;
};
struct RnnTanh {
  static constexpr const char* kCell = "rnn_tanh";
  static constexpr OfBatch kOfBatch = at::native::rnn_tanh;
  static constexpr OfPacked kOfPacked = at::native::rnn_tanh;
};
struct RnnRelu {
  static constexpr const char* kCell = "rnn_relu";
  static constexpr OfBatch kOfBatch = at::native::rnn_relu;
  static constexpr OfPacked kOfPacked = at::native::rnn_relu;
};

template <typename Operator>
TwoTensors of_one_state(const at::Tensor& input, const at::Tensor& hx, at::TensorList params,
                        bool has_biases, std::int64_t num_layers, double dropout, bool train,
                        bool bidirectional, bool batch_first) {
  const Network network{Operator::kCell, params, has_biases,   num_layers,
                        dropout,         train,  bidirectional};
  const std::optional<Results> results = of_batch(network, input, hx, batch_first);
  if (results.has_value()) return {results->output, results->states[0]};
  return Operator::kOfBatch(input, hx, params, has_biases, num_layers, dropout, train,
                            bidirectional, batch_first);
}

template <typename Operator>
TwoTensors of_one_state_data(const at::Tensor& data, const at::Tensor& batch_sizes,
                             const at::Tensor& hx, at::TensorList params, bool has_biases,
                             std::int64_t num_layers, double dropout, bool train,
                             bool bidirectional) {
  const Network network{Operator::kCell, params, has_biases,   num_layers,
                        dropout,         train,  bidirectional};
  const std::optional<Results> results = of_packed(network, data, batch_sizes, hx);
  if (results.has_value()) return {results->output, results->states[0]};
  return Operator::kOfPacked(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
                             bidirectional);
}

template <typename Operator>
void register_one_state(torch::Library& m) {
  const std::string name = Operator::kCell;
  m.impl((name + ".input").c_str(), of_one_state<Operator>);
  m.impl((name + ".data").c_str(), of_one_state_data<Operator>);
}

}  // namespace

void register_recurrences(torch::Library& m) {
  m.impl("lstm.input", lstm);
  m.impl("lstm.data", lstm_data);
  register_one_state<Gru>(m);
  register_one_state<RnnTanh>(m);
  register_one_state<RnnRelu>(m);
}

}  // namespace torch_xla::aten
