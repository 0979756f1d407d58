// The states of an array, the errors of asynchronous work, and the list for shutdowns.
#include "runtime/array.h"

#include <utility>

#include "base/error.h"
#include "runtime/device.h"

namespace torch_xla::runtime {
namespace {

std::string failure_text(const LaunchDescription& launch, const char* what) {
  std::string text = base::str("running ", launch.program);
  if (!launch.where.empty()) text += base::str(" (started at ", launch.where, ")");
  text += base::str(" failed: ", what, "; its ", launch.num_outputs, " results are lost");
  if (launch.num_donated > 0) {
    text += base::str(", and so are ", launch.num_donated, " inputs that they were to replace");
  }
  return text;
}

}  // namespace

std::exception_ptr launch_error(const LaunchDescription& launch, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const base::Error& e) {
    return std::make_exception_ptr(base::Error(e.kind(), failure_text(launch, e.what())));
  } catch (const std::exception& e) {
    return std::make_exception_ptr(
        base::Error(base::ErrorKind::kRuntime, failure_text(launch, e.what())));
  }
}

Array::Array(Device& device, base::Shape shape) : graph::Data(std::move(shape)), device_(&device) {
  device_->arrays().add(*this);
}

Array::~Array() { device_->arrays().remove(*this); }

ArrayPtr Array::make_pending(Device& device, base::Shape shape) {
  return ArrayPtr(new Array(device, std::move(shape)));
}

ArrayPtr Array::make_launched(Device& device, pjrt::Buffer buffer, base::Shape shape) {
  ArrayPtr array = make_pending(device, std::move(shape));
  std::vector<pjrt::Buffer> buffers;
  buffers.push_back(std::move(buffer));
  array->set_launched(std::move(buffers), nullptr);
  return array;
}

void Array::wait_launched() const {
  int state = state_.load(std::memory_order_acquire);
  while (state == kPending) {
    state_.wait(kPending, std::memory_order_acquire);
    state = state_.load(std::memory_order_acquire);
  }
  if (state == kFailed) std::rethrow_exception(error_);
}

void Array::wait_ready() const {
  wait_launched();
  for (const pjrt::Buffer& shard : buffers_) {
    try {
      shard.ready_event().await();
    } catch (const pjrt::Error& error) {
      raise(error);
    }
  }
}

bool Array::is_ready() const {
  const int state = state_.load(std::memory_order_acquire);
  if (state == kPending) return false;
  if (state == kFailed) return true;
  for (const pjrt::Buffer& shard : buffers_) {
    if (!shard.ready_event().is_ready()) return false;
  }
  return true;
}

const pjrt::Buffer& Array::buffer() const { return buffers().front(); }

const std::vector<pjrt::Buffer>& Array::buffers() const {
  const int state = state_.load(std::memory_order_acquire);
  if (state == kFailed) std::rethrow_exception(error_);
  base::internal_check(state == kLaunched, "the buffer of a pending array was asked for");
  return buffers_;
}

void Array::set_launched(std::vector<pjrt::Buffer> buffers, LaunchDescriptionPtr launch) {
  buffers_ = std::move(buffers);
  launch_ = std::move(launch);
  state_.store(kLaunched, std::memory_order_release);
  state_.notify_all();
}

void Array::set_failed(std::exception_ptr error) {
  error_ = std::move(error);
  state_.store(kFailed, std::memory_order_release);
  state_.notify_all();
}

void Array::raise(const pjrt::Error& error) const {
  if (launch_ == nullptr) throw error;
  std::rethrow_exception(launch_error(*launch_, std::make_exception_ptr(error)));
}

void ArrayList::add(Array& array) {
  const std::lock_guard lock(mutex_);
  array.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &array;
  first_ = &array;
}

void ArrayList::remove(Array& array) {
  const std::lock_guard lock(mutex_);
  if (array.previous_ != nullptr) {
    array.previous_->next_ = array.next_;
  } else {
    first_ = array.next_;
  }
  if (array.next_ != nullptr) array.next_->previous_ = array.previous_;
}

void ArrayList::release_all(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  for (Array* array = first_; array != nullptr; array = array->next_) {
    array->buffers_.clear();
    array->set_failed(error);
  }
}

}  // namespace torch_xla::runtime
