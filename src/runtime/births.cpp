// Numbers as bytes on the host, and the rules for when to make memory of them.
#include "runtime/births.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/stored_dtype.h"
#include "runtime/device.h"
#include "runtime/result_shardings.h"

namespace torch_xla::runtime {
namespace {

constexpr std::int64_t kSmall = 1 << 18;
constexpr std::size_t kMaxGraphs = 1024;
constexpr std::size_t kMaxAliases = 1 << 14;
constexpr std::int64_t kExactInDoubles = std::int64_t{1} << 53;

template <typename T>
std::uint64_t bits_of(T number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof number);
  return bits;
}

// None where programs may convert otherwise than a host does.
std::optional<std::uint64_t> bits_in(base::DType dtype, double number) {
  const auto single = static_cast<float>(number);
  if (std::isnan(number) || (number != 0 && !std::isinf(number) && !std::isnormal(single))) {
    return std::nullopt;
  }
  switch (dtype) {
    case base::DType::kFloat32: return bits_of(single);
    case base::DType::kFloat64: return bits_of(number);
    case base::DType::kBFloat16: {
      const auto bits = std::bit_cast<std::uint32_t>(single);
      const bool is_exact = single == number && (bits & 0xffff) == 0;
      return is_exact ? std::optional<std::uint64_t>(bits >> 16) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

std::optional<std::uint64_t> bits_in(base::DType dtype, std::int64_t number) {
  if (base::is_floating(dtype)) {
    if (number > kExactInDoubles || number < -kExactInDoubles) return std::nullopt;
    return bits_in(dtype, static_cast<double>(number));
  }
  switch (dtype) {
    case base::DType::kInt64: return bits_of(number);
    case base::DType::kInt32: {
      using Limits = std::numeric_limits<std::int32_t>;
      if (number > Limits::max() || number < Limits::min()) return std::nullopt;
      return bits_of(static_cast<std::int32_t>(number));
    }
    case base::DType::kBool: return bits_of(number != 0);
    default: return std::nullopt;
  }
}

// Of a number that stands for itself, not for a tensor of fewer bits.
std::optional<std::uint64_t> argument_in(base::DType dtype, const graph::Node& node) {
  const graph::Entry& entry = *node.entry();
  for (const graph::Attribute& arg : entry.args) {
    const auto* const number = std::get_if<graph::Number>(&arg);
    if (number == nullptr) continue;
    if (number->slot < 0) return std::nullopt;
    const auto slot = static_cast<std::size_t>(number->slot);
    const std::uint64_t bits = node.slots()[slot];
    if (entry.slots[slot].dtype != number->dtype) return std::nullopt;
    if (number->dtype == base::DType::kFloat64) {
      return bits_in(dtype, std::bit_cast<double>(bits));
    }
    return bits_in(dtype, static_cast<std::int64_t>(bits));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(base::DType dtype, const graph::Node& node) {
  switch (node.entry()->op->constant) {
    case graph::Constant::kNone: break;
    case graph::Constant::kZero: return 0;
    case graph::Constant::kOne: return bits_in(dtype, std::int64_t{1});
    case graph::Constant::kArgument: return argument_in(dtype, node);
  }
  return std::nullopt;
}

// By step: whether another one takes its value, and not only to overwrite it.
std::vector<bool> find_read(const graph::Trace& trace) {
  std::vector<bool> is_read(trace.steps.size());
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const graph::Trace::Step& step = trace.steps[i];
    const std::size_t end =
        i + 1 < trace.steps.size() ? trace.steps[i + 1].first_source : trace.sources.size();
    const std::size_t skipped = step.node->entry()->op->is_overwrite ? 1 : 0;
    for (std::size_t k = step.first_source + skipped; k < end; ++k) {
      if (!trace.sources[k].is_leaf) is_read[trace.sources[k].index] = true;
    }
  }
  return is_read;
}

// Null if it may not be made memory.
std::optional<Newborn> newborn(Device& device, graph::Alias& alias, const graph::NodeRef& node,
                               const base::Sharding* sharding) {
  const base::Shape shape = base::stored_shape(node->shape(0));
  const graph::Value& value = alias.value();
  if (!value || shape != base::stored_shape(value.node->shape(value.output))) return std::nullopt;
  const std::optional<std::uint64_t> bits = number_in(shape.dtype, *node);
  if (!bits.has_value() || shape.num_bytes() == 0) return std::nullopt;
  Birth birth{Array::make_pending(device, shape, sharding), *bits};
  birth.array->set_location(node->location());
  return Newborn{&alias, {node, 0}, std::move(birth)};
}

std::vector<char> repeated(std::uint64_t bits, const base::Shape& shape) {
  const auto element = static_cast<std::size_t>(base::size_bytes(shape.dtype));
  std::vector<char> bytes(static_cast<std::size_t>(shape.num_bytes()));
  for (std::size_t at = 0; at < bytes.size(); at += element) {
    std::memcpy(bytes.data() + at, &bits, element);
  }
  return bytes;
}

// As many as the largest of the births needs. Large blocks of them are no memory until they are
// written, but one page again and again.
class HostZeros {
 public:
  explicit HostZeros(std::span<const Birth> births) {
    std::int64_t num_bytes = 0;
    for (const Birth& birth : births) {
      if (birth.bits == 0) num_bytes = std::max(num_bytes, birth.array->shape().num_bytes());
    }
    zeros_.reset(std::calloc(1, static_cast<std::size_t>(num_bytes)));
  }

  const void* data() const { return zeros_ != nullptr ? zeros_.get() : throw std::bad_alloc(); }

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::unique_ptr<void, Free> zeros_;
};

}  // namespace

bool SeenBirths::may_live_on(const base::Hash128& graph, std::int64_t num_bytes,
                             std::span<graph::Alias* const> aliases) {
  const bool* const has_lived_on = lived_on_.find(graph);
  if (has_lived_on == nullptr || *has_lived_on || num_bytes <= kSmall) return true;
  return std::ranges::any_of(aliases, [&](const graph::Alias* alias) {
    const base::Hash128* const born_in =
        alias->is_newborn() ? graphs_.find(alias->number()) : nullptr;
    return born_in != nullptr && *born_in == graph;
  });
}

void SeenBirths::add(const base::Hash128& graph, graph::Alias& alias) {
  std::vector<bool> evicted;
  std::vector<base::Hash128> evicted_graphs;
  if (lived_on_.find(graph) == nullptr) lived_on_.insert(graph, false, kMaxGraphs, evicted);
  graphs_.insert(alias.number(), graph, kMaxAliases, evicted_graphs);
  alias.set_newborn(true);
}

void SeenBirths::note_lived_on(graph::Alias& alias) {
  alias.set_newborn(false);
  const base::Hash128* const graph = graphs_.find(alias.number());
  if (graph == nullptr) return;
  if (bool* const has_lived_on = lived_on_.find(*graph)) *has_lived_on = true;
  graphs_.erase(alias.number());
}

std::vector<Newborn> find_births(const graph::Trace& trace, Device& device,
                                 std::span<graph::Alias* const> aliases) {
  std::vector<Newborn> found;
  if (trace.births.empty()) return found;
  const std::vector<bool> is_read = find_read(trace);
  std::unordered_map<std::uint64_t, std::size_t> by_number;
  for (std::size_t i = 0; i < aliases.size(); ++i) {
    if (aliases[i]->settled() == nullptr) by_number.emplace(aliases[i]->number(), i);
  }
  if (by_number.empty()) return found;
  // The memory lies as what will replace it does.
  const ResultShardings shardings(device, trace);
  std::int64_t num_bytes = 0;
  for (const std::uint32_t step : trace.births) {
    const graph::NodeRef& node = trace.steps[step].node;
    const auto alias = by_number.find(node->born_as());
    if (!is_read[step] || alias == by_number.end()) continue;
    if (std::optional<Newborn> one = newborn(device, *aliases[alias->second], node,
                                             shardings.of(trace.roots[alias->second]))) {
      num_bytes += one->birth.array->shape().num_bytes();
      found.push_back(*std::move(one));
      by_number.erase(alias);
    }
  }
  if (!device.births().may_live_on(trace.relaxed_key, num_bytes, aliases)) found.clear();
  return found;
}

void fill(std::vector<Birth>& births) {
  const HostZeros zeros(births);
  for (const Birth& birth : births) {
    try {
      if (birth.bits == 0) {
        birth.array->set_uploaded(zeros.data());
      } else {
        birth.array->set_uploaded(repeated(birth.bits, birth.array->shape()).data());
      }
    } catch (...) {
      birth.array->set_failed(std::current_exception());
    }
  }
  births.clear();
}

}  // namespace torch_xla::runtime
