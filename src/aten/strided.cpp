// Strides that leave gaps between the elements, or repeat some, are a view of memory without.
#include "aten/strided.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "aten/record.h"
#include "aten/registration.h"
#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

using torch::autograd::DifferentiableViewMeta;
using torch::autograd::ViewFunc;

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  static auto* const record = new Recorder("aten::empty_strided", "");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor meta = at::empty_strided(size, stride, at::kFloat, {}, at::kMeta, {});
  if (meta.numel() == 0 || meta.is_non_overlapping_and_dense()) {
    return (*record)({size, stride, dtype, layout, device, pin_memory});
  }
  const auto span = static_cast<std::int64_t>(at::detail::computeStorageNbytes(size, stride, 1));
  const std::vector<std::int64_t> row = {span};
  const std::vector<std::int64_t> step = {1};
  return (*record)({row, step, dtype, layout, device, pin_memory}).as_strided(size, stride, 0);
}

at::Tensor new_empty_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                             std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const at::TensorOptions options =
      self.options().merge_in(at::TensorOptions().dtype(dtype).layout(layout).device(device));
  return at::empty_strided(size, stride, options.pinned_memory(pin_memory));
}

at::Tensor as_strided_copy(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                           std::optional<std::int64_t> storage_offset) {
  return self.as_strided(size, stride, storage_offset).clone(at::MemoryFormat::Contiguous);
}

// A copy that lies in a copy of all the memory of `self` as `self` does in that.
at::Tensor clone_with_memory(const at::Tensor& self) {
  const graph::TensorType& memory = *expect_xla(self, "as_strided_scatter", "self").alias()->type();
  const auto width = static_cast<std::int64_t>(self.element_size());
  const std::int64_t count = memory.shape.num_bytes() / width;
  const bool is_whole = self.numel() == count && self.is_non_overlapping_and_dense();
  if (is_whole || at::has_internal_overlap(self) == at::MemOverlap::Yes) return self.clone();
  const at::Tensor all = self.as_strided({count}, {1}, 0).clone();
  return all.as_strided(self.sizes(), self.strides(), self.storage_offset());
}

at::Tensor as_strided_scatter(const at::Tensor& self, const at::Tensor& src, at::IntArrayRef size,
                              at::IntArrayRef stride, std::optional<std::int64_t> storage_offset) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor out = clone_with_memory(self);
  const at::Tensor slice = out.as_strided(size, stride, storage_offset);
  TORCH_CHECK(src.sizes() == slice.sizes(),
              "expected src to have a size equal to the slice of self. src size = ", src.sizes(),
              ", slice size = ", slice.sizes());
  slice.copy_(src);
  return out;
}

// How a view shows the elements of its base, beside where they lie.
struct Reading {
  bool is_complex = false;
  bool is_conj = false;  // of complex views; the imaginary parts of conjugates are negatives
  bool is_neg = false;
};

// Nothing where the view has elements that no strides tell.
std::optional<Reading> reading_of(const TensorImpl& view, const TensorImpl& base) {
  const at::ScalarType type = at::typeMetaToScalarType(view.dtype());
  const at::ScalarType of_base = at::typeMetaToScalarType(base.dtype());
  if (c10::toRealValueType(type) != c10::toRealValueType(of_base)) return std::nullopt;
  Reading reading;
  reading.is_complex = c10::isComplexType(type);
  reading.is_neg = view.sign_bits().is_neg != base.sign_bits().is_neg;
  if (view.sign_bits().is_conj == base.sign_bits().is_conj) return reading;
  reading.is_conj = reading.is_complex;
  if (reading.is_complex) return reading;
  for (std::int64_t d = 0; d < view.dim(); ++d) {
    if (view.size(d) > 1 && view.stride(d) % 2 != 0) return std::nullopt;
  }
  reading.is_neg ^= view.storage_offset() % 2 != 0;
  return reading;
}

