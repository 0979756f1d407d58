// The parts of the extension module, one per theme and file.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_xla::python {

// Tells the library where in the user's program a thread is.
void install_frame_source();

// What is recorded and what runs, for people to look at.
void bind_inspection(pybind11::module_& m);

// Programs that leave the process or come from elsewhere, their memory, traces of what runs.
void bind_programs(pybind11::module_& m);

// Captured functions.
void bind_regions(pybind11::module_& m);
void bind_graph_call(pybind11::module_& m);

}  // namespace torch_xla::python
