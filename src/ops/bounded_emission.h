// A call with sizes that are data, as the rules for such calls see it: which sizes are variables,
// and what hides what lies behind the elements. Next: the rules, of which `bounded_reductions.cpp`,
// `bounded_losses.cpp`, `bounded_gradients.cpp`, `bounded_indexing.cpp`, `bounded_samples.cpp` and
// `bounded_random.cpp` hold a family each and `bounded_rules.cpp` the rest.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/bounded.h"

namespace torch_xla::ops {

// In the place of a variable: the size is the same in each run.
inline constexpr std::int32_t kNoVariable = -1;

bool has_variable(const Variables& variables);
// By PyTorch's broadcasting, whatever the variables are.
bool broadcasts(const Dims& dims, const Variables& variables, const Dims& to_dims,
                const Variables& to_variables);

// The call and the frame must outlive it.
class Emission {
 public:
  Emission(const BoundedCall& call, BoundedFrame& frame)
      : call_(call), entry_(call.entry), frame_(frame) {}

  // Throws base::Error of kind kUnimplemented.
  [[noreturn]] void refuse() const;
  void require(bool holds) const {
    if (!holds) refuse();
  }
  // No argument of these is a variable; by default none at all.
  void require_fixed(std::initializer_list<std::size_t> but = {}) const;

  const graph::Entry& entry() const { return entry_; }
  hlo::Builder& builder() const { return frame_.context.builder; }
  std::size_t num_args() const { return entry_.args.size(); }
  const graph::Attribute& arg(std::size_t i) const { return entry_.args[i]; }
  bool is_none(std::size_t i) const {
    return std::holds_alternative<std::monostate>(entry_.args[i]);
  }
  std::int64_t integer(std::size_t i) const {
    return std::get<graph::Number>(entry_.args[i]).constant.to<std::int64_t>();
  }
  std::int32_t variable(std::size_t i) const {
    return call_.args[i].empty() ? kNoVariable : call_.args[i][0];
  }
  const Variables& arg_variables(std::size_t i) const { return call_.args[i]; }
  std::size_t place(std::size_t i) const { return std::get<graph::Operand>(entry_.args[i]).index; }
  // A dimension of the first operand, from its beginning.
  std::int64_t dim_of_first(std::size_t arg) const;

  std::size_t num_operands() const { return frame_.operands.size(); }
  Value& operand(std::size_t place) { return frame_.operands[place]; }
  const Variables& variables(std::size_t place) const { return call_.operands[place]; }
  bool is_fixed(std::size_t place) const { return !has_variable(call_.operands[place]); }
  const Dims& output_dims(std::size_t i = 0) const { return entry_.outputs[i]->shape.dims; }
  DType output_dtype() const { return entry_.outputs[0]->shape.dtype; }
  const Variables& output_variables(std::size_t i = 0) const { return call_.outputs[i]; }
  std::size_t num_outputs() const { return entry_.outputs.size(); }

  Value size(std::int32_t variable) const {
    return frame_.variables[static_cast<std::size_t>(variable)];
  }
  Value number(std::int64_t value) const { return scalar(builder(), DType::kInt64, value); }
  // Of a dimension that is that variable, or has this size.
  Value extent(std::int32_t variable, std::int64_t otherwise) const {
    return variable == kNoVariable ? number(otherwise) : size(variable);
  }
  Context& context() const { return frame_.context; }
  Frame frame() const { return {frame_.operands, frame_.slots, frame_.slot_bits, entry_.slots}; }
  // A number of the call that is compiled in, data, or a variable.
  Value integer_value(std::size_t i) const;

  std::vector<Value> ordinary() { return ordinary(entry_); }
  std::vector<Value> ordinary(const graph::Entry& entry);
  // As `ordinary`, of a call whose elements see no others.
  std::vector<Value> pointwise() { return pointwise(entry_); }
  std::vector<Value> pointwise(const graph::Entry& entry);
  // The call but for the integer in one of its arguments.
  graph::Entry with_integer(std::size_t arg, std::int64_t value) const;

  // Bool, of these sizes: whether the place along `dim` is before the end.
  Value is_element(const Dims& dims, std::size_t dim, std::int32_t variable) const;
  // The same along all dimensions.
  Value are_elements(const Dims& dims, const Variables& variables) const;
  // Int64, of these sizes: which element each is in their order.
  Value ranks(const Dims& dims, const Variables& variables) const;
  // Puts `fill`, 0-dim, behind the elements along each dimension, or along one.
  void hide(std::size_t place, Value fill, std::int64_t only = -1);
  // Puts zeros behind the elements of all operands.
  void hide_all();
  // How many elements there are, or along some dimensions, as a number of that dtype.
  Value count(std::size_t place, DType dtype) const;
  Value count(std::size_t place, DType dtype, const Dims& along) const;
  Value zero(std::size_t place) { return scalar(builder(), operand(place).dtype(), 0); }

  // Cut or extended at the end.
  Value resize(Value value, std::size_t dim, std::int64_t size) const;
  hlo::Values starts(std::size_t rank, std::size_t dim, Value start) const;

 private:
  const BoundedCall& call_;
  const graph::Entry& entry_;
  BoundedFrame& frame_;
};

// The results of a call of one operator. Each either computes with what lies behind the elements as
// with the elements, where these do not see it, or hides it first: behind zeros in sums, -inf in
// maxima.
using Results = std::vector<Value>;
using Rule = Results (*)(Emission&);
using Rules = std::unordered_map<std::string_view, Rule>;

const Rules& reduction_rules();
const Rules& loss_rules();
const Rules& gradient_rules();
const Rules& indexing_rules();
const Rules& sample_rules();
const Rules& random_rules();

}  // namespace torch_xla::ops
