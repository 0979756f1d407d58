// Memo entries of view steps.
#include "aten/view_maker.h"

#include <c10/util/SmallVector.h>

#include "aten/record.h"

namespace torch_xla::aten {
namespace {

using Words = c10::SmallVector<std::uint64_t, 32>;

void add_dims(c10::SmallVectorImpl<std::uint64_t>& words, at::IntArrayRef dims) {
  words.push_back(dims.size());
  for (const std::int64_t d : dims) words.push_back(static_cast<std::uint64_t>(d));
}

graph::Entry make_entry(const graph::Op& op, const ViewStep& step,
                        std::vector<const graph::TensorType*> operands,
                        const graph::TensorType* output) {
  graph::Entry entry;
  entry.op = &op;
  for (std::uint32_t i = 0; i < operands.size(); ++i) entry.args.push_back(graph::Operand{i});
  entry.operands = std::move(operands);
  const std::size_t first = entry.args.size();
  for (const ViewConstant& constant : step.constants) entry.args.push_back(constant.attribute());
  if (step.slot_position >= 0) {
    graph::Number number{base::Scalar(std::int64_t{0}), base::DType::kInt64, 0, true};
    entry.args.insert(entry.args.begin() + static_cast<std::ptrdiff_t>(first) + step.slot_position,
                      number);
    entry.slots.push_back({base::DType::kInt64, graph::SlotMode::kPromotable});
  }
  entry.outputs = {output};
  entry.key = graph::compute_key(entry);
  return entry;
}

const graph::Entry* find_entry(const ViewStep& step, const graph::TensorType* parent,
                               const ViewType& view) {
  Words words;
  words.push_back(reinterpret_cast<std::uintptr_t>(&step.op));
  words.push_back(reinterpret_cast<std::uintptr_t>(parent));
  for (const ViewConstant& constant : step.constants) constant.add_to(words);
  add_dims(words, view.sizes);
  add_dims(words, view.strides);
  const std::span<const std::uint64_t> key(words.data(), words.size());
  if (const graph::Entry* entry = memo().find(key)) return entry;
  const graph::TensorType* type =
      graph::intern({{view.dtype, view.sizes.vec()}, view.strides.vec()});
  graph::Entry forward = make_entry(step.op.forward, step, {parent}, type);
  words.front() = reinterpret_cast<std::uintptr_t>(&step.op.inverse);
  forward.inverse = memo().insert(key, make_entry(step.op.inverse, step, {parent, type}, parent));
  words.front() = reinterpret_cast<std::uintptr_t>(&step.op);
  return memo().insert(key, std::move(forward));
}

}  // namespace

graph::Attribute ViewConstant::attribute() const {
  switch (kind_) {
    case kDims: return dims_.vec();
    case kDType: return static_cast<base::DType>(value_);
    case kInteger: break;
  }
  return graph::Number{base::Scalar(value_), base::DType::kInt64, -1, true};
}

void ViewConstant::add_to(c10::SmallVectorImpl<std::uint64_t>& words) const {
  if (kind_ == kDims) {
    add_dims(words, dims_);
  } else {
    words.push_back(static_cast<std::uint64_t>(value_));
  }
}

ViewOrigin origin_of(const TensorImpl& self) { return {self.view(), self.xla_type()}; }

LastStep::LastStep(const TensorImpl& self, const ViewOperator& op) {
  const graph::View* const view = self.view().get();
  if (view != nullptr && &view->op() == &op.forward) view_ = view;
}

std::int64_t LastStep::integer(std::size_t parameter) const {
  return std::get<graph::Number>(view_->forward().args[parameter + 1]).constant.to<std::int64_t>();
}

const base::Dims& LastStep::dims(std::size_t parameter) const {
  return std::get<base::Dims>(view_->forward().args[parameter + 1]);
}

at::Tensor make_view(const TensorImpl& self, const ViewOrigin& origin, const ViewStep& step,
                     const ViewType& type) {
  const graph::Entry* entry = find_entry(step, origin.type, type);
  std::vector<std::uint64_t> slots;
  if (step.slot_position >= 0) slots.push_back(static_cast<std::uint64_t>(step.slot));
  graph::ViewRef view =
      graph::ViewRef::adopt(new graph::View(origin.view, entry, entry->inverse, std::move(slots)));
  return make_view(self, std::move(view), entry->outputs[0], type.storage_offset);
}

at::Tensor make_view(const TensorImpl& self, const ViewStep& step, const ViewType& type) {
  return make_view(self, origin_of(self), step, type);
}

}  // namespace torch_xla::aten
