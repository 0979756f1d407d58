// How long the formula behind a value is that XLA would compute in one loop.
#pragma once

#include <cstddef>
#include <string_view>

#include "hlo/builder.h"

namespace torch_xla::hlo {

// Whether an elementwise operation gives the value, and at least `length` elementwise operations,
// each counted once, lead to it from values that XLA keeps in memory: parameters, products,
// calls. Numbers that are no arrays don't count.
bool ends_chain(const Value& value, std::size_t length);

// Whether XLA computes an operation of this name in the loop that reads its result, where it can.
bool is_fused(std::string_view name);

}  // namespace torch_xla::hlo
