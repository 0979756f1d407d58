// What `torch.compile` calls for a compiled graph: a plain function of CPython's fast protocol,
// since what surrounds it is counted in microseconds.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "aten/collectives.h"
#include "aten/region.h"
#include "python/bindings.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;

constexpr const char* kName = "torch_xla._GraphCall";

struct GraphCall {
  aten::CapturedGraph graph;
  std::size_t num_results;
  // The tensors that the graph writes, by their places among the arguments; their new values are
  // its last results.
  std::vector<std::uint32_t> written;
  // The tensors that were not on the device when the graph was captured.
  std::vector<std::uint32_t> moved;
  c10::Device device;
  bool returns_list;
  // The token of collectives is one more argument.
  bool takes_token;
};

std::vector<at::Tensor> run(const GraphCall& call, PyObject* const* arguments, Py_ssize_t count) {
  // The caller holds the arguments; counting references to each would take longer than the launch.
  std::vector<const at::Tensor*> tensors;
  tensors.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    // Numbers and None are constants of the graph.
    if (THPVariable_Check(arguments[i])) tensors.push_back(&THPVariable_Unpack(arguments[i]));
  }
  std::vector<at::Tensor> on_device;
  on_device.reserve(call.moved.size());
  for (const std::uint32_t i : call.moved) {
    on_device.push_back(tensors.at(i)->to(call.device));
    tensors[i] = &on_device.back();
  }
  at::Tensor token;
  if (call.takes_token) {
    token = aten::collective_token(call.device.index());
    tensors.push_back(&token);
  }
  std::vector<at::Tensor> results = aten::run_graph(call.graph, tensors);
  for (std::size_t i = 0; i < call.written.size(); ++i) {
    tensors[call.written[i]]->copy_(results[call.num_results + i]);
  }
  results.resize(call.num_results);
  return results;
}

PyObject* call_graph(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto& call = *static_cast<const GraphCall*>(PyCapsule_GetPointer(self, kName));
  std::vector<at::Tensor> results = run(call, arguments, count);
  const auto size = static_cast<Py_ssize_t>(results.size());
  py::object out =
      py::reinterpret_steal<py::object>(call.returns_list ? PyList_New(size) : PyTuple_New(size));
  if (!out) throw py::error_already_set();
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const result = THPVariable_Wrap(std::move(results[static_cast<std::size_t>(i)]));
    if (call.returns_list) {
      PyList_SET_ITEM(out.ptr(), i, result);
    } else {
      PyTuple_SET_ITEM(out.ptr(), i, result);
    }
  }
  return out.release().ptr();
  END_HANDLE_TH_ERRORS
}

}  // namespace

void bind_graph_call(py::module_& m) {
  m.def("_graph_call", [](const aten::CapturedGraph& graph, std::size_t num_results,
                          std::vector<std::uint32_t> written, std::vector<std::uint32_t> moved,
                          const c10::Device& device, bool returns_list, bool takes_token) {
    static PyMethodDef definition = {
        "graph_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_graph)),
        METH_FASTCALL, "Runs a compiled graph on tensors."};
    auto* const call = new GraphCall{graph,  num_results,  std::move(written), std::move(moved),
                                     device, returns_list, takes_token};
    const py::capsule self(call, kName, [](PyObject* capsule) {
      delete static_cast<GraphCall*>(PyCapsule_GetPointer(capsule, kName));
    });
    return py::reinterpret_steal<py::object>(PyCFunction_New(&definition, self.ptr()));
  });
}

}  // namespace torch_xla::python
