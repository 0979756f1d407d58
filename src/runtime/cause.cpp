// The cause of each thread.
#include "runtime/cause.h"

#include <utility>

namespace torch_xla::runtime {
namespace {

std::string& thread_cause() {
  thread_local std::string cause;
  return cause;
}

}  // namespace

const std::string& cause() { return thread_cause(); }

std::string set_cause(std::string cause) { return std::exchange(thread_cause(), std::move(cause)); }

}  // namespace torch_xla::runtime
