// The boundary where our exceptions become PyTorch's.
#pragma once

#include <string_view>

#include "base/error.h"

namespace torch_xla::aten {

// Throws the exception that PyTorch users expect for the error's kind: c10::OutOfMemoryError,
// NotImplementedError, IndexError, TypeError, ValueError, else c10::Error (RuntimeError).
[[noreturn]] void throw_as_torch(const base::Error& error, std::string_view op = {});

// Calls `body` and translates what it throws.
template <typename F>
auto translating(F&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const base::Error& error) {
    throw_as_torch(error);
  }
}

}  // namespace torch_xla::aten
