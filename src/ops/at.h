// Dimensions are numbered by signed integers, and vectors by unsigned ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla::ops {

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace torch_xla::ops
