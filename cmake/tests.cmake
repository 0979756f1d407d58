# The C++ tests: one program <folder>_test per folder, made of tests/cpp/<folder>_*test*.cpp and run
# by ctest. They build on demand: `cmake --build <dir> --target cpp_tests && ctest --test-dir <dir>`.

enable_testing()
add_custom_target(cpp_tests)

set(test_environment
  XLA_PERSISTENT_CACHE=0
  ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/cpp/lsan.supp:print_suppressions=0"
  UBSAN_OPTIONS=print_stacktrace=1
  TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1)

# A PJRT plugin whose calls fail or hang on demand.
add_library(fake_plugin MODULE EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/cpp/fake_plugin.cpp")
target_link_libraries(fake_plugin
  PRIVATE torch_xla_flags torch_xla_pjrt_api torch_xla_ffi_api Threads::Threads)
add_dependencies(cpp_tests fake_plugin)

# The entry point of all, which alone names this folder, so that compilations of the others are found
# in ccache wherever the sources lie.
set(test_main "${PROJECT_SOURCE_DIR}/tests/cpp/main.cpp")
set_source_files_properties("${test_main}" PROPERTIES COMPILE_DEFINITIONS
  "TORCH_XLA_CPU_PLUGIN=\"${XLA_CPU_PLUGIN}\";TORCH_XLA_FAKE_PLUGIN=\"$<TARGET_FILE:fake_plugin>\"")

# torch_xla_add_test(<folder> [folders it tests with]): adds <folder>_test when the folder has tests
# and sources.
function(torch_xla_add_test folder)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/${folder}_*test*.cpp"
       "${PROJECT_SOURCE_DIR}/tests/cpp/${folder}_test.cpp")
  list(REMOVE_DUPLICATES sources)
  if(NOT sources OR NOT TARGET torch_xla_${folder})
    return()
  endif()
  set(libraries "")
  foreach(tested_with IN LISTS folder ARGN)
    list(APPEND libraries ${torch_xla_closure_${tested_with}})
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  add_executable(${folder}_test EXCLUDE_FROM_ALL ${sources} "${test_main}")
  target_include_directories(${folder}_test PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp")
  target_link_libraries(${folder}_test
    PRIVATE ${libraries} torch_xla_pjrt_api torch_xla_ffi_api ${CMAKE_DL_LIBS})
  add_dependencies(cpp_tests ${folder}_test)
  add_test(NAME ${folder}_test COMMAND ${folder}_test)
  set_tests_properties(${folder}_test PROPERTIES ENVIRONMENT "${test_environment}" TIMEOUT 600)
endfunction()

torch_xla_add_test(base)
torch_xla_add_test(pjrt)
# Programs are checked by what the real plugin computes.
torch_xla_add_test(hlo pjrt)
torch_xla_add_test(graph)
torch_xla_add_test(rows)
torch_xla_add_test(ops pjrt)
torch_xla_add_test(runtime)

# docs/settings.md is generated; the test says when it is out of date.
add_executable(settings_page EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tools/settings_page.cpp")
target_link_libraries(settings_page PRIVATE torch_xla_base)
add_dependencies(cpp_tests settings_page)
add_test(NAME settings_page_is_current
  COMMAND settings_page --check "${PROJECT_SOURCE_DIR}/docs/settings.md")
set_tests_properties(settings_page_is_current PROPERTIES ENVIRONMENT "${test_environment}")
