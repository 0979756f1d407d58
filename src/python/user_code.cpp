// Walks Python's stack with the C API: no object is made but the texts that are
// asked for, and in notebooks the names of cells.
#include <Python.h>
#include <frameobject.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/user_code.h"
#include "python/bindings.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;

// Folders whose code is not the user's.
std::vector<std::string>& hidden_folders() {
  static auto* const folders = new std::vector<std::string>();
  return *folders;
}

std::string_view text_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return {data, static_cast<std::size_t>(size)};
}

bool is_hidden(std::string_view file) {
  if (file.starts_with("<frozen") || file.ends_with("/contextlib.py")) return true;
  for (const std::string& folder : hidden_folders()) {
    if (file.starts_with(folder)) return true;
  }
  return false;
}

// What called a notebook's cell: nothing beyond it is the user's.
bool calls_cells(std::string_view file) { return file.find("/IPython/core/") != file.npos; }

// "In[3]" for the file that stands for a notebook's cell, else the file.
std::string shown(std::string_view file) {
  if (file.find("/ipykernel_") == file.npos && !file.starts_with("<ipython-input-")) {
    return std::string(file);
  }
  try {
    const py::object shell = py::module_::import("IPython").attr("get_ipython")();
    const py::object numbers = shell.attr("compile").attr("_filename_map");
    return "In[" + py::str(numbers[py::str(file.data(), file.size())]).cast<std::string>() + "]";
  } catch (const py::error_already_set& error) {  // another IPython, or one that is not running
    if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();  // Python's to raise
    return std::string(file);
  }
}

std::vector<base::Frame> walk(std::size_t max) {
  std::vector<base::Frame> frames;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr && frames.size() < max) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    const std::string_view file = text_of(code->co_filename);
    const bool is_last = !frames.empty() && calls_cells(file);
    if (!is_last && !is_hidden(file)) {
      frames.push_back(
          {shown(file), PyFrame_GetLineNumber(frame), std::string(text_of(code->co_name))});
    }
    Py_DECREF(code);
    if (is_last) break;
    PyFrameObject* const back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return frames;
}

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

std::vector<base::Frame> python_frames(std::size_t max) {
  // A thread that Python does not know has no frames, and must not become one of Python's.
  if (Py_IsInitialized() == 0 || is_finalizing() || PyGILState_GetThisThreadState() == nullptr) {
    return {};
  }
  const py::gil_scoped_acquire lock;
  return walk(max);
}

}  // namespace

void install_frame_source() {
  for (const char* const name : {"torch", "torch_xla"}) {
    const auto path = py::module_::import(name).attr("__path__").cast<py::list>();
    hidden_folders().push_back(path[0].cast<std::string>() + "/");
  }
  base::set_frame_source(python_frames);
}

}  // namespace torch_xla::python
