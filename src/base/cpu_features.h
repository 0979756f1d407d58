// What the processor can do, as the kernel names it.
#pragma once

#include <string>
#include <string_view>

namespace torch_xla::base {

// All names, as one line; empty where there is no such list.
const std::string& cpu_features();
// Whether `name` is among them: "avx512_bf16".
bool has_cpu_feature(std::string_view name);

}  // namespace torch_xla::base
