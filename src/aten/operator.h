// What is derived once per ATen operator from its schema and its lowering: how each argument
// travels, what is written, which kind of call it is. The recording kernel works from this alone.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aten/operator_rules.h"
#include "aten/schema.h"
#include "base/metrics.h"
#include "ops/registry.h"

namespace torch_xla::aten {

// How an argument reaches the program.
enum class Travel : std::uint8_t {
  kOperand,     // a tensor, or a 0-dim CPU tensor as data
  kConstant,    // part of the memo key
  kData,        // a number in a slot
  kPromotable,  // a number in a slot that may be compiled in
  kKey,         // a generator: a random key in a slot
  kIgnored,     // not part of the program
};

struct Argument {
  ArgSchema schema;
  Travel travel = Travel::kConstant;
};

struct Operator {
  explicit Operator(c10::OperatorHandle operator_handle) : handle(operator_handle) {}

  c10::OperatorHandle handle;
  Schema schema;
  OpKind kind = OpKind::kFunctional;
  graph::Op op;  // what nodes point to; named as the registry names the lowering
  const ops::Lowering* lowering = nullptr;
  std::vector<Argument> arguments;
  // Arguments that the call writes, in the order of the lowering's results.
  std::vector<std::size_t> written;
  // Returns that are fresh tensors; the lowering gives them before the written arguments' values.
  std::size_t num_fresh_returns = 0;
  // Arguments written although the schema does not say so (the running statistics of batch norm):
  // they take the results beyond the schema's.
  std::vector<std::size_t> effects;
  // The device argument of a factory, if there is one.
  std::optional<std::size_t> device_argument;
  // True when a random key must be drawn without the schema having a generator.
  bool draws_key = false;
  // Where types come from on a memo miss; see infer.h.
  std::optional<c10::KernelFunction> compiled_meta;
  bool is_pointwise = false;
  std::optional<std::size_t> memory_format_argument;
  OperatorRules rules;
  ArgumentCheck check = nullptr;     // of the numbers in a call, if there is something to check
  base::Counter* counter = nullptr;  // "xla::<name>"
};

// The schema as plain data. Names are without "aten::"; other namespaces stay: "xla:name".
Schema to_schema(const c10::FunctionSchema& schema);
// What the dispatcher calls the operator of such a name.
c10::OperatorName operator_name(std::string_view name);

// The operator with its plan, or null if neither its own name nor its functional variant has a
// lowering whose parameters fit the schema. `why` then says what does not fit, if anything.
std::unique_ptr<Operator> plan_operator(const c10::OperatorHandle& handle, std::string* why);

// Elementwise, so that results are laid out as the operands are.
bool is_pointwise(const c10::OperatorHandle& handle);

// The functional variant of an in-place operator, as the name it has in the registry: "add.Tensor"
// for "add_.Tensor", or the name itself.
std::string functional_name(const Schema& schema);

}  // namespace torch_xla::aten
