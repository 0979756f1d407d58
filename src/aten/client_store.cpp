// The calls of a plugin's key-value store as those of c10d's.
#include "aten/client_store.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace torch_xla::aten {
namespace {

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string await(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  try {
    store.wait({key}, timeout);
  } catch (const c10::Error& error) {
    base::fail(
        base::ErrorKind::kRuntime,
        "other processes of the job did not start their devices: ", error.what_without_backtrace());
  }
  return text_of(store.get(key));
}

}  // namespace

decltype(runtime::PluginSpec::store) meeting_in(c10::intrusive_ptr<c10d::Store> store) {
  using Store = decltype(runtime::PluginSpec::store)::value_type;
  return Store{[store](std::string_view key, std::chrono::milliseconds timeout) {
                 return await(*store, std::string(key), timeout);
               },
               [store](std::string_view key) -> std::optional<std::string> {
                 const std::string name(key);
                 if (!store->check({name})) return std::nullopt;
                 return text_of(store->get(name));
               },
               [store](std::string_view key, std::string_view value) {
                 store->set(std::string(key), bytes_of(value));
               }};
}

}  // namespace torch_xla::aten
