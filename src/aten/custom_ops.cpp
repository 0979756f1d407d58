// Operators of other namespaces than `aten`: `xla`, which exist on this device alone, and PyTorch's
// functional collectives.
#include <torch/library.h>

#include "aten/collectives.h"
#include "aten/inspect.h"
#include "aten/operator.h"
#include "aten/programs.h"
#include "aten/record.h"
#include "aten/registration.h"

namespace torch_xla::aten {
namespace {

template <typename Kernel>
torch::CppFunction boxed(std::unique_ptr<Operator> op) {
  return torch::CppFunction::makeFromBoxedKernel(
      c10::BoxedKernel::makeFromFunctor(std::make_unique<Kernel>(std::move(op))));
}

// Records every operator of a namespace that has a lowering.
void record_all(torch::Library& m, const std::string& name_space) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with(name_space + "::")) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    std::string why;
    std::unique_ptr<Operator> op = handle.has_value() ? plan_operator(*handle, &why) : nullptr;
    // An error would end the process, which loads this library.
    if (!why.empty()) add_registration_problem(name.name + ": " + why);
    if (op == nullptr) continue;
    const bool is_collective = op->lowering->is_collective;
    m.impl(c10::toString(name).c_str(), is_collective ? boxed<CollectiveKernel>(std::move(op))
                                                      : boxed<RecordingKernel>(std::move(op)));
  }
}

// `results` are types as XLA prints them: "f32[2,3];s32[]". Attributes are lines "name=kind:value"
// of kinds i, f, b, s; those of a custom call are texts.
TORCH_LIBRARY_FRAGMENT(xla, m) {
  m.def(
      "_custom_call(Tensor[] args, str call_target_name, str results, bool has_side_effect, "
      "str backend_config, int api_version, str frontend_attributes) -> Tensor[]");
  // Calls `main` of a StableHLO module.
  m.def("_call_module(Tensor[] args, str module_text, str results) -> Tensor[]");
  // As `set_donor`, in graphs of torch.compile.
  m.def("dynamo_set_buffer_donor_(Tensor(a!) t, bool should_donate) -> Tensor(a!)");
  m.def(
      "_mark_tensor(Tensor x, str name, int pos, str id, bool is_input, str attributes) -> Tensor");
  // How a value lies on the mesh of its device, by the sharding's text (base/sharding.h).
  m.def("_sharding_constraint(Tensor self, str sharding) -> Tensor");
  // Each device's part of a tensor as one of that size, and back.
  m.def("_full_to_shard(Tensor self, str sharding) -> Tensor");
  m.def("_shard_to_full(Tensor self, str sharding, int[] full_shape) -> Tensor");
  // What `_c10d_functional` lacks.
  m.def("collective_permute(Tensor input, int[] sources, int[] targets, str group_name) -> Tensor");
  // Between two members, `dst` and `src` being places in the group, or -1 for whoever is at the
  // other end of the channel `tag` (point_to_point.cpp). What `send` gives is there when the tensor
  // is on its way; `recv` gives a tensor like `like`.
  m.def("send(Tensor input, int dst, int tag, str group_name) -> Tensor");
  m.def("recv(Tensor like, int src, int tag, str group_name) -> Tensor");
  // Whose message with that tag comes first: its place in the group. The next `recv` from there
  // with that tag takes it.
  m.def("find_sender(Tensor like, int tag, str group_name) -> Tensor");
  // A layer of cells in one direction, as a loop (recurrences.cpp). `places` says where the rows of
  // each step are, if not all have as many, `before` where those that a step starts from are.
  m.def(
      "_recurrence(str cell, Tensor inputs, Tensor hx, Tensor? cx, Tensor weight_hh, "
      "Tensor? bias_hh, Tensor? weight_hr, Tensor? places, bool reverse, bool saves) -> Tensor[]");
  m.def(
      "_recurrence_backward(str cell, Tensor[] grads, Tensor inputs, Tensor hx, Tensor? cx, "
      "Tensor weight_hh, Tensor? bias_hh, Tensor? weight_hr, Tensor output, Tensor? gates, "
      "Tensor? cells, Tensor? places, Tensor? before, bool reverse) -> Tensor[]");
  // One of an LSTM, of [steps, batch, features], and the gradients of its tensors.
  m.def(
      "_lstm_layer(Tensor input, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, "
      "Tensor? bias_hh, Tensor hx, Tensor cx, bool reverse) -> Tensor[]");
  m.def(
      "_lstm_layer_backward(Tensor[] grads, Tensor input, Tensor weight_ih, Tensor weight_hh, "
      "Tensor? bias_ih, Tensor? bias_hh, Tensor hx, Tensor cx, bool reverse) -> Tensor[]");
}

// Elsewhere a mark is nothing, so that a marked model runs and can be exported.
TORCH_LIBRARY_IMPL(xla, CompositeExplicitAutograd, m) {
  m.impl("_mark_tensor", [](const at::Tensor& x, const std::string&, std::int64_t,
                            const std::string&, bool, const std::string&) { return x.clone(); });
}

TORCH_LIBRARY_IMPL(xla, XLA, m) {
  record_all(m, "xla");
  m.impl("dynamo_set_buffer_donor_", [](at::Tensor& t, bool should_donate) -> at::Tensor& {
    // The arguments of a graph that is being captured have no memory to give.
    if (kind_of_data(t) == "array") set_donor(t, should_donate);
    return t;
  });
}

TORCH_LIBRARY_IMPL(_c10d_functional, XLA, m) {
  record_all(m, "_c10d_functional");
  // Reads wait for results, as for all others.
  m.impl("wait_tensor", [](const at::Tensor& tensor) { return tensor; });
}

// Process groups without a backend for the device, such as gloo's, would lose what they write.
void refuse_group(const c10::OperatorHandle& handle, torch::jit::Stack*) {
  const std::string& name = handle.operator_name().name;
  TORCH_CHECK(false, name.substr(name.rfind(':') + 1),
              ": the process group can't exchange tensors of the device xla; make it with the "
              "backend 'xla' (import torch_xla.distributed.xla_backend)");
}

TORCH_LIBRARY_IMPL(c10d, XLA, m) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("c10d::")) continue;
    m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse_group>());
  }
}

}  // namespace
}  // namespace torch_xla::aten
