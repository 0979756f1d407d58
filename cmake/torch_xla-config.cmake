# find_package(torch_xla) gives the target torch_xla::torch_xla: the device for programs in C++, and
# the headers and libraries of PyTorch. CMAKE_PREFIX_PATH must have the folder of the Python package,
# which `python -c "import torch_xla; print(torch_xla.__path__[0])"` prints. PyTorch is the one in the
# package beside it, or in TORCH_PACKAGE_DIR.

get_filename_component(_torch_xla_folder "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
get_filename_component(_torch_beside "${_torch_xla_folder}/../torch" ABSOLUTE)
set(TORCH_PACKAGE_DIR "${_torch_beside}" CACHE PATH "Folder of PyTorch's Python package")
if(NOT EXISTS "${TORCH_PACKAGE_DIR}/version.py")
  set(torch_xla_FOUND FALSE)
  set(torch_xla_NOT_FOUND_MESSAGE "PyTorch is not in ${TORCH_PACKAGE_DIR}: set TORCH_PACKAGE_DIR")
  return()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/torch_package.cmake")
torch_xla_read_torch_version(torch_xla_TORCH_VERSION "${TORCH_PACKAGE_DIR}")
set(_torch_xla_library
  "${_torch_xla_folder}/lib/torch-${torch_xla_TORCH_VERSION}/libtorch_xla.so")
if(NOT EXISTS "${_torch_xla_library}")
  set(torch_xla_FOUND FALSE)
  set(torch_xla_NOT_FOUND_MESSAGE
    "there is no library for torch ${torch_xla_TORCH_VERSION} in ${_torch_xla_folder}/lib")
  return()
endif()

if(NOT TARGET torch_xla::torch_xla)
  torch_xla_add_torch(torch_xla::torch "${TORCH_PACKAGE_DIR}" torch_cpu c10)
  add_library(torch_xla::core SHARED IMPORTED)
  set_target_properties(torch_xla::core PROPERTIES
    IMPORTED_LOCATION "${_torch_xla_folder}/lib/libtorch_xla_core.so")
  add_library(torch_xla::torch_xla SHARED IMPORTED)
  set_target_properties(torch_xla::torch_xla PROPERTIES
    IMPORTED_LOCATION "${_torch_xla_library}"
    IMPORTED_LINK_DEPENDENT_LIBRARIES torch_xla::core)
  target_compile_features(torch_xla::torch_xla INTERFACE cxx_std_20)
  target_include_directories(torch_xla::torch_xla INTERFACE "${_torch_xla_folder}/include")
  target_link_libraries(torch_xla::torch_xla INTERFACE torch_xla::torch)
  # The library registers the device when it is loaded; a program may name no symbol of it.
  target_link_options(torch_xla::torch_xla INTERFACE -Wl,--no-as-needed)
endif()
