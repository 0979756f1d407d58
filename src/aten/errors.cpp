// Translation of error kinds.
#include "aten/errors.h"

#include <c10/util/Exception.h>

#include "aten/torch_differences.h"
#include "ops/lower.h"

namespace torch_xla::aten {

void throw_as_torch(const base::Error& error, std::string_view op) {
  // Checks are worded as PyTorch words them. What its words do not tell is the operator that
  // StableHLO, the device or we ourselves failed at.
  const bool is_worded = error.kind() == base::ErrorKind::kInvalidArgument ||
                         error.kind() == base::ErrorKind::kRefusedBool ||
                         error.kind() == base::ErrorKind::kType ||
                         error.kind() == base::ErrorKind::kValue;
  const std::string text = op.empty() || (is_worded && !ops::is_constraint_error(error))
                               ? std::string(error.what())
                               : c10::str("aten::", op, ": ", error.what());
  switch (error.kind()) {
    case base::ErrorKind::kOutOfMemory: TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case base::ErrorKind::kUnimplemented: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case base::ErrorKind::kRefusedBool:
      TORCH_CHECK_NOT_IMPLEMENTED(!kBoolsAreNotImplemented, text);
      TORCH_CHECK(false, text);
    case base::ErrorKind::kIndex: TORCH_CHECK_INDEX(false, error.what());
    case base::ErrorKind::kType: TORCH_CHECK_TYPE(false, text);
    case base::ErrorKind::kValue: TORCH_CHECK_VALUE(false, text);
    default: TORCH_CHECK(false, text);
  }
  std::abort();  // every case above throws
}

}  // namespace torch_xla::aten
