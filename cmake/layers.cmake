# One object library torch_xla_<folder> per folder of src/. Object libraries, because lowerings and
# kernels register themselves from static objects that an archive would drop.

# Compiler flags and the include folder of all our own code.
add_library(torch_xla_flags INTERFACE)
target_compile_features(torch_xla_flags INTERFACE cxx_std_20)
target_include_directories(torch_xla_flags INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_options(torch_xla_flags INTERFACE -Wall -Wextra -Wshadow)
if(TORCH_XLA_WERROR)
  target_compile_options(torch_xla_flags INTERFACE -Werror)
endif()

set(sanitizer_flags_address -fsanitize=address,undefined -fno-sanitize-recover=undefined)
set(sanitizer_flags_thread -fsanitize=thread)
if(TORCH_XLA_SANITIZE)
  if(NOT DEFINED sanitizer_flags_${TORCH_XLA_SANITIZE})
    message(FATAL_ERROR "TORCH_XLA_SANITIZE must be address or thread, got ${TORCH_XLA_SANITIZE}")
  endif()
  set(sanitizer_flags ${sanitizer_flags_${TORCH_XLA_SANITIZE}})
  target_compile_options(torch_xla_flags INTERFACE ${sanitizer_flags} -fno-omit-frame-pointer)
  target_link_options(torch_xla_flags INTERFACE ${sanitizer_flags})
endif()

# torch_xla_add_layer(<folder> [folders below it]): adds torch_xla_<folder>, and sets
# torch_xla_closure_<folder> to the object libraries a program needs to use it. A folder without
# sources adds nothing.
function(torch_xla_add_layer folder)
  set(closure "")
  foreach(below IN LISTS ARGN)
    list(APPEND closure ${torch_xla_closure_${below}})
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp")
  if(sources)
    add_library(torch_xla_${folder} OBJECT ${sources})
    set_target_properties(torch_xla_${folder} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(torch_xla_${folder} PUBLIC torch_xla_flags Threads::Threads)
    list(APPEND closure torch_xla_${folder})
  endif()
  list(REMOVE_DUPLICATES closure)
  set(torch_xla_closure_${folder} ${closure} PARENT_SCOPE)
endfunction()

torch_xla_add_layer(base)
torch_xla_add_layer(pjrt base)
torch_xla_add_layer(hlo base)
torch_xla_add_layer(graph base)
torch_xla_add_layer(rows base)
torch_xla_add_layer(ops base hlo graph)
torch_xla_add_layer(runtime base hlo graph ops pjrt)

# The sources *_rows.cpp again for processors with other instructions: src/rows/choice.cpp asks which
# there are. They stand behind the others in the closure, so that of what both hold by the same name
# (templates of the standard library) the linker takes what runs everywhere.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  file(GLOB row_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/rows/*_rows.cpp")
  add_library(torch_xla_rows_avx2 OBJECT ${row_sources})
  set_target_properties(torch_xla_rows_avx2 PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(torch_xla_rows_avx2 PUBLIC torch_xla_flags)
  target_compile_options(torch_xla_rows_avx2 PRIVATE -mavx2 -mfma -mf16c)
  target_compile_definitions(torch_xla_rows_avx2 PRIVATE TORCH_XLA_ROWS=avx2)
  target_compile_definitions(torch_xla_rows PUBLIC TORCH_XLA_AVX2_ROWS)
  list(APPEND torch_xla_closure_rows torch_xla_rows_avx2)
endif()

if(TARGET torch_xla_pjrt)
  target_link_libraries(torch_xla_pjrt
    PRIVATE torch_xla_pjrt_api torch_xla_ffi_api ${CMAKE_DL_LIBS})
endif()
