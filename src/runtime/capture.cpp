// Who is capturing, and the errors of what may not be done meanwhile.
#include "runtime/capture.h"

#include <typeinfo>
#include <utility>

#include "base/error.h"
#include "runtime/device.h"

namespace torch_xla::runtime {
namespace {

thread_local int depth = 0;
thread_local bool runs_are_forbidden = false;

}  // namespace

CaptureScope::CaptureScope(Device& device) : captures_(device.captures()), thread_(&depth) {
  std::unique_lock lock(captures_.mutex_);
  captures_.changed_.wait(lock, [&] { return captures_.num_barriers_ == 0; });
  captures_.num_captures_.fetch_add(1);
  ++depth;
}

CaptureScope::~CaptureScope() {
  // Freed in another thread, it can only let go of the device's count.
  if (thread_ == &depth) --depth;
  {
    const std::lock_guard lock(captures_.mutex_);
    captures_.num_captures_.fetch_sub(1);
  }
  captures_.changed_.notify_all();
}

BarrierScope::BarrierScope(Device& device) : captures_(device.captures()) {
  base::check(depth == 0,
              "torch_xla.sync: a barrier inside of a function that is being captured (for a loop, "
              "a branch, torch.compile or assume_pure); put it outside");
  std::unique_lock lock(captures_.mutex_);
  captures_.changed_.wait(lock, [&] { return !captures_.is_any(); });
  ++captures_.num_barriers_;
}

BarrierScope::~BarrierScope() {
  {
    const std::lock_guard lock(captures_.mutex_);
    --captures_.num_barriers_;
  }
  captures_.changed_.notify_all();
}

bool set_runs_forbidden(bool is_forbidden) {
  return std::exchange(runs_are_forbidden, is_forbidden);
}

void check_runs_allowed() {
  base::check(!runs_are_forbidden,
              "torch_xla.compile: with full_graph=True everything must be one program, but a value "
              "is read or a barrier stands inside of it");
}

bool can_run() { return depth == 0 && !runs_are_forbidden; }

void check_is_array(const graph::Data& data) {
  base::check(typeid(data) != typeid(Placeholder),
              "the value of an argument, or of what was computed from it, was needed while the "
              "function was being captured (for a loop, a branch, torch.compile or assume_pure), "
              "or after it: there is none; branch with torch.cond and torch.where instead of if, "
              "and return what is needed outside");
}

}  // namespace torch_xla::runtime
