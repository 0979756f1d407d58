// Bindings for exporting, running and weighing programs, and for traces of what runs.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/programs.h"
#include "base/trace_events.h"
#include "python/bindings.h"
#include "runtime/client.h"
#include "runtime/device_trace.h"
#include "runtime/inspect.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

void bind_export(py::module_& m) {
  const auto release = py::call_guard<WithoutLock>();
  m.def(
      "_export",
      [](const Tensors& outputs, const Tensors& inputs) {
        aten::Exported exported = aten::export_program(outputs, inputs);
        return std::pair(std::move(exported.text), std::move(exported.captured));
      },
      release);
  py::class_<aten::Program>(m, "_Program")
      .def(py::init<std::string>())
      .def_readonly("text", &aten::Program::text)
      .def(
          "__call__",
          [](const aten::Program& program, const Tensors& inputs) {
            return aten::run_program(program, inputs);
          },
          release);
  m.def(
      "_estimate_memory", [](const Tensors& tensors) { return aten::estimate_memory(tensors); },
      release);
  m.def(
      "_estimate_memory_of_barrier",
      [](int i) { return runtime::estimate_memory(runtime::device(i)); }, release);
}

void bind_traces(py::module_& m) {
  m.def(
      "_start_tracing",
      [](std::optional<std::size_t> max_events) {
        base::start_tracing(max_events.value_or(base::kMaxTraceEvents));
      },
      py::arg("max_events") = py::none());
  m.def("_discard_trace", [] { base::stop_tracing(); });
  m.def("_stop_tracing", [] {
    py::list out;
    for (const base::TraceEvent& event : base::stop_tracing()) {
      out.append(
          py::make_tuple(event.name, event.line, event.detail, event.start_ns, event.duration_ns));
    }
    return out;
  });
  m.def("_tracing_is_on", &base::tracing_is_on);
  m.def("_add_trace_event",
        [](std::string name, std::string detail, std::int64_t start_ns, std::int64_t duration_ns) {
          base::add_trace_event({std::move(name), "", std::move(detail), start_ns, duration_ns});
        });
  const auto release = py::call_guard<WithoutLock>();
  m.def("_start_device_trace", &runtime::start_device_trace, release);
  m.def("_stop_device_trace", [] {
    std::string bytes;
    {
      const WithoutLock waiting;
      bytes = runtime::stop_device_trace();
    }
    return py::bytes(bytes);
  });
}

}  // namespace

void bind_programs(py::module_& m) {
  bind_export(m);
  bind_traces(m);
}

}  // namespace torch_xla::python
