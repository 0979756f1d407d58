// The end of asynchronous work on a device.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "pjrt/error.h"

struct PJRT_Api;
struct PJRT_Event;

namespace torch_xla::pjrt {

// Move-only. May outlive the client whose work it stands for. Thread-safe. A default-constructed or
// moved-from event stands for no work: it is ready and carries no error.
class Event {
 public:
  Event() = default;
  // Takes ownership of `event`. `call` names the C API function that made it and is part of the
  // errors that it reports; it must be a string literal.
  Event(const PJRT_Api* api, PJRT_Event* event, const char* call);
  Event(Event&&) noexcept = default;
  Event& operator=(Event&&) noexcept = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() = default;

  // Blocks until the work is done; throws Error if it failed. May be called more than once.
  void await() const;
  // True when the work has ended, well or not. Never blocks.
  bool is_ready() const;
  // Calls `callback` once, with the error of failed work, when the work has ended: on a thread of
  // the plugin, or before this returns if it has ended already. The callback must not throw, block,
  // or release the last reference to a client. The event may be destroyed before it runs.
  void on_ready(std::function<void(std::optional<Error>)> callback) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the callbacks that have not run yet
};

}  // namespace torch_xla::pjrt
