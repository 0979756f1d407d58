// The scope in which waits run.
#include "aten/blocking.h"

#include <utility>

namespace torch_xla::aten {
namespace {

std::function<void(const std::function<void()>&)>& blocking_scope() {
  static auto* const scope = new std::function<void(const std::function<void()>&)>();
  return *scope;
}

}  // namespace

void set_blocking_scope(std::function<void(const std::function<void()>&)> scope) {
  blocking_scope() = std::move(scope);
}

void blocking(const std::function<void()>& wait) {
  if (blocking_scope()) {
    blocking_scope()(wait);
  } else {
    wait();
  }
}

}  // namespace torch_xla::aten
