// Records operations as src/aten does, without torch: what the tests of graph and runtime share.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "graph/alias.h"
#include "graph/entry.h"
#include "graph/node.h"

namespace torch_xla::testing {

// An array without a device.
class TestData : public graph::Data {
 public:
  using Data::Data;
};

inline graph::Value leaf(const graph::TensorType* type) {
  return {graph::Node::make_leaf(std::make_shared<TestData>(type->shape)), 0};
}

inline graph::Number constant(base::Scalar value) {
  graph::Number number;
  number.constant = value;
  number.dtype = value.dtype();
  return number;
}
// The number in slot `slot` of its node.
inline graph::Number slot_number(base::DType dtype, std::int32_t slot) {
  graph::Number number;
  number.dtype = dtype;
  number.slot = slot;
  return number;
}

inline std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

inline const graph::TensorType* f32(base::Dims dims) {
  return graph::intern_contiguous({base::DType::kFloat32, std::move(dims)});
}

inline const graph::Op* op_named(const std::string& name, bool is_view = false) {
  static auto* const ops = new std::map<std::string, graph::Op>();
  static auto* const mutex = new std::mutex();
  const std::lock_guard lock(*mutex);
  return &ops->try_emplace(name, graph::Op{name, is_view}).first->second;
}

// Entries by what distinguishes them, as a memo keeps them. `call` must tell calls apart that
// differ in constants or operand types.
inline const graph::Entry* entry_for(const std::string& call, graph::Entry entry) {
  static auto* const entries = new std::map<std::string, graph::Entry>();
  static auto* const mutex = new std::mutex();
  entry.key = graph::compute_key(entry);
  const std::lock_guard lock(*mutex);
  return &entries->try_emplace(call, std::move(entry)).first->second;
}

// A call of two tensors of one type that gives that type.
inline const graph::Entry* binary_entry(const std::string& name, const graph::TensorType* type) {
  graph::Entry entry;
  entry.op = op_named(name);
  entry.args = {graph::Operand{0}, graph::Operand{1}};
  if (name == "add.Tensor") entry.args.push_back(constant(1));
  entry.operands = {type, type};
  entry.outputs = {type};
  return entry_for(base::str(name, base::to_string(type->shape)), std::move(entry));
}

// self * number, the number as data, or unless it is 0 or 1 at first.
inline const graph::Entry* scale_entry(const graph::TensorType* type,
                                       graph::SlotMode mode = graph::SlotMode::kData) {
  graph::Entry entry;
  entry.op = op_named("mul.Tensor");
  entry.args = {graph::Operand{0}, slot_number(base::DType::kFloat64, 0)};
  entry.operands = {type};
  entry.slots = {{base::DType::kFloat64, mode}};
  entry.outputs = {type};
  return entry_for(base::str("scale", base::to_string(type->shape), static_cast<int>(mode)),
                   std::move(entry));
}

// self[start : start + length] of a vector, the start promotable; and its inverse.
inline const graph::Entry* slice_entry(const graph::TensorType* type, std::int64_t length,
                                       bool is_inverse = false) {
  const graph::TensorType* part = f32({length});
  graph::Entry entry;
  entry.op = op_named(is_inverse ? "view:slice:inverse" : "view:slice", !is_inverse);
  entry.args = {graph::Operand{0}};
  if (is_inverse) entry.args.push_back(graph::Operand{1});
  for (graph::Number number :
       {constant(0), slot_number(base::DType::kInt64, 0), constant(length), constant(1)}) {
    entry.args.push_back(number);
  }
  entry.operands = {type};
  if (is_inverse) entry.operands.push_back(part);
  entry.slots = {{base::DType::kInt64, graph::SlotMode::kPromotable}};
  entry.outputs = {is_inverse ? type : part};
  return entry_for(base::str(entry.op->name, base::to_string(type->shape), length),
                   std::move(entry));
}

inline graph::Value call(const graph::Entry* entry, const std::vector<graph::Value>& operands,
                         const std::vector<std::uint64_t>& slots = {}) {
  return {graph::Node::make(entry, operands, slots), 0};
}

}  // namespace torch_xla::testing
