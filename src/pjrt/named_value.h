// Named values: what plugins take as options and report as attributes and costs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace torch_xla::pjrt {

using NamedValue = std::variant<std::string, bool, std::int64_t, float, std::vector<std::int64_t>>;
using NamedValues = std::map<std::string, NamedValue>;

}  // namespace torch_xla::pjrt
