// Makes view tensors: finds or makes the memo entries of a view step and of its inverse.
#pragma once

#include <initializer_list>
#include <vector>

#include "aten/tensor.h"

namespace torch_xla::aten {

// An internal view operator and its inverse, by the names that the registry has.
struct ViewOperator {
  explicit ViewOperator(const char* name)
      : forward{std::string("view:") + name, true},
        inverse{std::string("view:") + name + ":inverse", true} {}
  graph::Op forward;
  graph::Op inverse;
};

// The attributes of one view step: constants are part of the memo key; a promotable one (a start or
// an index) travels in the slot.
struct ViewStep {
  const ViewOperator& op;
  std::vector<graph::Attribute> constants;
  // Where among the constants the promotable number stands in the lowering's parameters; -1: none.
  int slot_position = -1;
  std::int64_t slot = 0;
};

// A view of `self` of the given sizes and strides. With `from_root` the step starts from the alias,
// not from `self`.
at::Tensor make_view(const TensorImpl& self, const ViewStep& step, base::Shape shape,
                     base::Dims strides, std::int64_t storage_offset, bool from_root = false);
// The same, given to `self` itself, as `transpose_` and `unsqueeze_` do.
void apply_view_in_place(TensorImpl& self, const at::Tensor& view);

}  // namespace torch_xla::aten
