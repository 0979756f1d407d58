// What the user tells the plugin when its client is created.
#pragma once

#include <string_view>

#include "pjrt/named_value.h"

namespace torch_xla::runtime {

// `name=value`, separated by spaces. `true` and `false` are booleans, `3` is an integer, `0.5` a
// float, `[0,1]` a list of integers, and the rest are strings, as the plugins tell them apart.
// Throws a value error that names what is not of this form.
pjrt::NamedValues parse_create_options(std::string_view text);

}  // namespace torch_xla::runtime
