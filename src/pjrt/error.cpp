// Names of the error codes, and how a code becomes the kind of error that users see.
#include "pjrt/error.h"

#include <utility>

namespace torch_xla::pjrt {
namespace {

base::ErrorKind kind_of(ErrorCode code, std::string_view message) {
  switch (code) {
    case ErrorCode::kResourceExhausted: return base::ErrorKind::kOutOfMemory;
    case ErrorCode::kUnimplemented: return base::ErrorKind::kUnimplemented;
    case ErrorCode::kInternal:
      // What fails after the launch, XLA's CPU client reports as internal: the cause is in words.
      return message.find("Out of memory") != std::string_view::npos ? base::ErrorKind::kOutOfMemory
                                                                     : base::ErrorKind::kRuntime;
    default: return base::ErrorKind::kRuntime;
  }
}

}  // namespace

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk: return "OK";
    case ErrorCode::kCancelled: return "CANCELLED";
    case ErrorCode::kUnknown: return "UNKNOWN";
    case ErrorCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case ErrorCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case ErrorCode::kNotFound: return "NOT_FOUND";
    case ErrorCode::kAlreadyExists: return "ALREADY_EXISTS";
    case ErrorCode::kPermissionDenied: return "PERMISSION_DENIED";
    case ErrorCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case ErrorCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case ErrorCode::kAborted: return "ABORTED";
    case ErrorCode::kOutOfRange: return "OUT_OF_RANGE";
    case ErrorCode::kUnimplemented: return "UNIMPLEMENTED";
    case ErrorCode::kInternal: return "INTERNAL";
    case ErrorCode::kUnavailable: return "UNAVAILABLE";
    case ErrorCode::kDataLoss: return "DATA_LOSS";
    case ErrorCode::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Error::Error(ErrorCode code, std::string call, std::string message)
    : base::Error(kind_of(code, message), base::str(call, ": ", to_string(code), ": ", message)),
      code_(code),
      call_(std::move(call)),
      message_(std::move(message)) {}

}  // namespace torch_xla::pjrt
