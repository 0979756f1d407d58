// Registers kernels: one recording kernel per operator with a lowering, the view and copy
// operators, `out=` overloads over their functional ones, and the fallback for the rest.
#include "aten/registration.h"

#include <torch/library.h>

#include <algorithm>
#include <map>
#include <set>

#include "aten/aten_call_kernel.h"
#include "aten/convolution_kernel.h"
#include "aten/dynamic_shapes.h"
#include "aten/factor_checks.h"
#include "aten/fallback.h"
#include "aten/indexing.h"
#include "aten/observer.h"
#include "aten/operator.h"
#include "aten/out_kernel.h"
#include "aten/record.h"
#include "aten/strided.h"
#include "ops/registry.h"

namespace torch_xla::aten {
namespace {

struct Report {
  std::vector<std::string> problems;
  std::vector<std::string> lowered;
  std::vector<std::string> on_host;
};
Report& report() {
  static auto* const instance = new Report();
  return *instance;
}

// Operators that have a typed kernel of their own, in copy.cpp, views.cpp or indexing.cpp.
bool has_own_kernel(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(c10::DispatchKey::XLA);
}

// "add.Tensor" for aten::add.Tensor.
std::string name_in_aten(const c10::OperatorName& name) {
  std::string full = name.name.substr(6);
  if (!name.overload_name.empty()) full += "." + name.overload_name;
  return full;
}

// Composites never reach a device, but those that are kept whole.
bool is_taken_apart(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !rules_of(name_in_aten(handle.operator_name())).is_kept_whole;
}

template <typename Kernel>
void register_boxed(torch::Library& m, const c10::OperatorName& name,
                    std::unique_ptr<Kernel> kernel) {
  m.impl(name_in_aten(name).c_str(), torch::CppFunction::makeFromBoxedKernel(
                                         c10::BoxedKernel::makeFromFunctor(std::move(kernel))));
}

template <typename Kernel>
void register_kernel(torch::Library& m, const c10::OperatorName& name, std::unique_ptr<Operator> op,
                     const FactorRule& factors) {
  if (factors.api == nullptr)
    return register_boxed(m, name, std::make_unique<Kernel>(std::move(op)));
  register_boxed(m, name, std::make_unique<CheckedKernel<Kernel>>(std::move(op), factors));
}

bool register_lowered(torch::Library& m, const c10::OperatorHandle& handle) {
  std::string why;
  std::unique_ptr<Operator> op = plan_operator(handle, &why);
  if (op == nullptr) {
    const std::string name = c10::toString(handle.operator_name());
    if (!why.empty()) report().problems.push_back(name + ": " + why);
    return false;
  }
  if (op->kind != OpKind::kFunctional && op->kind != OpKind::kInPlace) return false;
  const FactorRule factors = op->rules.factors;
  if (op->lowering->is_aten_call) {
    report().on_host.push_back(op->schema.name);
    register_kernel<AtenCallKernel>(m, handle.operator_name(), std::move(op), factors);
    return true;
  }
  report().lowered.push_back(op->schema.name);
  if (op->schema.name == ObserverKernel::kOperator) {
    register_boxed(m, handle.operator_name(), std::make_unique<ObserverKernel>(std::move(op)));
  } else if (op->schema.name == ConvolutionKernel::kOperator) {
    register_boxed(m, handle.operator_name(), std::make_unique<ConvolutionKernel>(std::move(op)));
  } else {
    register_kernel<RecordingKernel>(m, handle.operator_name(), std::move(op), factors);
  }
  return true;
}

// The arguments without the out ones, as a text to compare overloads by.
std::string signature(const c10::FunctionSchema& schema) {
  std::string text;
  for (const c10::Argument& argument : schema.arguments()) {
    if (!argument.is_out()) text += argument.name() + ":" + argument.real_type()->str() + ",";
  }
  return text;
}

bool has_out_arguments(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) { return argument.is_out(); });
}

using Functional = std::map<std::pair<std::string, std::string>, c10::OperatorHandle>;

// An overload whose out arguments are single tensors and which has a functional twin among these.
void register_out(torch::Library& m, const c10::OperatorHandle& handle, const Functional& twins) {
  const c10::FunctionSchema& schema = handle.schema();
  const auto twin = twins.find({schema.name(), signature(schema)});
  if (twin == twins.end()) return;
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!schema.arguments()[i].is_out()) continue;
    if (schema.arguments()[i].type()->kind() != c10::TypeKind::TensorType) return;
    out.push_back(i);
  }
  if (out.size() != twin->second.schema().returns().size()) return;
  register_boxed(m, handle.operator_name(),
                 std::make_unique<OutKernel>(handle, twin->second, std::move(out)));
}

void register_operators(torch::Library& m) {
  Functional lowered;
  Functional composites;
  std::vector<c10::OperatorHandle> outs;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle.has_value()) continue;
    if (has_out_arguments(handle->schema())) {
      if (!has_own_kernel(*handle) && !is_taken_apart(*handle)) outs.push_back(*handle);
    } else if (is_taken_apart(*handle)) {
      composites.emplace(std::pair(name.name, signature(handle->schema())), *handle);
    } else if (has_own_kernel(*handle) || register_lowered(m, *handle)) {
      lowered.emplace(std::pair(name.name, signature(handle->schema())), *handle);
    }
  }
  for (const c10::OperatorHandle& handle : outs) {
    register_out(m, handle, lowered);
    // PyTorch's own kernel for every device is as good, where there is one.
    if (!handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      register_out(m, handle, composites);
    }
  }
}

// Names in the registry, and of rules, that no operator of this torch uses. Internal ones have a
// colon.
void find_unknown_names() {
  std::set<std::string> known;
  std::set<std::string, std::less<>> ruled;  // as rules name them
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle.has_value()) continue;
    const Schema schema = to_schema(handle->schema());
    known.insert(schema.name);
    const std::string functional = functional_name(schema);
    known.insert(functional);
    const bool is_default = handle->schema().overload_name().empty();
    ruled.insert(is_default ? functional + ".default" : functional);
    ruled.insert(functional.substr(0, functional.find('.')));
  }
  for (const std::string& name : ops::registry().names()) {
    if (name.find(':') == std::string::npos && !known.contains(name)) {
      report().problems.push_back(name + ": this torch has no operator of that name");
    }
  }
  for (const std::string_view name : names_of_rules()) {
    if (ruled.contains(name)) continue;
    report().problems.push_back(base::str(name, ": there are rules for what torch has not"));
  }
}

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  register_views(m);
  register_strided(m);
  register_copying_views(m);
  register_copies(m);
  register_indexing(m);
  register_composites(m);
  register_recurrences(m);
  register_factories(m);
  register_factor_checks(m);
  register_dynamic_shapes(m);
  register_operators(m);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  register_copying_views(m);
  register_composites_autograd(m);
  register_recurrences(m);
  register_derivatives(m);
  register_strided_autograd(m);
  register_splits(m);
}

TORCH_LIBRARY_IMPL(_, XLA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace

std::vector<std::string> registration_problems() {
  static const bool checked = (find_unknown_names(), true);
  (void)checked;
  return report().problems;
}

void add_registration_problem(std::string problem) {
  report().problems.push_back(std::move(problem));
}

std::vector<std::string> lowered_operators() { return report().lowered; }

std::vector<std::string> host_operators() { return report().on_host; }

}  // namespace torch_xla::aten
