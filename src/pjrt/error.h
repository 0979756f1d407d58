// The one exception of this folder: a failure that a PJRT plugin reported, or that made it
// unusable. `code` mirrors the absl status codes that PJRT uses, `call` names the C API function
// that failed. `api.h` has the converter that makes it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace torch_xla::pjrt {

enum class ErrorCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The code as absl prints it: "RESOURCE_EXHAUSTED".
std::string_view to_string(ErrorCode code);

// Its kind is kOutOfMemory for RESOURCE_EXHAUSTED, and for an INTERNAL error that says so;
// kUnimplemented for UNIMPLEMENTED; else kRuntime.
// `what()` reads "PJRT_Client_Compile: INVALID_ARGUMENT: <the plugin's message>".
class Error : public base::Error {
 public:
  Error(ErrorCode code, std::string call, std::string message);

  ErrorCode code() const { return code_; }
  // The C API function that failed, or that reported the failure of earlier asynchronous work.
  const std::string& call() const { return call_; }
  // The plugin's own words.
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_;
  std::string call_;
  std::string message_;
};

}  // namespace torch_xla::pjrt
