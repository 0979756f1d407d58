// The hooks, and waiting for a plugin's event a moment at a time: its own call has no time limit.
#include "runtime/interruption.h"

#include <atomic>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

// Each by itself: a compilation that was left to the background ends when it ends.
std::atomic<bool (*)()> is_interruptible_hook{nullptr};
std::atomic<void (*)()> check_hook{nullptr};
std::atomic<void (*)()> after_wait_hook{nullptr};
std::atomic<std::uint64_t> interruption_count{0};

}  // namespace

void set_interruption_hooks(InterruptionHooks hooks) {
  is_interruptible_hook.store(hooks.is_interruptible);
  check_hook.store(hooks.check);
  after_wait_hook.store(hooks.after_wait);
}

bool is_interruptible() {
  const auto hook = is_interruptible_hook.load(std::memory_order_acquire);
  return hook != nullptr && hook();
}

void check_interruption() {
  try {
    if (const auto hook = check_hook.load()) hook();
  } catch (...) {
    interruption_count.fetch_add(1);
    throw;
  }
}

void after_wait() {
  if (const auto hook = after_wait_hook.load()) hook();
}

std::uint64_t num_interruptions() { return interruption_count.load(); }

void Occurrence::set() {
  const std::lock_guard lock(mutex_);
  is_set_ = true;
  // Under the lock: who waits may destroy this as soon as it is free.
  condition_.notify_all();
}

void Occurrence::wait_interruptibly() {
  std::unique_lock lock(mutex_);
  runtime::wait_interruptibly(condition_, lock, [this] { return is_set_; });
}

void await_interruptibly(const pjrt::Event& event) {
  if (is_interruptible()) {
    const auto end = std::make_shared<Occurrence>();
    bool has_callbacks = true;
    try {
      event.on_ready([end](const auto&) { end->set(); });
    } catch (const base::Error&) {
      has_callbacks = false;  // an old plugin
    }
    if (has_callbacks) end->wait_interruptibly();
  }
  event.await();
}

}  // namespace torch_xla::runtime
