// Signals while the library waits: what Python does between two instructions, the library's waits
// do a few times a second.
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <unistd.h>

#include <atomic>

#include "python/bindings.h"
#include "runtime/client.h"
#include "runtime/interruption.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;

// Python handles signals there alone.
unsigned long main_thread = 0;
std::atomic<bool> is_exiting{false};

bool is_main_thread() { return PyThread_get_thread_ident() == main_thread; }

bool is_interruptible() { return is_main_thread() && Py_IsInitialized() != 0; }

// Throws what a signal's handler raised: KeyboardInterrupt, if nobody has installed another.
void check_signals() {
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw_raised();
}

// A daemon thread that goes back to Python while the interpreter is taken down would be ended where
// it stands, which C++ code does not survive.
void stay_behind() {
  if (!is_exiting.load() || is_main_thread() || PyGILState_GetThisThreadState() == nullptr) return;
  while (true) pause();
}

}  // namespace

void throw_raised() {
  python_error raised;
  raised.persist();
  throw raised;
}

void bind_interruption(py::module_& m) {
  main_thread =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  runtime::set_interruption_hooks({&is_interruptible, &check_signals, &stay_behind});
  m.def("_shutdown_at_exit", [] {
    is_exiting.store(true);
    const py::gil_scoped_release release;
    runtime::shutdown_at_exit();
  });
}

}  // namespace torch_xla::python
