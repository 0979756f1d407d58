// What a tensor's numbers are kept as on the device, where the settings `XLA_USE_BF16` and the like
// ask for another dtype than the tensor reports. Tensors and the lazy graph know reported dtypes
// alone; arrays, and the programs between them, have stored ones.
#pragma once

#include "base/dtype.h"
#include "base/shape.h"

namespace torch_xla::base {

// The settings are read once, at the first call: arrays that exist must stay what they are.
DType stored_dtype(DType reported);
Shape stored_shape(const Shape& reported);
// False when every dtype is stored as itself.
bool stores_other_dtypes();

}  // namespace torch_xla::base
