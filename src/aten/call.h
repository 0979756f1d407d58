// One call of an operator, read from the dispatcher's stack: the words under which the memo knows
// it, the tensors it takes and the numbers that travel with it. Reading allocates nothing for calls
// of usual size; the memo entry's attributes are made only when the call is new.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <span>

#include "aten/operator.h"
#include "aten/tensor.h"

namespace torch_xla::aten {

// Whether all numbers are compiled into programs, as 0 and 1 are.
inline std::atomic<bool> all_numbers_are_special{false};

class Call {
 public:
  // Throws the user's error when a tensor is on another device. The stack must outlive the call.
  Call(const Operator& op, const torch::jit::Stack& stack);

  std::span<const std::uint64_t> words() const { return {words_.data(), words_.size()}; }
  std::span<const std::uint64_t> slots() const { return {slots_.data(), slots_.size()}; }
  const c10::SmallVector<TensorImpl*, 8>& operands() const { return operands_; }
  // The device that the call belongs to: its tensors', the device argument's, or the current one.
  runtime::Device& device() const { return *device_; }

  // The entry's fields that follow from the arguments: args, operands, slots.
  graph::Entry make_entry() const;

 private:
  // What a number becomes: a constant, or a slot of the given type.
  struct Numeric {
    base::Scalar value;
    base::DType dtype;
    bool is_wrapped = true;
    bool in_slot = false;
    graph::Slot slot;
  };

  class Words;
  class Attributes;

  template <typename Sink>
  void walk(Sink& sink) const;
  template <typename Sink>
  void walk_tensors(const Argument& argument, const c10::IValue& value, Sink& sink) const;
  template <typename Sink>
  void walk_tensor(const Argument& argument, const at::Tensor& tensor, Sink& sink) const;
  template <typename Sink>
  void walk_value(const Argument& argument, const c10::IValue& value, Sink& sink) const;
  void find_device();
  void join_device(const Argument& argument, runtime::Device& device);
  Numeric number_of(const at::Tensor& cpu_scalar) const;
  Numeric number_of(const c10::IValue& value, Travel travel) const;
  // What carries a number beside the program.
  graph::Slot data_slot(const base::Scalar& value) const;

  const Operator& op_;
  std::span<const c10::IValue> arguments_;
  runtime::Device* device_ = nullptr;
  bool no_special_scalars_;
  c10::SmallVector<std::uint64_t, 48> words_;
  c10::SmallVector<std::uint64_t, 8> slots_;
  c10::SmallVector<TensorImpl*, 8> operands_;
};

}  // namespace torch_xla::aten