// The view of a base, wherever in its memory that begins.
class StridedView final : public ViewFunc {
 public:
  StridedView(const at::Tensor& view, const at::Tensor& base, const Reading& reading)
      : reading_(reading),
        sizes_(view.sizes()),
        strides_(view.strides()),
        offset_(view.storage_offset() - offset_in(base)) {}
  at::Tensor operator()(const at::Tensor& base) const override {
    at::Tensor shown = base;
    if (base.is_complex() && !reading_.is_complex) shown = at::view_as_real(shown);
    if (!base.is_complex() && reading_.is_complex) shown = at::view_as_complex(shown);
    if (reading_.is_conj) shown = at::_conj(shown);
    if (reading_.is_neg) shown = at::_neg_view(shown);
    return shown.as_strided(sizes_, strides_, offset_in(base) + offset_);
  }
  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> = std::nullopt,
      std::optional<std::vector<at::Tensor>> = std::nullopt) const override {
    return std::make_unique<StridedView>(*this);
  }

 private:
  // Where a base begins, in elements of the view.
  std::int64_t offset_in(const at::Tensor& base) const {
    if (base.is_complex() == reading_.is_complex) return base.storage_offset();
    return reading_.is_complex ? base.storage_offset() / 2 : base.storage_offset() * 2;
  }

  Reading reading_;
  at::DimVector sizes_;
  at::DimVector strides_;
  std::int64_t offset_;
};

// After a write, and for the gradient of one, autograd makes views anew from their base. On devices
// with strides it does so by the view's own; on this one it repeats the calls, which means other
// elements where the base was transposed since, or where it begins in the middle of its memory and
// the call was `as_strided`, and fewer gradients (none where the view in between has no part).
void take_from_base(const at::Tensor& view) {
  if (as_xla(view) == nullptr || view.is_inference()) return;
  const DifferentiableViewMeta* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr || !meta->shared_view_info()) return;
  const torch::autograd::ViewInfo& info = meta->get_backward_view();
  const TensorImpl* const base = as_xla(info.base_);
  if (base == nullptr) return;
  const std::optional<Reading> reading = reading_of(*as_xla(view), *base);
  if (!reading.has_value()) return;
  // Torch gives no other way to change how a view is made.
  const_cast<torch::autograd::ViewInfo&>(info).view_fn_ =
      std::make_unique<StridedView>(view, info.base_, *reading);
}

bool is_view_of(const at::Tensor& view, const at::Tensor& base) {
  const DifferentiableViewMeta* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  return meta != nullptr && meta->has_bw_view() && meta->get_backward_view().base_.is_same(base);
}

class StridedViewKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
    // One function serves all devices; the keys say which kernel it calls in turn.
    handle.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU)
        .callBoxed(handle, keys, stack);
    const at::Tensor& view = stack->back().toTensor();
    if (!is_view_of(view, self) || self.storage_offset() != 0) take_from_base(view);
  }
};

}  // namespace

at::Tensor seen_from_base(const at::Tensor& view) {
  const DifferentiableViewMeta* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr || !meta->has_bw_view()) return view;
  const torch::autograd::ViewInfo& info = meta->get_backward_view();
  if (!info.has_view_fn()) return view;
  const auto* const strided = dynamic_cast<const StridedView*>(&info.view_fn());
  return strided == nullptr ? view : (*strided)(info.base_);
}

void apply_view_in_place(const at::Tensor& self, const at::Tensor& view) {
  TensorImpl& impl = *as_xla(self);
  for (const at::Tensor& relative : impl.relatives()) {
    if (is_view_of(relative, self)) take_from_base(relative);
  }
  const TensorImpl& as = *as_xla(view);
  impl.reset(as.alias(), as.view(), as.xla_type());
  impl.set_offset(as.storage_offset());
  take_from_base(self);
}

void register_strided(torch::Library& m) {
  m.impl("empty_strided", empty_strided);
  m.impl("new_empty_strided", new_empty_strided);
  m.impl("as_strided_copy", as_strided_copy);
  m.impl("as_strided_scatter", as_strided_scatter);
}

void register_strided_autograd(torch::Library& m) {
  m.impl("as_strided", torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                           std::make_unique<StridedViewKernel>())));
}

}  // namespace torch_xla::aten
