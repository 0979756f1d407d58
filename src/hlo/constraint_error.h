// Tells the errors of the specification's constraints from all others.
#pragma once

#include <string_view>

#include "base/error.h"

namespace torch_xla::hlo {

// True for an error that an operation of hlo/ops.h threw about its operands: it opens with the
// operation's name.
inline bool is_constraint_error(const base::Error& error) {
  const std::string_view text = error.what();
  return text.starts_with("stablehlo.") || text.starts_with("chlo.");
}

}  // namespace torch_xla::hlo
