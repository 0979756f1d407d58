// Asking the CPU's kernels about dtypes.
#include "aten/dtype_refusals.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "aten/argument_checks.h"
#include "aten/meta_kernel.h"
#include "aten/stand_ins.h"
#include "aten/tensor.h"
#include "base/hash.h"

namespace torch_xla::aten {
namespace {

using base::DType;

// A call whose operands are larger is tried with sizes of at most kSmallSize instead, which keeps
// equal sizes equal. What that does not fit stays untold.
constexpr std::int64_t kMostElements = 1 << 12;
constexpr std::int64_t kSmallSize = 4;
// A kernel that was asked so often and spoke of sizes or values only is not asked again.
constexpr int kMostTries = 4;

// The CPU has few kernels for the wide unsigned integers. Here they are as good as uint8.
bool is_wide_unsigned(DType dtype) {
  return dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}
at::ScalarType widely(DType dtype) {
  return is_wide_unsigned(dtype) ? at::kByte : to_scalar_type(dtype);
}

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }
bool is_full(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

// Most calls: every operator that has a kernel has one for these.
bool is_surely_taken(const graph::Entry& entry) {
  const auto is_usual = [](DType dtype) {
    return is_full(dtype) || dtype == DType::kInt64 || dtype == DType::kBool;
  };
  for (const graph::Attribute& attribute : entry.args) {
    const auto* dtype = std::get_if<DType>(&attribute);
    if (dtype != nullptr && !is_usual(*dtype)) return false;
    const auto* number = std::get_if<graph::Number>(&attribute);
    if (number != nullptr && base::is_complex(number->dtype)) return false;
  }
  return is_full(entry.operands.front()->shape.dtype) &&
         std::ranges::all_of(entry.operands,
                             [&](const auto* type) { return is_usual(type->shape.dtype); });
}

// What a kernel's choice of code can depend on, without sizes. Of an operand: whether it is empty,
// and its rank.
base::Hash128 key_of(const Operator& op, const graph::Entry& entry) {
  base::Hasher hasher;
  hasher.add(op.schema.name);
  hasher.add(static_cast<std::uint64_t>(entry.default_float));
  std::uint64_t last = 0;
  for (const graph::TensorType* type : entry.operands) {
    const bool is_empty = type->shape.num_elements() == 0;
    const std::uint64_t word = static_cast<std::uint64_t>(type->shape.dtype) |
                               (is_empty ? 1u << 8 : 0u) | type->shape.dims.size() << 9;
    // A list of equal ones is as good as one.
    if (word + 1 != last) hasher.add(word);
    last = word + 1;
  }
  for (std::size_t i = 0; i < entry.args.size(); ++i) {
    const graph::Attribute& attribute = entry.args[i];
    hasher.add(attribute.index());
    if (const auto* number = std::get_if<graph::Number>(&attribute)) {
      hasher.add(static_cast<std::uint64_t>(number->dtype));
    } else if (const auto* dtype = std::get_if<DType>(&attribute)) {
      hasher.add(static_cast<std::uint64_t>(*dtype));
    } else if (const auto* text = std::get_if<std::string>(&attribute)) {
      hasher.add(std::string_view(*text));
    }
  }
  return hasher.finish();
}

// How often each was asked in vain; kMostTries if it is taken.
class Answers {
 public:
  bool is_known(const base::Hash128& key) {
    const std::lock_guard lock(mutex_);
    const auto it = tries_.find(key.lo);
    return it != tries_.end() && it->second >= kMostTries;
  }
  void add(const base::Hash128& key, int tries) {
    const std::lock_guard lock(mutex_);
    tries_[key.lo] += tries;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, int> tries_;
};

Answers& answers() {
  static auto* const instance = new Answers();
  return *instance;
}

// What a kernel warns of in a trial is no one's concern.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Integers are zeros, being indices and lengths, or ones, where they are divisors or pivots.
at::Tensor small(const at::Tensor& tensor, std::int64_t most, at::ScalarType (*named)(DType),
                 bool are_ones) {
  const TensorImpl* impl = as_xla(tensor);
  if (impl == nullptr) return tensor;
  const base::Shape& shape = impl->xla_type()->shape;
  std::vector<std::int64_t> dims = shape.dims;
  for (std::int64_t& size : dims) size = std::min(size, most);
  return at::empty(dims, at::TensorOptions().dtype(named(shape.dtype)))
      .fill_(are_ones || base::is_floating(shape.dtype) ? 1 : 0);
}

bool is_about_dtypes(const c10::Error& error) {
  static constexpr std::string_view kWords[] = {"not implemented for '", "dtype",   "data type",
                                                "scalar type",           "complex", "floating"};
  const std::string_view text = error.what_without_backtrace();
  return std::ranges::any_of(
      kWords, [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

enum class Answer : std::uint8_t { kTaken, kUntold };

// Throws if the dtypes are refused. `named` gives the dtype that one is asked as.
Answer ask(const Operator& op, const torch::jit::Stack& stack, std::int64_t most,
           at::ScalarType (*named)(DType)) {
  const std::size_t count = op.arguments.size();
  const bool are_ones = op.is_pointwise || op.rules.check_values == check_ldl_pivots;
  torch::jit::Stack on_cpu = with_stand_ins(
      op.handle, count, stack, c10::DeviceType::CPU,
      [&](const at::Tensor& tensor) { return small(tensor, most, named, are_ones); });
  for (std::size_t i = 0; i < count; ++i) {
    // The program's own numbers stay as they are.
    if (op.arguments[i].travel == Travel::kKey) {
      on_cpu[i] = at::make_generator<at::CPUGeneratorImpl>(0);
    } else if (op.arguments[i].schema.kind == ArgKind::kDType && on_cpu[i].isInt()) {
      on_cpu[i] = named(to_dtype(on_cpu[i].toScalarType()));
    }
  }
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
  try {
    call_on_cpu(op.handle, on_cpu);
    return Answer::kTaken;
  } catch (const c10::Error& error) {
    if (is_about_dtypes(error)) throw;
  } catch (const std::exception&) {  // also what Python raises
  }
  return Answer::kUntold;
}

bool is_askable(const Operator& op, const graph::Entry& entry) {
  if (entry.operands.empty() || op.draws_key || op.lowering->is_collective) return false;
  if (!op.handle.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
      !op.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
      !op.handle.hasKernelForDispatchKey(
          c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    return false;
  }
  if (is_surely_taken(entry)) return false;
  if (op.rules.takes_integers && base::is_integral(entry.operands.front()->shape.dtype)) {
    return false;
  }
  const bool has_half = std::ranges::any_of(
      entry.operands, [](const auto* type) { return is_half(type->shape.dtype); });
  return !has_half || !op.rules.takes_half;
}

}  // namespace

void check_dtypes(const Operator& op, const graph::Entry& entry, const torch::jit::Stack& stack) {
  if (!is_askable(op, entry)) return;
  const base::Hash128 key = key_of(op, entry);
  if (answers().is_known(key)) return;
  std::int64_t num_elements = 0;
  for (const graph::TensorType* type : entry.operands) num_elements += type->shape.num_elements();
  const std::int64_t most = num_elements <= kMostElements ? kMostElements : kSmallSize;
  // The program calls that very kernel.
  const bool is_strict = op.lowering->is_aten_call;
  Answer answer = Answer::kUntold;
  try {
    answer = ask(op, stack, most, is_strict ? to_scalar_type : widely);
  } catch (const c10::Error&) {
    ask(op, stack, most, to_scalar_type);  // in the words for the dtype itself
    throw;
  }
  answers().add(key, answer == Answer::kTaken ? kMostTries : 1);
}

}  // namespace torch_xla::aten
