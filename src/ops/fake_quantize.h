// The operators of quantization-aware training.
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

void register_fake_quantize(Registry& m);

}  // namespace torch_xla::ops
