// One-line messages to the user on stderr, each written whole, so that lines of several threads do
// not mix. Errors are exceptions (base/error.h); this is for what a program survives.
#pragma once

#include <string_view>

namespace torch_xla::base {

// Writes "torch_xla: <message>".
void log(std::string_view message);

// Writes "torch_xla: warning: <message>".
void warn(std::string_view message);

// Like `warn`, but says the same message only once in the life of the process.
void warn_once(std::string_view message);

// Like `warn`, unless something about this topic was said before. For what may go wrong with each
// of many things.
void warn_once(std::string_view topic, std::string_view message);

}  // namespace torch_xla::base
