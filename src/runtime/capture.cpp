// Who is capturing, and the errors of what may not be done meanwhile.
#include "runtime/capture.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

// Captures and barriers exclude each other, but not their like.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> num_captures{0};  // written under `mutex`
  int num_barriers = 0;              // under `mutex`
};

State& state() {
  static auto* const instance = new State();
  return *instance;
}

thread_local int depth = 0;
thread_local bool runs_are_forbidden = false;

}  // namespace

CaptureScope::CaptureScope() : thread_(&depth) {
  std::unique_lock lock(state().mutex);
  state().changed.wait(lock, [] { return state().num_barriers == 0; });
  state().num_captures.fetch_add(1);
  ++depth;
}

CaptureScope::~CaptureScope() {
  // Freed in another thread, it can only let go of the process's count.
  if (thread_ == &depth) --depth;
  {
    const std::lock_guard lock(state().mutex);
    state().num_captures.fetch_sub(1);
  }
  state().changed.notify_all();
}

bool is_capturing() { return state().num_captures.load(std::memory_order_relaxed) > 0; }

BarrierScope::BarrierScope() {
  base::check(depth == 0,
              "torch_xla.sync: a barrier inside of a function that is being captured (for a loop, "
              "a branch, torch.compile or assume_pure); put it outside");
  std::unique_lock lock(state().mutex);
  state().changed.wait(lock, [] { return state().num_captures.load() == 0; });
  ++state().num_barriers;
}

BarrierScope::~BarrierScope() {
  {
    const std::lock_guard lock(state().mutex);
    --state().num_barriers;
  }
  state().changed.notify_all();
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
