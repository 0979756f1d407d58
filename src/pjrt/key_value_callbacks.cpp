// PJRT's key-value callbacks over a KeyValueStore. No exception leaves them: each becomes an error
// that the plugin makes for us.
#include "pjrt/key_value_callbacks.h"

#include <algorithm>

namespace torch_xla::pjrt {
namespace {

PJRT_Error* report(PJRT_CallbackError* make_error, ErrorCode code, std::string_view message) {
  return (*make_error)(static_cast<PJRT_Error_Code>(code), message.data(), message.size());
}

template <typename Body>
PJRT_Error* report_exceptions(PJRT_CallbackError* make_error, Body&& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    return report(make_error, error.code(), error.message());
  } catch (const std::exception& error) {
    return report(make_error, ErrorCode::kInternal, error.what());
  } catch (...) {
    return report(make_error, ErrorCode::kInternal, "unknown exception in the key-value store");
  }
}

template <typename Args>
void return_value(Args* args, const std::string& value) {
  args->value = new char[value.size()];
  args->value_size = value.size();
  args->value_deleter_callback = [](char* chars) { delete[] chars; };
  std::copy(value.begin(), value.end(), args->value);
}

template <typename Args>
KeyValueStore& store_of(Args* args) {
  return *static_cast<KeyValueStore*>(args->user_arg);
}

PJRT_Error* get(PJRT_KeyValueGetCallback_Args* args) {
  return report_exceptions(args->callback_error, [&]() -> PJRT_Error* {
    const std::string_view key(args->key, args->key_size);
    return_value(args, store_of(args).get(key, std::chrono::milliseconds(args->timeout_in_ms)));
    return nullptr;
  });
}

PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* args) {
  return report_exceptions(args->callback_error, [&]() -> PJRT_Error* {
    const std::string_view key(args->key, args->key_size);
    const std::optional<std::string> value = store_of(args).try_get(key);
    if (!value) return report(args->callback_error, ErrorCode::kNotFound, key);
    return_value(args, *value);
    return nullptr;
  });
}

PJRT_Error* put(PJRT_KeyValuePutCallback_Args* args) {
  return report_exceptions(args->callback_error, [&]() -> PJRT_Error* {
    store_of(args).put({args->key, args->key_size}, {args->value, args->value_size});
    return nullptr;
  });
}

}  // namespace

void set_key_value_callbacks(KeyValueStore& store, PJRT_Client_Create_Args& args) {
  args.kv_get_callback = &get;
  args.kv_get_user_arg = &store;
  args.kv_put_callback = &put;
  args.kv_put_user_arg = &store;
  if (store.try_get) {
    args.kv_try_get_callback = &try_get;
    args.kv_try_get_user_arg = &store;
  }
}

}  // namespace torch_xla::pjrt
