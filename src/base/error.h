// Errors. `check` is for what a user did, `internal_check` for our own mistakes; both throw. The
// `aten` boundary translates an Error's kind once to the exception type that PyTorch users expect.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace torch_xla::base {

enum class ErrorKind {
  kInvalidArgument,  // RuntimeError
  kIndex,            // IndexError
  kType,             // TypeError
  kValue,            // ValueError
  kUnimplemented,    // NotImplementedError
  kRefusedBool,      // RuntimeError, in newer versions of PyTorch NotImplementedError
  kOutOfMemory,      // torch.OutOfMemoryError
  kRuntime,          // RuntimeError: the device or the plugin failed
  kInternal,         // RuntimeError that asks for a bug report
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// The arguments, printed with operator<< one after another.
template <typename... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, const Args&... args) {
  throw Error(kind, str(args...));
}

// Throws an Error of kind kInvalidArgument unless `condition`. The message reads
// "op: what must hold, got what".
template <typename... Args>
void check(bool condition, const Args&... message) {
  if (!condition) [[unlikely]]
    fail(ErrorKind::kInvalidArgument, message...);
}

template <typename... Args>
void internal_check(bool condition, const Args&... message) {
  if (!condition) [[unlikely]] {
    fail(ErrorKind::kInternal, "torch_xla internal error (please report it): ", message...);
  }
}

}  // namespace torch_xla::base
