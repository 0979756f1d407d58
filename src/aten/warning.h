// Warnings in Python's sense, at the user's line. TORCH_WARN would add the path that the source had
// on the machine that built it; this adds the path in the tree.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace torch_xla::aten {

// "src/aten/fallback.cpp", of any path that ends with it.
inline const char* path_in_tree(const char* file) {
  const std::size_t start = std::string_view(file).rfind("/src/");
  return start == std::string_view::npos ? file : file + start + 1;
}

inline void warn(const std::string& message,
                 const std::source_location& where = std::source_location::current()) {
  const c10::SourceLocation location = {where.function_name(), path_in_tree(where.file_name()),
                                        static_cast<std::uint32_t>(where.line())};
  c10::warn(c10::Warning(c10::UserWarning(), location, message, /*verbatim=*/false));
}

}  // namespace torch_xla::aten
