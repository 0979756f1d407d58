// The extension module `_XLAC`: what the Python package needs of the library. It says what exists;
// names, defaults and documentation for users are in the package.
#include <ATen/Context.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/blocking.h"
#include "aten/client_store.h"
#include "aten/collectives.h"
#include "aten/copy.h"
#include "aten/device.h"
#include "aten/dlpack.h"
#include "aten/dynamic_shapes.h"
#include "aten/errors.h"
#include "aten/generator.h"
#include "aten/groups.h"
#include "aten/inspect.h"
#include "aten/program_meetings.h"
#include "aten/registration.h"
#include "aten/storage.h"
#include "aten/tensor.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "python/bindings.h"
#include "runtime/array.h"
#include "runtime/client.h"
#include "runtime/device_info.h"
#include "runtime/executor.h"
#include "runtime/persistent_cache.h"
#include "runtime/programs.h"
#include "runtime/replica_programs.h"

namespace py = pybind11;
using namespace torch_xla;  // NOLINT(google-build-using-namespace): this file binds all of it

namespace {

// Waits of the library run without the interpreter's lock, whoever calls.
void release_lock_while_waiting() {
  aten::set_blocking_scope([](const std::function<void()>& wait) {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      const python::WithoutLock release;
      wait();
    } else {
      wait();
    }
  });
}

// Errors are what they are when an operator throws them: torch.OutOfMemoryError, IndexError, ...;
// and what a signal's handler raised is that.
void translate_errors() {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const base::Error& error) {
      try {
        aten::throw_as_torch(error);
      } catch (...) {
        torch::translate_exception_to_python(std::current_exception());
      }
    } catch (python_error& error) {
      error.restore();
    } catch (const c10::Error&) {
      torch::translate_exception_to_python(thrown);
    }
  });
}

runtime::PluginSpec resolve_plugin(const py::function& resolver) {
  const py::gil_scoped_acquire lock;
  try {
    const auto spec = resolver().cast<py::tuple>();
    runtime::PluginSpec result{spec[0].cast<std::string>(), spec[1].cast<std::string>(),
                               spec[2].cast<decltype(runtime::PluginSpec::create_options)>()};
    if (spec.size() > 3) {
      result.store = aten::meeting_in(spec[3].cast<c10::intrusive_ptr<c10d::Store>>());
    }
    return result;
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) {  // an interrupt, which ends what it meets
      error.restore();
      python::throw_raised();
    }
    // The text alone: a Python exception must not travel through threads without the lock.
    base::fail(base::ErrorKind::kRuntime, py::str(error.value()).cast<std::string>());
  }
}

void bind_runtime(py::module_& m) {
  m.def("_add_group", &aten::add_group, py::arg("name"), py::arg("group"), py::arg("members"),
        py::arg("device"), py::arg("partitions") = nullptr, py::call_guard<python::WithoutLock>());
  m.def("_remove_groups_of", &aten::remove_groups_of, py::call_guard<python::WithoutLock>());
  m.def("_has_groups", &aten::has_groups);
  m.def("_meets_others", &aten::meets_others);
  m.def("_collective_token", &aten::collective_token);
  m.def("_new_token", &aten::new_token);
  m.def("_exchange_token", [](std::int64_t device, std::optional<at::Tensor> token) {
    const at::Tensor before = aten::exchange_token(device, token.value_or(at::Tensor()));
    return before.defined() ? std::optional(before) : std::nullopt;
  });
  m.def("_finish_sends", &aten::finish_sends, py::call_guard<python::WithoutLock>());
  m.def("_process_group_name", &aten::process_group_name);
  m.def("_set_plugin_resolver", [](py::function resolver) {
    // Kept for the life of the process: the client may be made during interpreter exit.
    auto* const kept = new py::function(std::move(resolver));
    runtime::set_plugin_resolver([kept] { return resolve_plugin(*kept); });
  });
  aten::install_program_meetings();
  runtime::set_determinism([] { return at::globalContext().deterministicAlgorithms(); });
  const auto release = py::call_guard<python::WithoutLock>();
  m.def("_xla_runtime_is_initialized", &runtime::is_initialized);
  m.def("_device_count", &runtime::device_count, release);
  m.def("_spans_processes", [] { return runtime::client().spans_processes(); }, release);
  m.def(
      "_replicas_run_one_program",
      [] {
        return runtime::client().spans_processes() && runtime::run_one_program(runtime::client());
      },
      release);
  m.def("_device_count_upper_bound", &runtime::device_count_upper_bound);
  m.def("_device_type", [] { return runtime::client().device_type(); }, release);
  m.def("_platform", [] { return runtime::platform(); }, release);
  m.def("_device_name", [](int i) { return runtime::device(i).name(); }, release);
  m.def("_device_kind", &runtime::device_kind, release);
  m.def("_device_attributes", &runtime::device_attributes, release);
  m.def("_memory_stats", &runtime::memory_stats, release);
  m.def(
      "_sync",
      [](int i, bool wait, const std::string& where) {
        runtime::sync(runtime::device(i), wait, where);
      },
      release);
  m.def(
      "_time_launches",
      [](int i, int count) { return runtime::time_launches(runtime::device(i), count); }, release);
  m.def("_wait", [](int i) { runtime::wait(runtime::device(i)); }, release);
  m.def("_shutdown", &runtime::shutdown, release);
  m.def("_computation_stats", [] {
    const runtime::ComputationStats stats = runtime::computation_stats();
    return py::make_tuple(stats.compiled, stats.executed);
  });
  m.def("_clear_compilation_cache", &runtime::clear_compilation_cache, release);
  m.def("_compilation_cache_size", &runtime::compilation_cache_size);
  m.def("_initialize_persistent_cache", &runtime::initialize_persistent_cache, release);
  m.def("_clear_persistent_cache", &runtime::clear_persistent_cache, release);
  m.def("_share_compilations", &runtime::share_compilations);
  m.def("_persistent_cache_stats", [] {
    const runtime::PersistentCacheStats stats = runtime::persistent_cache_stats();
    py::dict out;
    out["path"] = stats.path;
    out["read_only"] = stats.is_read_only;
    out["max_bytes"] = stats.max_bytes;
    out["entries"] = stats.num_entries;
    out["bytes"] = stats.num_bytes;
    return out;
  });
  m.def("_live_plugin_objects", &runtime::live_plugin_objects);
}

