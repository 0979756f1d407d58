# PyTorch as its Python package has it, for the build and for find_package(torch_xla). torch's own
# CMake package looks for CUDA, MKL and more that nothing here uses; its headers and libraries are all
# that is needed.

# Sets `variable` to the minor version of the torch whose package is `folder`, as 2.13.
function(torch_xla_read_torch_version variable folder)
  file(STRINGS "${folder}/version.py" line REGEX "^__version__ = ")
  string(REGEX MATCH "[0-9]+[.][0-9]+" version "${line}")
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

# Adds the target `name`: the headers of the torch whose package is `folder`, and of its libraries
# those that follow.
function(torch_xla_add_torch name folder)
  add_library(${name} INTERFACE IMPORTED)
  target_include_directories(${name} SYSTEM INTERFACE
    "${folder}/include" "${folder}/include/torch/csrc/api/include")
  foreach(library IN LISTS ARGN)
    add_library(${name}_${library} SHARED IMPORTED)
    set_target_properties(${name}_${library} PROPERTIES
      IMPORTED_LOCATION "${folder}/lib/lib${library}.so")
    target_link_libraries(${name} INTERFACE ${name}_${library})
  endforeach()
endfunction()
