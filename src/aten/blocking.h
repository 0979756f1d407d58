// Waits of the calling thread, during which other threads of an interpreter may run.
#pragma once

#include <functional>

namespace torch_xla::aten {

// Runs `wait` without the interpreter's lock; Python sets it, C++ programs need none.
void set_blocking_scope(std::function<void(const std::function<void()>&)> scope);
void blocking(const std::function<void()>& wait);

}  // namespace torch_xla::aten