void bind_tensors(py::module_& m) {
  m.def("_current_device", &aten::current_device_index);
  m.def("_set_current_device", &aten::set_current_device_index);
  m.def("_is_xla_tensor", [](const at::Tensor& t) { return aten::as_xla(t) != nullptr; });
  m.def("_materialize", [](const std::vector<at::Tensor>& tensors) {
    const python::WithoutLock release;
    aten::materialize(tensors);
  });
  m.def("_to_cpu", [](const std::vector<at::Tensor>& tensors) {
    const python::WithoutLock release;
    return aten::to_cpu(tensors);
  });
  // Equal for tensors that share memory, as long as one of them lives. 0 for others than ours.
  m.def("_alias_id", [](const at::Tensor& t) {
    const aten::TensorImpl* const impl = aten::as_xla(t);
    return impl == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(impl->alias().get());
  });
  m.def("_data_ptr", [](const at::Tensor& t) {
    return aten::address_of(aten::expect_xla(t, "data_ptr", "self"));
  });
  m.def("_storage_data_ptr", [](const at::Storage& storage) { return aten::address_of(storage); });
  m.def("_resize_storage", [](const at::Storage& storage, std::int64_t num_bytes) {
    const python::WithoutLock release;
    aten::resize_storage(storage, num_bytes);
  });
  m.def("_is_view", [](const at::Tensor& t) {
    return aten::as_xla(t) != nullptr && static_cast<bool>(aten::as_xla(t)->view());
  });
  // By the dispatcher: torch's own method asks is_contiguous() first, which is always true.
  m.def("_contiguous", [](const at::Tensor& t, at::MemoryFormat format) {
    const python::WithoutLock release;
    return t.__dispatch_contiguous(format);
  });
  m.def("_cpu_view", [](const at::Tensor& t) {
    const python::WithoutLock release;
    return aten::cpu_view(t);
  });
  m.def("_adopt", [](const at::Tensor& cpu, int i) {
    const python::WithoutLock release;
    const auto index = static_cast<c10::DeviceIndex>(runtime::device(i).ordinal());
    return aten::adopt(cpu, c10::Device(c10::DeviceType::XLA, index));
  });
  m.def("_default_generator",
        [](int i) { return aten::default_generator(static_cast<c10::DeviceIndex>(i)); });
  m.def("_registration_problems", &aten::registration_problems);
  m.def("_lowered_operators", &aten::lowered_operators);
  m.def("_host_operators", &aten::host_operators);
  m.def("_dynamic_operators", &aten::dynamic_operators);
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
  m.def("_xla_increment_counter",
        [](const std::string& name, std::int64_t n) { base::counter(name).add(n); });
}

base::SettingBase& setting(const std::string& name) {
  base::SettingBase* const found = base::settings().find(name);
  if (found == nullptr) throw py::attribute_error("there is no setting '" + name + "'");
  return *found;
}

void bind_settings(py::module_& m) {
  m.def("_setting_names", [] {
    std::vector<std::string> names;
    for (const base::SettingBase* s : base::settings().all()) names.emplace_back(s->info().name);
    return names;
  });
  m.def("_get_setting", [](const std::string& name) -> py::object {
    const base::SettingBase& found = setting(name);
    const std::string text = found.text();
    if (found.info().type_name == "bool") return py::bool_(text == "1");
    if (found.info().type_name == "int") return py::int_(std::stoll(text));
    return py::str(text);
  });
  m.def("_set_setting", [](const std::string& name, const std::string& text) {
    setting(name).set_text(text);
    aten::refresh_location_switch();
  });
  m.def("_reload_settings", [] {
    base::settings().reload();
    aten::refresh_location_switch();
  });
  aten::refresh_location_switch();
}

}  // namespace

PYBIND11_MODULE(_XLAC, m) {
  m.attr("__version__") = TORCH_XLA_VERSION;
  translate_errors();
  release_lock_while_waiting();
  bind_runtime(m);
  bind_tensors(m);
  bind_metrics(m);
  bind_settings(m);
  python::bind_inspection(m);
  python::bind_programs(m);
  python::bind_sharding(m);
  python::bind_regions(m);
  python::bind_graph_call(m);
  python::bind_interruption(m);
  m.def("_install_frame_source", &python::install_frame_source);
}
