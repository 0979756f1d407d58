// Bindings for looking at graphs, memory and causes.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/call.h"
#include "aten/device.h"
#include "aten/inspect.h"
#include "aten/programs.h"
#include "aten/tensor.h"
#include "base/user_code.h"
#include "graph/location.h"
#include "python/bindings.h"
#include "runtime/cause.h"
#include "runtime/client.h"
#include "runtime/executor.h"
#include "runtime/inspect.h"
#include "runtime/kept_arguments.h"
#include "runtime/plan.h"
#include "runtime/programs.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

void bind_graphs(py::module_& m) {
  const auto release = py::call_guard<WithoutLock>();
  m.def(
      "_pending_program",
      [](int i) { return runtime::pending_graph(runtime::device(i), "stablehlo"); }, release);
  m.def(
      "_pending_graph",
      [](int i, const std::string& format) {
        return runtime::pending_graph(runtime::device(i), format);
      },
      release);
  m.def(
      "_graph_of",
      [](const Tensors& tensors, const std::string& format) {
        return aten::graph_of(tensors, format);
      },
      release);
  m.def(
      "_graph_key_of", [](const Tensors& tensors) { return aten::graph_key_of(tensors); }, release);
  m.def("_get_xla_tensor_debug_info", &aten::describe, release);
}

// The names that programs and bug reports of torch_xla call.
void bind_known_names(py::module_& m) {
  const auto release = py::call_guard<WithoutLock>();
  const auto bind_format = [&](const char* name, const char* format) {
    m.def(
        name, [format](const Tensors& tensors) { return aten::graph_of(tensors, format); },
        py::arg("tensors"), release);
  };
  bind_format("_get_xla_tensors_text", "text");
  bind_format("_get_xla_tensors_dot", "dot");
  bind_format("_get_xla_tensors_hlo", "hlo");
  bind_format("_get_xla_tensors_stablehlo", "stablehlo");
  m.def("_get_graph_hash",
        [](const Tensors& tensors) { return py::bytes(aten::graph_key_of(tensors)); });
  // Equal for tensors that share memory.
  m.def("_xla_get_tensor_id", &aten::tensor_id);
  m.def("_kind_of_data", &aten::kind_of_data);
  // One device has no shardings.
  m.def("_get_xla_sharding_spec", [](const at::Tensor&) { return std::string(); });
  using Names = std::vector<std::string>;
  // Compiles what computes the tensors, for `_run_cached_graph`.
  m.def(
      "_xla_warm_up_cache",
      [](const Tensors& tensors, const Names&) { aten::cache_graph(tensors); }, py::arg("tensors"),
      py::arg("devices") = Names(), release);
  m.def(
      "_run_cached_graph",
      [](const py::bytes& graph_hash, const Tensors& inputs) {
        const std::string key = graph_hash;
        const WithoutLock without_lock;
        return aten::run_cached_graph(key, inputs);
      },
      py::arg("graph_hash"), py::arg("graph_inputs"));
  m.def("_get_tensors_xla_device_data_node", [](const Tensors& tensors) {
    aten::Leaves leaves = aten::leaves_of(tensors);
    return std::pair(std::move(leaves.ids), std::move(leaves.tensors));
  });
  m.def(
      "_xla_sync_multi",
      [](const Tensors& tensors, const Names&, bool wait, bool) {
        aten::materialize(tensors);
        if (wait && !tensors.empty()) runtime::wait(aten::device_of(tensors[0].device()));
      },
      py::arg("tensors"), py::arg("devices") = Names(), py::arg("wait") = true,
      py::arg("sync_xla_data") = true, release);
  m.def(
      "_xla_step_marker",
      [](const std::string& device, const Names&, bool wait, bool) {
        runtime::Device& target =
            device.empty() ? aten::current_device() : aten::device_of(c10::Device(device));
        runtime::sync(target, wait);
      },
      py::arg("device") = "", py::arg("devices") = Names(), py::arg("wait") = true,
      py::arg("reset_scope") = true, release);
}

// Switches of torch_xla.
void bind_switches(py::module_& m) {
  m.def("_set_buffer_donation", &aten::set_donor, py::arg("tensor"), py::arg("should_donate"));
  m.def("_set_donors_are_used", &runtime::set_donors_are_used);
  m.def("_set_is_replica", &runtime::set_is_replica);
  m.def("_set_xla_all_numbers_special_scalars", [](bool on) {
    aten::all_numbers_are_special.store(on);
    runtime::set_constants_stay(on);
  });
  m.def(
      "_set_xla_custom_op_name_prefix",
      [](const at::Tensor& tensor, const std::string& prefix, std::int64_t) {
        return aten::set_name(tensor, prefix);
      },
      py::arg("tensor"), py::arg("prefix"), py::arg("max_call_stack_depth") = 0);
  m.def(
      "_xla_mark_dynamic",
      [](const at::Tensor&, std::int64_t) {
        base::fail(base::ErrorKind::kUnimplemented,
                   "_xla_mark_dynamic: every size is a constant of its program here; a tensor of "
                   "another size is another program");
      },
      py::arg("tensor"), py::arg("dim"));
}

void bind_user_code(py::module_& m) {
  m.def("_user_line", &base::user_line);
  m.def("_set_cause", &runtime::set_cause);
  m.def("_set_scope", [](std::string scope) {
    std::string before = graph::scope();
    graph::set_scope(std::move(scope));
    return before;
  });
}

// Without those that are only kept for a graph's next call.
runtime::ArrayList& arrays_in_use(int index) {
  runtime::Device& device = runtime::device(index);
  runtime::forget_arguments(device);
  return device.arrays();
}

py::list live_arrays(int index) {
  py::list out;
  for (const runtime::LiveArray& array : arrays_in_use(index).list()) {
    out.append(py::make_tuple(array.num_bytes, base::to_string(array.shape), array.where));
  }
  return out;
}

void bind_memory(py::module_& m) {
  m.def("_live_arrays", &live_arrays);
  m.def("_live_bytes", [](int i) {
    const runtime::ArrayList& arrays = arrays_in_use(i);
    return py::make_tuple(arrays.num_bytes(), arrays.peak_num_bytes());
  });
  m.def("_reset_peak_bytes", [](int i) { runtime::device(i).arrays().reset_peak(); });
}

}  // namespace

void bind_inspection(py::module_& m) {
  bind_graphs(m);
  bind_known_names(m);
  bind_switches(m);
  bind_user_code(m);
  bind_memory(m);
}

}  // namespace torch_xla::python
