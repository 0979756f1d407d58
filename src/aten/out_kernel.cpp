// The kernel of `out=` overloads.
#include "aten/out_kernel.h"

#include <algorithm>
#include <utility>

#include "aten/fallback.h"
#include "aten/meta_kernel.h"
#include "aten/operator.h"
#include "aten/out_arguments.h"
#include "aten/overlap.h"
#include "aten/tensor.h"
#include "ops/registry.h"

namespace torch_xla::aten {
namespace {

std::optional<std::size_t> find_dtype_argument(const c10::OperatorHandle& functional) {
  const Schema schema = to_schema(functional.schema());
  const ops::Lowering* lowering = ops::registry().find(schema.name);
  if (lowering == nullptr || !lowering->computes_in_out_dtype) return std::nullopt;
  const std::optional<int> index = functional.schema().argumentIndexWithName("dtype");
  TORCH_INTERNAL_ASSERT(index.has_value(), schema.name, " has no dtype to compute in");
  return static_cast<std::size_t>(*index);
}

OperatorRules rules_of_out(const c10::OperatorHandle& handle,
                           const c10::OperatorHandle& functional) {
  OperatorRules rules = rules_of(to_schema(handle.schema()).name);
  if (handle.hasTag(at::Tag::generated)) {
    // What PyTorch generates from the functional overload copies its result.
    rules.reads = rules.reads_of_integers = {};
  } else if (rules.reads.empty() && is_pointwise(functional)) {
    rules.reads = {{Sharing::kWhole, Moment::kGiven}};
  }
  return rules;
}

// An operand that the result is written to is not resized, as in place, unless it is read before.
void check_size_of_operand(const ReadRules& rules, const TensorImpls& reads, const at::Tensor& out,
                           const at::Tensor& result) {
  for (std::size_t k = 0; !rules.empty() && k < reads.size(); ++k) {
    const bool is_resized = reads[k] != as_xla(out) || rules[k].sharing == Sharing::kAny;
    TORCH_CHECK(is_resized, "output with shape ", out.sizes(),
                " doesn't match the broadcast shape ", result.sizes());
  }
}

// The kernels that are running on this thread, the innermost first.
struct Running {
  const OutKernel* kernel;
  const Running* outer;
};
thread_local const Running* innermost = nullptr;

class Entered {
 public:
  explicit Entered(const OutKernel* kernel) : running_{kernel, innermost} { innermost = &running_; }
  ~Entered() { innermost = running_.outer; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Running running_;
};

bool is_running(const OutKernel* kernel) {
  const Running* running = innermost;
  while (running != nullptr && running->kernel != kernel) running = running->outer;
  return running != nullptr;
}

}  // namespace

OutKernel::OutKernel(const c10::OperatorHandle& handle, c10::OperatorHandle functional,
                     std::vector<std::size_t> out_arguments)
    : functional_(functional),
      out_arguments_(std::move(out_arguments)),
      rules_(rules_of_out(handle, functional)),
      dtype_argument_(find_dtype_argument(functional)) {
  for (std::size_t i = 0; i < handle.schema().arguments().size(); ++i) {
    if (!handle.schema().arguments()[i].is_out()) in_arguments_.push_back(i);
  }
}

const ReadRules& OutKernel::rules_of_reads(const std::vector<c10::IValue>& arguments) const {
  const bool is_of_integers =
      !rules_.reads_of_integers.empty() &&
      c10::isIntegralType(arguments.front().toTensor().scalar_type(), /*includeBool=*/true);
  return is_of_integers ? rules_.reads_of_integers : rules_.reads;
}

TensorImpls OutKernel::reads_of(const std::vector<c10::IValue>& arguments) const {
  TensorImpls reads;
  for (const std::size_t i : in_arguments_) append_xla(arguments[i], reads);
  return reads;
}

void OutKernel::check_memory(const std::vector<c10::IValue>& arguments,
                             const torch::jit::Stack& results, Moment moment) const {
  const ReadRules& rules = rules_of_reads(arguments);
  if (!rules.are_for(moment)) return;
  const TensorImpls reads = reads_of(arguments);
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    if (k > 0 && rules_.out.only_first_is_apart) return;
    const TensorImpl& written = *as_xla(arguments[out_arguments_[k]].toTensor());
    check_no_overlap(*written.xla_type());
    check_reads(rules, written, reads, moment, results[k].toTensor().numel());
  }
}

void OutKernel::check(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& arguments,
                      const torch::jit::Stack& results) {
  const at::Tensor& first = arguments[out_arguments_.front()].toTensor();
  if (first.sizes() != results.front().toTensor().sizes() && is_pointwise(functional_)) {
    check_size_of_operand(rules_of_reads(arguments), reads_of(arguments), first,
                          results.front().toTensor());
  }
  std::call_once(looked_, [&] { compiled_meta_ = compiled_meta_kernel(handle); });
  if (compiled_meta_.has_value()) {
    const torch::jit::Stack stack(arguments.begin(), arguments.end());
    call_on_meta(handle, &*compiled_meta_, arguments.size(), stack);
  }
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    const at::Tensor out = arguments[out_arguments_[k]].toTensor();
    check_out_dtype(rules_.out, arguments.front(), k, results[k].toTensor(), out);
    if (compiled_meta_.has_value()) continue;
    check_out(handle, rules_.out, results[k].toTensor(), out);
  }
}

void OutKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                           torch::jit::Stack* stack) {
  // A composite that is made of its own `out=` overload (`sspaddmm`) is nothing to make that of.
  if (is_running(this)) return fallback(handle, stack);
  const Entered entered(this);
  const c10::FunctionSchema& schema = handle.schema();
  const std::size_t num_arguments = schema.arguments().size();
  const auto arguments = torch::jit::last(*stack, num_arguments).vec();
  for (const std::size_t i : out_arguments_) {
    expect_xla(arguments[i].toTensor(), schema.name().substr(6), schema.arguments()[i].name());
  }
  if (rules_.out.check_call != nullptr) {
    rules_.out.check_call(arguments.front().toTensor().scalar_type(),
                          arguments[out_arguments_.front()].toTensor().scalar_type());
  }
  torch::jit::drop(*stack, num_arguments);
  torch::jit::Stack results;
  for (const std::size_t i : in_arguments_) {
    if (dtype_argument_ == i && arguments[i].isNone()) {
      results.emplace_back(arguments[out_arguments_.front()].toTensor().scalar_type());
    } else {
      results.push_back(arguments[i]);
    }
  }
  functional_.callBoxed(&results);
  check_memory(arguments, results, Moment::kGiven);
  check(handle, arguments, results);
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    const at::Tensor& out = arguments[out_arguments_[k]].toTensor();
    const at::IntArrayRef sizes = results[k].toTensor().sizes();
    if (out.sizes() != sizes) out.resize_(sizes);
  }
  check_memory(arguments, results, Moment::kResized);
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    const at::Tensor& out = arguments[out_arguments_[k]].toTensor();
    const at::Tensor& result = results[k].toTensor();
    // The functional overload may give its argument back, which is no copy onto itself here.
    const bool is_argument = as_xla(result)->alias() == as_xla(out)->alias();
    out.copy_(is_argument ? result.clone() : result);
    stack->push_back(out);
  }
}

}  // namespace torch_xla::aten
