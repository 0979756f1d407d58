// The parts of the extension module, one per theme and file.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

namespace torch_xla::python {

// Runs a scope without the interpreter's lock. A daemon thread that wants the lock back while the
// interpreter goes down is to end: Python before 3.14 unwinds its stack, which ends the process in
// the first function that must not throw. Such a thread stays here instead, until the process has
// ended.
class WithoutLock {
 public:
  WithoutLock() : state_(PyEval_SaveThread()) {}
  ~WithoutLock() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      while (true) ::pause();
    }
  }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

// Tells the library where in the user's program a thread is.
void install_frame_source();

// What is recorded and what runs, for people to look at.
void bind_inspection(pybind11::module_& m);

// Programs that leave the process or come from elsewhere, their memory, traces of what runs.
void bind_programs(pybind11::module_& m);

// Throws what Python has raised in this thread, so that it reaches Python as it is.
[[noreturn]] void throw_raised();

// Waits that end with a signal, and the end of the process.
void bind_interruption(pybind11::module_& m);

// Tensors on a mesh.
void bind_sharding(pybind11::module_& m);

// Captured functions.
void bind_regions(pybind11::module_& m);
void bind_graph_call(pybind11::module_& m);

}  // namespace torch_xla::python
