# What needs torch: the folder aten, libtorch_xla.so of all folders (usable from C++ without Python),
# and the extension module _XLAC. Both libraries are installed into the package torch_xla.

torch_xla_add_layer(aten base hlo graph ops pjrt runtime)
if(NOT TARGET torch_xla_aten)
  return()
endif()
target_link_libraries(torch_xla_aten PRIVATE torch_xla_torch)
if(EXISTS "${PROJECT_SOURCE_DIR}/src/aten/pch.h")
  target_precompile_headers(torch_xla_aten PRIVATE "${PROJECT_SOURCE_DIR}/src/aten/pch.h")
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(torch_xla_aten PRIVATE -fpch-preprocess)  # ccache asks for it
  endif()
endif()

# In the package the libraries lie beside each other, and torch's in the package beside that.
set(package_rpath "$ORIGIN;$ORIGIN/../torch/lib")

add_library(torch_xla SHARED)
target_link_libraries(torch_xla
  PRIVATE torch_xla_flags ${torch_xla_closure_aten} torch_xla_torch ${CMAKE_DL_LIBS})
set_target_properties(torch_xla PROPERTIES INSTALL_RPATH "${package_rpath}")
install(TARGETS torch_xla LIBRARY DESTINATION torch_xla)
set(package_targets torch_xla)

file(GLOB python_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/python/*.cpp")
if(python_sources)
  python_add_library(_XLAC MODULE WITH_SOABI ${python_sources})
  target_compile_definitions(_XLAC PRIVATE "TORCH_XLA_VERSION=\"${PROJECT_VERSION}\"")
  target_link_libraries(_XLAC PRIVATE torch_xla_flags torch_xla torch_xla_torch_python)
  set_target_properties(_XLAC PROPERTIES INSTALL_RPATH "${package_rpath}")
  install(TARGETS _XLAC LIBRARY DESTINATION torch_xla)
  list(APPEND package_targets _XLAC)
endif()

# A mismatch is seen before the libraries are loaded.
set(built_for_folder "${PROJECT_BINARY_DIR}")
if(TORCH_XLA_INPLACE)
  set(built_for_folder "${PROJECT_SOURCE_DIR}/python/torch_xla")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/built_for.py.in" "${built_for_folder}/_built_for.py" @ONLY)
install(FILES "${built_for_folder}/_built_for.py" DESTINATION torch_xla)

if(TORCH_XLA_INPLACE)
  set_target_properties(${package_targets} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_SOURCE_DIR}/python/torch_xla")
endif()
