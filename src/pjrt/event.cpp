// Waiting for a plugin's event, and being called back by it.
#include "pjrt/event.h"

#include <utility>

#include "pjrt/api.h"
#include "pjrt/live_objects.h"

namespace torch_xla::pjrt {

struct Event::State {
  State(const PJRT_Api* the_api, PJRT_Event* the_event, const char* the_call)
      : api(the_api), event(the_event), call(the_call) {
    live_counters().events.fetch_add(1, std::memory_order_relaxed);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    auto args = PJRT_MAKE(PJRT_Event_Destroy_Args);
    args.event = event;
    PJRT_CALL_NOEXCEPT(api, PJRT_Event_Destroy, args);
    live_counters().events.fetch_sub(1, std::memory_order_relaxed);
  }

  const PJRT_Api* api;
  PJRT_Event* event;
  const char* call;
};

namespace {

// Plugins read the event while they run its callbacks, so each callback holds on to it.
template <typename State>
struct PendingCallback {
  std::shared_ptr<State> state;
  std::function<void(std::optional<Error>)> callback;

  static void run(PJRT_Error* error, void* user_arg) noexcept {
    const std::unique_ptr<PendingCallback> self(static_cast<PendingCallback*>(user_arg));
    std::optional<Error> failure;
    if (error != nullptr) failure = take_error(self->state->api, error, self->state->call);
    self->callback(std::move(failure));
  }
};

}  // namespace

Event::Event(const PJRT_Api* api, PJRT_Event* event, const char* call)
    : state_(event == nullptr ? nullptr : std::make_shared<State>(api, event, call)) {}

void Event::await() const {
  if (state_ == nullptr) return;
  const PJRT_Api* api = state_->api;
  if (!has_function(api, &PJRT_Api::PJRT_Event_Await)) {
    throw_plugin_too_old(api, "PJRT_Event_Await");
  }
  auto args = PJRT_MAKE(PJRT_Event_Await_Args);
  args.event = state_->event;
  // Not PJRT_CALL: the failure is that of the work, and carries the name of the call that began it.
  PJRT_Error* error = api->PJRT_Event_Await(&args);
  if (error != nullptr) throw take_error(api, error, state_->call);
}

bool Event::is_ready() const {
  if (state_ == nullptr) return true;
  auto args = PJRT_MAKE(PJRT_Event_IsReady_Args);
  args.event = state_->event;
  PJRT_CALL(state_->api, PJRT_Event_IsReady, args);
  return args.is_ready;
}

void Event::on_ready(std::function<void(std::optional<Error>)> callback) const {
  if (state_ == nullptr) {
    callback(std::nullopt);
    return;
  }
  using Pending = PendingCallback<State>;
  auto pending = std::make_unique<Pending>(Pending{state_, std::move(callback)});
  const std::shared_ptr<State> state = state_;  // the callback may destroy this event
  auto args = PJRT_MAKE(PJRT_Event_OnReady_Args);
  args.event = state->event;
  args.callback = &Pending::run;
  args.user_arg = pending.get();
  PJRT_CALL(state->api, PJRT_Event_OnReady, args);
  static_cast<void>(pending.release());  // it frees itself after running
}

}  // namespace torch_xla::pjrt
