// The extension module `_XLAC`: what the Python package needs of the library. It says what exists;
// names, defaults and documentation for users are in the package.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/copy.h"
#include "aten/device.h"
#include "aten/generator.h"
#include "aten/registration.h"
#include "aten/tensor.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "pjrt/error.h"
#include "pjrt/live_objects.h"
#include "runtime/array.h"
#include "runtime/client.h"
#include "runtime/executor.h"

namespace py = pybind11;
using namespace torch_xla;  // NOLINT(google-build-using-namespace): this file binds all of it

namespace {

// Waits of the library run without the interpreter's lock, whoever calls.
void release_lock_while_waiting() {
  aten::set_blocking_scope([](const std::function<void()>& wait) {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      const py::gil_scoped_release release;
      wait();
    } else {
      wait();
    }
  });
}

void bind_runtime(py::module_& m) {
  m.def("_set_plugin_resolver", [](py::function resolver) {
    // Kept for the life of the process: the client may be made during interpreter exit.
    auto* const kept = new py::function(std::move(resolver));
    runtime::set_plugin_resolver([kept] {
      const py::gil_scoped_acquire lock;
      const auto spec = (*kept)().cast<py::tuple>();
      return runtime::PluginSpec{spec[0].cast<std::string>(), spec[1].cast<std::string>(),
                                 spec[2].cast<pjrt::NamedValues>()};
    });
  });
  const auto release = py::call_guard<py::gil_scoped_release>();
  m.def("_xla_runtime_is_initialized", &runtime::is_initialized);
  m.def("_device_count", &runtime::device_count, release);
  m.def("_device_type", [] { return runtime::client().device_type(); }, release);
  m.def("_platform", [] { return runtime::platform(); }, release);
  m.def("_device_name", [](int i) { return runtime::device(i).name(); }, release);
  m.def("_sync", [](int i, bool wait, const std::string& where) {
    runtime::sync(runtime::device(i), wait, where);
  }, release);
  m.def("_wait", [](int i) { runtime::wait(runtime::device(i)); }, release);
  m.def("_shutdown", &runtime::shutdown, release);
  m.def("_pending_program", [](int i) { return runtime::pending_program(runtime::device(i)); },
        release);
  m.def("_computation_stats", [] {
    const runtime::ComputationStats stats = runtime::computation_stats();
    return py::make_tuple(stats.compiled, stats.executed);
  });
  m.def("_clear_compilation_cache", &runtime::clear_compilation_cache, release);
  m.def("_compilation_cache_size", &runtime::compilation_cache_size);
  m.def("_live_plugin_objects", [] { return pjrt::live_objects().total(); });
}

void bind_tensors(py::module_& m) {
  m.def("_current_device", &aten::current_device_index);
  m.def("_set_current_device", &aten::set_current_device_index);
  m.def("_is_xla_tensor", [](const at::Tensor& t) { return aten::as_xla(t) != nullptr; });
  m.def("_materialize", [](const std::vector<at::Tensor>& tensors) {
    const py::gil_scoped_release release;
    aten::materialize(tensors);
  });
  m.def("_to_cpu", [](const std::vector<at::Tensor>& tensors) {
    const py::gil_scoped_release release;
    return aten::to_cpu(tensors);
  });
  m.def("_shares_memory", [](const at::Tensor& a, const at::Tensor& b) {
    return aten::as_xla(a) != nullptr && aten::as_xla(b) != nullptr &&
           aten::as_xla(a)->alias() == aten::as_xla(b)->alias();
  });
  m.def("_is_view", [](const at::Tensor& t) {
    return aten::as_xla(t) != nullptr && static_cast<bool>(aten::as_xla(t)->view());
  });
  m.def("_default_generator", [](int i) {
    return aten::default_generator(static_cast<c10::DeviceIndex>(i));
  });
  m.def("_registration_problems", &aten::registration_problems);
  m.def("_lowered_operators", &aten::lowered_operators);
}

void bind_metrics(py::module_& m) {
  m.def("_counter_names", &base::counter_names);
  m.def("_counter_value", &base::counter_value);
  m.def("_metric_names", &base::metric_names);
  m.def("_metric_data", [](const std::string& name) -> py::object {
    const std::optional<base::MetricData> data = base::metric_data(name);
    if (!data.has_value()) return py::none();
    py::list samples;
    for (const base::Sample& s : data->samples) {
      samples.append(py::make_tuple(static_cast<double>(s.timestamp_ns) * 1e-9, s.value));
    }
    return py::make_tuple(data->total_samples, data->accumulator, samples);
  });
  m.def("_clear_counters", &base::clear_counters);
  m.def("_clear_metrics", &base::clear_metrics);
  m.def("_metrics_report", &base::metrics_report);
  m.def("_short_metrics_report", &base::short_metrics_report);
  m.def("_metrics_report_json", &base::metrics_report_json);
  m.def("_xla_increment_counter", [](const std::string& name, std::int64_t n) {
    base::counter(name).add(n);
  });
}

}  // namespace

PYBIND11_MODULE(_XLAC, m) {
  m.attr("__version__") = TORCH_XLA_VERSION;
  release_lock_while_waiting();
  bind_runtime(m);
  bind_tensors(m);
  bind_metrics(m);
}
