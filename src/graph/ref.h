// An intrusive reference-counted pointer: T has `retain()` and `release()`.
#pragma once

#include <utility>

namespace torch_xla::graph {

template <typename T>
class Ref {
 public:
  Ref() = default;
  // Takes over one reference that the caller holds.
  static Ref adopt(T* pointer) {
    Ref ref;
    ref.pointer_ = pointer;
    return ref;
  }
  static Ref share(T* pointer) {
    if (pointer != nullptr) pointer->retain();
    return adopt(pointer);
  }
  Ref(const Ref& other) : pointer_(other.pointer_) {
    if (pointer_ != nullptr) pointer_->retain();
  }
  Ref(Ref&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Ref() {
    if (pointer_ != nullptr) pointer_->release();
  }

  T* get() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  T* operator->() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  // Gives up the reference without releasing it.
  T* detach() { return std::exchange(pointer_, nullptr); }
  friend bool operator==(const Ref&, const Ref&) = default;

 private:
  T* pointer_ = nullptr;
};

}  // namespace torch_xla::graph
