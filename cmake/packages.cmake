# Finds what the build takes from Python packages: the PJRT header (xla-cpu-pjrt), the FFI headers
# (jaxlib) and PyTorch. PJRT_INCLUDE_DIR and FFI_INCLUDE_DIR override the first two, for machines
# without these wheels. Gives the targets torch_xla_pjrt_api, torch_xla_ffi_api, and with torch
# torch_xla_torch and torch_xla_torch_python.

set(PJRT_INCLUDE_DIR "" CACHE PATH "Folder of pjrt_c_api.h (default: from the xla-cpu-pjrt wheel)")
set(FFI_INCLUDE_DIR "" CACHE PATH "Folder of xla/ffi/api/c_api.h (default: from the jaxlib wheel)")
set(TORCH_XLA_HEADER_PACKAGES xla-cpu-pjrt==0.0.1 jaxlib==0.10.2)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -P "${CMAKE_CURRENT_LIST_DIR}/locate_packages.py"
  OUTPUT_VARIABLE located OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" located "${located}")
foreach(line IN LISTS located)
  string(REGEX MATCH "^([A-Z_]+)=(.*)$" line "${line}")
  set(${CMAKE_MATCH_1}_PACKAGE_DIR "${CMAKE_MATCH_2}")
endforeach()

# Sets `variable` to the first folder that holds `header`. `pip install --no-build-isolation` may run
# where the wheels with the headers are not installed; pip then fetches them into the build folder.
function(torch_xla_find_header variable header package folder_in_target)
  set(headers_dir "${CMAKE_BINARY_DIR}/headers")
  set(fetched "${headers_dir}/${folder_in_target}")
  foreach(folder IN ITEMS "${${variable}}" ${ARGN} "${fetched}")
    if(folder AND EXISTS "${folder}/${header}")
      set(${variable} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(${variable})
    message(FATAL_ERROR "${variable}=${${variable}} does not hold ${header}")
  endif()
  list(FILTER TORCH_XLA_HEADER_PACKAGES INCLUDE REGEX "^${package}==")
  message(STATUS "Fetching ${TORCH_XLA_HEADER_PACKAGES} for ${header}")
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m pip install --quiet --no-deps --target "${headers_dir}"
            ${TORCH_XLA_HEADER_PACKAGES}
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT EXISTS "${fetched}/${header}")
    message(FATAL_ERROR "${header} not found: install ${package}, or set ${variable}")
  endif()
  set(${variable} "${fetched}" PARENT_SCOPE)
endfunction()

torch_xla_find_header(PJRT_INCLUDE_DIR pjrt_c_api.h xla-cpu-pjrt
                      xla_plugins/xla_cpu_pjrt/include ${XLA_CPU_PJRT_PACKAGE_DIR}/include)
torch_xla_find_header(FFI_INCLUDE_DIR xla/ffi/api/c_api.h jaxlib jaxlib/include
                      ${JAXLIB_PACKAGE_DIR}/include)

add_library(torch_xla_pjrt_api INTERFACE)
target_include_directories(torch_xla_pjrt_api SYSTEM INTERFACE "${PJRT_INCLUDE_DIR}")
add_library(torch_xla_ffi_api INTERFACE)
target_include_directories(torch_xla_ffi_api SYSTEM INTERFACE "${FFI_INCLUDE_DIR}")

# The library that the C++ tests load; empty without the wheel.
set(XLA_CPU_PLUGIN "")
if(XLA_CPU_PJRT_PACKAGE_DIR)
  set(XLA_CPU_PLUGIN "${XLA_CPU_PJRT_PACKAGE_DIR}/xla_cpu_pjrt.so")
endif()

if(NOT TORCH_XLA_WITH_TORCH)
  return()
endif()

if(NOT TORCH_PACKAGE_DIR)
  message(FATAL_ERROR "PyTorch is not installed for ${Python_EXECUTABLE}; "
                      "install torch, or set TORCH_XLA_WITH_TORCH=OFF")
endif()
include(cmake/torch_package.cmake)
torch_xla_read_torch_version(TORCH_XLA_TORCH_VERSION "${TORCH_PACKAGE_DIR}")
message(STATUS "Building for torch ${TORCH_XLA_TORCH_VERSION}: ${TORCH_PACKAGE_DIR}")
if(TORCH_XLA_TORCH_VERSION VERSION_LESS TORCH_XLA_OLDEST_TORCH)
  message(FATAL_ERROR "torch must be ${TORCH_XLA_OLDEST_TORCH} or newer, found ${TORCH_XLA_TORCH_VERSION}")
elseif(NOT TORCH_XLA_TORCH_VERSION VERSION_LESS TORCH_XLA_UNTESTED_TORCH)
  message(WARNING "torch ${TORCH_XLA_TORCH_VERSION} is newer than those that are supported: see docs/dev/new_torch.md")
endif()

torch_xla_add_torch(torch_xla_torch "${TORCH_PACKAGE_DIR}" torch_cpu c10)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Of c10::IValue's destructor, inlined at -O1, GCC 12 says so without reason.
  target_compile_options(torch_xla_torch INTERFACE -Wno-stringop-overflow)
endif()
# pybind11 comes with torch's headers.
torch_xla_add_torch(torch_xla_torch_python "${TORCH_PACKAGE_DIR}" torch_python)
target_link_libraries(torch_xla_torch_python INTERFACE torch_xla_torch)
