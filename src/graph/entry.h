// The memo entry: everything about a call that does not change from step to step. One exists per
// distinct (operator, operand types, constant attributes); nodes point to it, so an attribute is
// stored once however often the call is recorded.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/scalar.h"
#include "base/shape.h"

namespace torch_xla::graph {

struct RegionOp;

// Of an operator that gives a tensor of one number: which one.
enum class Constant : std::uint8_t { kNone, kZero, kOne, kArgument };

// An operator as nodes see it: what it is called decides how it is lowered (`ops::Registry`).
struct Op {
  std::string name;      // the registry's name: "add.Tensor", "slice.Tensor:inverse"
  bool is_view = false;  // cheap to recompute, so its value is never kept by a partial execution
  // Through a view: gives the memory, its first operand, after the write.
  bool is_write = false;
  // In-place and `out=`: the lowered result is converted and broadcast to the recorded type.
  bool converts_result = false;
  // kArgument: the only number among the arguments.
  Constant constant = Constant::kNone;
  // In place: nothing of what was there is left, so that it needn't have been.
  bool is_overwrite = false;
  // Of the entry's `args`, for people to read; may be empty.
  std::vector<std::string> argument_names = {};
  // This, of a node that holds regions (graph/region.h); null of all others.
  const RegionOp* region = nullptr;
};

// A tensor's type as PyTorch sees it. Interned: equal types have one address (see `intern`).
struct TensorType {
  base::Shape shape;
  base::Dims strides;
  // Two elements may be one in memory, as in expanded tensors. `intern` fills this in.
  bool may_repeat = false;
};

// The one object equal to `type`, alive until the process ends. Thread-safe.
const TensorType* intern(TensorType type);
// As above with row-major strides.
const TensorType* intern_contiguous(base::Shape shape);
base::Dims contiguous_strides(const base::Dims& dims);

// What an argument is in a memo entry. A tensor is an index into the node's operands; a number is a
// constant or, when `slot` is set, travels with the node (see Node::slots) and only its dtype is
// constant here.
struct Operand {
  std::uint32_t index = 0;
  friend bool operator==(const Operand&, const Operand&) = default;
};
struct OperandList {
  std::vector<std::int32_t> indices;  // -1 where the list holds None
  friend bool operator==(const OperandList&, const OperandList&) = default;
};
struct Number {
  base::Scalar constant;
  // The type of the 0-dim tensor that the number stands for.
  base::DType dtype = base::DType::kInt64;
  std::int32_t slot = -1;
  // A Python number or a 0-dim CPU tensor made of one: the weakest kind in type promotion.
  bool is_wrapped = true;
  friend bool operator==(const Number&, const Number&) = default;
};
using Attribute = std::variant<std::monostate, Operand, OperandList, Number, std::vector<Number>,
                               base::Dims, std::vector<bool>, std::string, base::DType>;

// A number that travels with the node. Data always reaches the program as data. A promotable value
// is compiled in at first and becomes data once it was seen to change; so is a number that is 0 or
// 1 at first, and others are data at once.
enum class SlotMode : std::uint8_t { kData, kNumber, kPromotable };
struct Slot {
  base::DType dtype = base::DType::kInt64;  // kInt64, kUInt64 or kFloat64: the bits' meaning
  SlotMode mode = SlotMode::kData;
};
// Whether a number that the slot never held before is compiled in.
inline bool is_constant_at_first(const Slot& slot, std::uint64_t bits) {
  if (slot.mode != SlotMode::kNumber) return slot.mode == SlotMode::kPromotable;
  const bool is_float = slot.dtype == base::DType::kFloat64;
  return bits == 0 || bits == (is_float ? std::bit_cast<std::uint64_t>(1.0) : 1);
}

struct Entry {
  const Op* op = nullptr;
  // Of the operator, the attributes and the operands' shapes: the same in every process.
  base::Hash128 key;
  std::vector<Attribute> args;  // in the schema's order
  std::vector<const TensorType*> operands;
  std::vector<Slot> slots;
  // PyTorch's default dtype when the call was made, which decides what numbers are computed as.
  base::DType default_float = base::DType::kFloat32;
  std::vector<const TensorType*> outputs;  // null where the call returns an undefined tensor
  // Of a view: the entry that maps (parent, new view) to the new parent.
  const Entry* inverse = nullptr;
};

// Computes what `Entry::key` must be from the other fields.
base::Hash128 compute_key(const Entry& entry);

}  // namespace torch_xla::graph
