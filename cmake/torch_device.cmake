# The libraries of the package torch_xla, which lie in its folder lib: libtorch_xla_core.so of all
# folders without torch, and for each minor version of torch, in a folder of its own, libtorch_xla.so
# of the folder aten (usable from C++ without Python) and the extension module _XLAC.

torch_xla_add_layer(dfti base)
torch_xla_add_layer(aten base hlo graph rows dfti ops pjrt runtime)
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

# python/torch_xla/_presence.py looks for these folders.
set(core_folder lib)
set(torch_folder "lib/torch-${TORCH_XLA_TORCH_VERSION}")

add_library(torch_xla_core SHARED)
target_link_libraries(torch_xla_core
  PRIVATE torch_xla_flags ${torch_xla_closure_runtime} ${torch_xla_closure_rows} ${CMAKE_DL_LIBS})
install(TARGETS torch_xla_core LIBRARY DESTINATION "torch_xla/${core_folder}")

add_library(torch_xla SHARED)
target_link_libraries(torch_xla
  PRIVATE torch_xla_flags torch_xla_aten torch_xla_dfti torch_xla_core torch_xla_torch)
set(torch_targets torch_xla)

file(GLOB python_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/python/*.cpp")
if(python_sources)
  python_add_library(_XLAC MODULE WITH_SOABI ${python_sources})
  target_compile_definitions(_XLAC PRIVATE "TORCH_XLA_VERSION=\"${PROJECT_VERSION}\"")
  target_link_libraries(_XLAC
    PRIVATE torch_xla_flags torch_xla torch_xla_core torch_xla_torch_python)
  list(APPEND torch_targets _XLAC)
endif()
# torch's own libraries lie in the package beside torch_xla.
set_target_properties(${torch_targets} PROPERTIES
  INSTALL_RPATH "$ORIGIN;$ORIGIN/..;$ORIGIN/../../../torch/lib")
install(TARGETS ${torch_targets} LIBRARY DESTINATION "torch_xla/${torch_folder}")

set(built_for_folder "${PROJECT_BINARY_DIR}")
if(TORCH_XLA_INPLACE)
  set(built_for_folder "${PROJECT_SOURCE_DIR}/python/torch_xla")
  set_target_properties(torch_xla_core PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${built_for_folder}/${core_folder}")
  set_target_properties(${torch_targets} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${built_for_folder}/${torch_folder}")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/built_for.py.in" "${built_for_folder}/_built_for.py" @ONLY)
install(FILES "${built_for_folder}/_built_for.py" DESTINATION torch_xla)

# Programs and pip ask for the version of torch_xla by the name that they import. Where it is there,
# pip does not install the other project of that name for those that require any torch_xla.
configure_file("${PROJECT_SOURCE_DIR}/cmake/PKG-INFO.in" "${PROJECT_BINARY_DIR}/PKG-INFO" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/PKG-INFO" DESTINATION "torch_xla-${PROJECT_VERSION}.egg-info")

# For programs in C++: find_package(torch_xla).
include(CMakePackageConfigHelpers)
set(config_version "${PROJECT_BINARY_DIR}/torch_xla-config-version.cmake")
write_basic_package_version_file("${config_version}" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_SOURCE_DIR}/cmake/torch_xla-config.cmake" "${config_version}"
              "${PROJECT_SOURCE_DIR}/cmake/torch_package.cmake"
        DESTINATION torch_xla/lib/cmake/torch_xla)
install(FILES "${PROJECT_SOURCE_DIR}/src/aten/barrier.h" DESTINATION torch_xla/include/torch_xla/aten)
