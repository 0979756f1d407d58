// Memo entries of view steps.
#include "aten/view_maker.h"

#include <c10/util/SmallVector.h>

#include "aten/record.h"

namespace torch_xla::aten {
namespace {

using Words = c10::SmallVector<std::uint64_t, 32>;

void add_dims(Words& words, const base::Dims& dims) {
  words.push_back(dims.size());
  for (const std::int64_t d : dims) words.push_back(static_cast<std::uint64_t>(d));
}

void add_attribute(Words& words, const graph::Attribute& attribute) {
  if (const auto* dims = std::get_if<base::Dims>(&attribute)) {
    add_dims(words, *dims);
  } else if (const auto* number = std::get_if<graph::Number>(&attribute)) {
    words.push_back(static_cast<std::uint64_t>(number->constant.to<std::int64_t>()));
  } else if (const auto* dtype = std::get_if<base::DType>(&attribute)) {
    words.push_back(static_cast<std::uint64_t>(*dtype));
  }
}

graph::Entry make_entry(const graph::Op& op, const ViewStep& step,
                        std::vector<const graph::TensorType*> operands,
                        const graph::TensorType* output) {
  graph::Entry entry;
  entry.op = &op;
  for (std::uint32_t i = 0; i < operands.size(); ++i) entry.args.push_back(graph::Operand{i});
  entry.operands = std::move(operands);
  const std::size_t first = entry.args.size();
  for (const graph::Attribute& constant : step.constants) entry.args.push_back(constant);
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
                               base::Shape shape, base::Dims strides) {
  Words words;
  words.push_back(reinterpret_cast<std::uintptr_t>(&step.op));
  words.push_back(reinterpret_cast<std::uintptr_t>(parent));
  for (const graph::Attribute& constant : step.constants) add_attribute(words, constant);
  add_dims(words, shape.dims);
  add_dims(words, strides);
  const std::span<const std::uint64_t> key(words.data(), words.size());
  if (const graph::Entry* entry = memo().find(key)) return entry;
  const graph::TensorType* type = graph::intern({std::move(shape), std::move(strides)});
  graph::Entry forward = make_entry(step.op.forward, step, {parent}, type);
  words.front() = reinterpret_cast<std::uintptr_t>(&step.op.inverse);
  forward.inverse =
      memo().insert(key, make_entry(step.op.inverse, step, {parent, type}, parent));
  words.front() = reinterpret_cast<std::uintptr_t>(&step.op);
  return memo().insert(key, std::move(forward));
}

}  // namespace

at::Tensor make_view(const TensorImpl& self, const ViewStep& step, base::Shape shape,
                     base::Dims strides, std::int64_t storage_offset, bool from_root) {
  const graph::TensorType* parent = from_root ? self.alias()->type() : self.xla_type();
  const graph::Entry* entry = find_entry(step, parent, std::move(shape), std::move(strides));
  std::vector<std::uint64_t> slots;
  if (step.slot_position >= 0) slots.push_back(static_cast<std::uint64_t>(step.slot));
  graph::ViewRef view = graph::ViewRef::adopt(
      new graph::View(from_root ? graph::ViewRef() : self.view(), entry, entry->inverse,
                      std::move(slots)));
  return make_view(self, std::move(view), entry->outputs[0], storage_offset);
}

void apply_view_in_place(TensorImpl& self, const at::Tensor& view) {
  TensorImpl& impl = *as_xla(view);
  const std::int64_t offset = impl.storage_offset();
  self.reset(impl.alias(), impl.view(), impl.xla_type());
  self.set_offset(offset);
}

}  // namespace torch_xla::aten
