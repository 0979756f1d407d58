// Makes view tensors: finds or makes the memo entries of a view step and of its inverse.
#pragma once

#include <ATen/DimVector.h>
#include <c10/util/SmallVector.h>

#include <initializer_list>
#include <vector>

#include "aten/tensor.h"

namespace torch_xla::aten {

// An internal view operator and its inverse, by the names that the registry has.
struct ViewOperator {
  explicit ViewOperator(const char* name)
      : forward{.name = std::string("view:") + name, .is_view = true},
        inverse{.name = std::string("view:") + name + ":inverse", .is_write = true} {}
  graph::Op forward;
  graph::Op inverse;
};

// A constant attribute of a view step: an integer, a list of integers or a dtype. Refers to the
// caller's memory, so that a call the memo knows allocates nothing for it.
class ViewConstant {
 public:
  ViewConstant(std::int64_t value)
      : kind_(kInteger), value_(value) {}  // NOLINT(google-explicit-constructor)
  ViewConstant(const at::DimVector& dims)
      : kind_(kDims), dims_(dims) {}  // NOLINT(google-explicit-constructor)
  ViewConstant(at::IntArrayRef dims)
      : kind_(kDims), dims_(dims) {}  // NOLINT(google-explicit-constructor)
  ViewConstant(base::DType dtype)     // NOLINT(google-explicit-constructor)
      : kind_(kDType), value_(static_cast<std::int64_t>(dtype)) {}
  graph::Attribute attribute() const;
  void add_to(c10::SmallVectorImpl<std::uint64_t>& words) const;

 private:
  enum Kind { kInteger, kDims, kDType };
  Kind kind_;
  std::int64_t value_ = 0;
  at::IntArrayRef dims_;
};

// One view step: which operator, and its attributes in the order of the lowering's parameters. A
// promotable one (a start or an index) is left out of the constants and travels in the slot.
struct ViewStep {
  const ViewOperator& op;
  std::initializer_list<ViewConstant> constants;
  int slot_position = -1;  // where the promotable stands among the parameters; -1: none
  std::int64_t slot = 0;
};

// The type that a view step gives.
struct ViewType {
  base::DType dtype;
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  std::int64_t storage_offset;
};

// What a step is made on: memory, seen through the steps before.
struct ViewOrigin {
  graph::ViewRef view;
  const graph::TensorType* type = nullptr;
};
ViewOrigin origin_of(const TensorImpl& self);

// The last step behind a view, for one that follows to be made of both: else loops that make views
// of views would recompile with each. Null if `self` was not made by `op`.
class LastStep {
 public:
  LastStep(const TensorImpl& self, const ViewOperator& op);
  explicit operator bool() const { return view_ != nullptr; }
  ViewOrigin origin() const { return {view_->parent(), view_->forward().operands[0]}; }
  std::int64_t slot() const { return static_cast<std::int64_t>(view_->slots().front()); }
  // Constants by their places among the lowering's parameters.
  std::int64_t integer(std::size_t parameter) const;
  const base::Dims& dims(std::size_t parameter) const;

 private:
  const graph::View* view_ = nullptr;
};

at::Tensor make_view(const TensorImpl& self, const ViewStep& step, const ViewType& type);
// A view of the memory of `self` by a step on another of its views.
at::Tensor make_view(const TensorImpl& self, const ViewOrigin& origin, const ViewStep& step,
                     const ViewType& type);

}  // namespace torch_xla::aten
