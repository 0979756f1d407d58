// Bindings for captured functions, and for how and when what is recorded runs.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <map>

#include "aten/eager.h"
#include "aten/region.h"
#include "base/error.h"
#include "python/bindings.h"
#include "runtime/client.h"
#include "runtime/inspect.h"
#include "runtime/platform_options.h"
#include "runtime/programs.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

graph::RegionKind kind_of(const std::string& name) {
  static const std::map<std::string, graph::RegionKind> kinds = {
      {"call", graph::RegionKind::kCall},
      {"cond", graph::RegionKind::kCond},
      {"while_loop", graph::RegionKind::kWhile},
      {"scan", graph::RegionKind::kScan},
      {"optimization_barrier", graph::RegionKind::kBarrier}};
  const auto it = kinds.find(name);
  base::internal_check(it != kinds.end(), "no kind of region is called ", name);
  return it->second;
}

}  // namespace

void bind_regions(py::module_& m) {
  py::class_<aten::CapturedGraph>(m, "_CapturedGraph")
      .def_property_readonly("num_constants",
                             [](const aten::CapturedGraph& g) { return g.constants.size(); })
      .def_property_readonly("keys", [](const aten::CapturedGraph& g) { return g.region->keys; })
      .def_property_readonly("num_operations", [](const aten::CapturedGraph& g) {
        return g.region->trace.steps.size();
      });
  py::class_<aten::Capture>(m, "_Capture")
      .def(py::init(
          [](int device) { return std::make_unique<aten::Capture>(runtime::device(device)); }))
      .def("placeholder", &aten::Capture::placeholder, py::arg("like"),
           py::arg("is_outside") = false)
      .def("finish",
           [](aten::Capture& capture, const Tensors& results) { return capture.finish(results); })
      .def("close", &aten::Capture::close);
  m.def(
      "_record_region",
      [](const std::string& kind, const std::vector<aten::CapturedGraph>& graphs,
         const Tensors& operands, std::size_t num_carried, std::int64_t length, bool is_reversed,
         const std::optional<aten::RandomKeys>& keys) {
        return aten::record_region(kind_of(kind), graphs, operands,
                                   {num_carried, length, is_reversed}, keys);
      },
      py::arg("kind"), py::arg("graphs"), py::arg("operands"), py::arg("num_carried") = 0,
      py::arg("length") = 0, py::arg("is_reversed") = false, py::arg("keys") = py::none());
  m.def("_latest_pending",
        [](int device) { return aten::latest_pending(runtime::device(device)); });
  m.def("_set_eager_mode", &aten::set_eager_mode);
  m.def("_set_thread_eager_mode", &aten::set_thread_eager_mode);
  m.def("_suspend_eager_mode", &aten::suspend_eager_mode);
  m.def("_is_eager_mode", &aten::is_eager);
  m.def("_set_runs_forbidden", &runtime::set_runs_forbidden);
  m.def("_last_program_key", &runtime::last_program_key);
  m.def("_last_program_memory", &runtime::last_program_memory);
  m.def("_set_custom_compile_options", &runtime::set_custom_compile_options);
  m.def("_custom_compile_options", &runtime::custom_compile_options);
  m.def("_set_thread_compile_options", &runtime::set_thread_compile_options);
  m.def("_set_thread_bounded_sizes", &runtime::set_thread_bounded_sizes);
}

}  // namespace torch_xla::python
