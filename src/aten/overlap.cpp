// A table of the operators that look at memory in another way than elementwise ones do.
#include "aten/overlap.h"

#include <algorithm>
#include <string>
#include <utility>

namespace torch_xla::aten {
namespace {

struct NamedRule {
  std::string_view op;
  ApartRule rule;
};
constexpr NamedRule kRules[] = {
    {"addbmm", {"s-"}},
    {"addmm", {"s-"}},
    {"addmv", {"s-"}},
    {"addr", {"SP"}},
    {"aminmax", {"p"}},
    {"baddbmm", {"s-"}},
    {"bernoulli", {"p"}},
    {"cat", {"x"}},
    {"ceil", {"P", false, "q"}},
    {"conj_physical", {"P"}},
    {"cumprod", {"p"}},
    {"cumsum", {"p"}},
    {"fill", {"p-"}},
    {"floor", {"P", false, "q"}},
    {"floor_divide", {"P"}},
    {"gather", {"xp"}},
    {"index", {"X"}},
    {"index_add", {"px"}},
    {"index_copy", {"px"}},
    {"index_fill", {"px-"}},
    {"index_reduce", {"px"}},
    {"index_select", {"X"}},
    {"kron", {"p"}},
    {"kthvalue", {"X", /*first_out=*/true}},
    {"ldexp", {"P-"}},
    {"linalg_cross", {"x"}},
    {"linalg_solve_triangular", {"-s"}},
    {"linalg_vector_norm", {"S"}},
    {"linear", {"--s"}},
    {"logcumsumexp", {"p"}},
    {"masked_fill", {"pp-"}},
    {"masked_scatter", {"p-"}},
    {"masked_select", {"X"}},
    {"max.dim_max", {"n"}},
    {"min.dim_min", {"n"}},
    {"mode", {"n"}},
    {"msort", {"p"}},
    {"mvlgamma", {"-"}},
    {"nan_to_num", {"P", false, "p"}},
    {"nonzero", {"X"}},
    {"normal", {"p"}},
    {"put", {"px"}},
    {"renorm", {"p"}},
    {"round", {"P", false, "q"}},
    {"scatter", {"pb"}},
    {"scatter_add", {"pb"}},
    {"scatter_reduce", {"pb"}},
    {"sort", {"p", /*first_out=*/true}},
    {"stack", {"x"}},
    {"take", {"X"}},
    {"topk", {"n"}},
    {"triangular_solve", {"p-", /*first_out=*/true}},
    {"trunc", {"P", false, "q"}},
};

const NamedRule* find_rule(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kRules), std::end(kRules),
                                         [&](const NamedRule& rule) { return rule.op == name; });
  return found == std::end(kRules) ? nullptr : found;
}

bool is_capital(char letter) { return 'A' <= letter && letter <= 'Z'; }

bool looks_at(char letter, Moment moment) {
  if (letter == '-') return false;
  return letter == 'b' || letter == 'q' || is_capital(letter) == (moment == Moment::kGiven);
}

char letter_of(std::string_view apart, std::size_t position) {
  return apart[std::min(position, apart.size() - 1)];
}

enum class Overlap : std::uint8_t { kNone, kPart, kWhole };

// PyTorch looks no further than tensors without gaps.
Overlap overlap_of(const TensorImpl& a, const TensorImpl& b) {
  if (&a == &b) return Overlap::kWhole;
  if (a.alias() != b.alias() || a.numel() == 0 || b.numel() == 0) return Overlap::kNone;
  if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return Overlap::kNone;
  const auto range = [](const TensorImpl& tensor) {
    const auto width = static_cast<std::int64_t>(tensor.itemsize());
    const std::int64_t first = tensor.storage_offset() * width;
    return std::pair(first, first + tensor.numel() * width);
  };
  const auto [begin, end] = range(a);
  const auto [other_begin, other_end] = range(b);
  if (end <= other_begin || other_end <= begin) return Overlap::kNone;
  const bool is_whole = begin == other_begin && end == other_end && a.strides() == b.strides();
  return is_whole ? Overlap::kWhole : Overlap::kPart;
}

[[noreturn]] void throw_shared_memory() {
  TORCH_CHECK(false,
              "unsupported operation: some elements of the input tensor and the written-to tensor "
              "refer to a single memory location. Please clone() the tensor before performing the "
              "operation.");
}

// `num_elements` are those of the result.
void check_one(char letter, const TensorImpl& written, const TensorImpl& read,
               std::int64_t num_elements) {
  switch (is_capital(letter) ? static_cast<char>(letter - 'A' + 'a') : letter) {
    case 's':
      if (read.numel() != num_elements) return;
      [[fallthrough]];
    case 'p':
    case 'q': return check_no_partial_overlap(written, read);
    case 'n':
      if (read.dim() == 0) return check_no_partial_overlap(written, read);
      [[fallthrough]];
    case 'x':
    case 'b': return check_apart(written, read);
    default: return;
  }
}

}  // namespace

ApartRule apart_of(std::string_view name) {
  const NamedRule* rule = find_rule(name);
  if (rule == nullptr) rule = find_rule(name.substr(0, name.find('.')));
  return rule == nullptr ? ApartRule() : rule->rule;
}

ApartRule apart_of_out(const c10::OperatorHandle& handle, bool is_pointwise) {
  // What PyTorch generates from the functional overload copies its result.
  if (handle.hasTag(at::Tag::generated)) return {};
  const std::string name = c10::toString(handle.operator_name());
  const ApartRule rule = apart_of(std::string_view(name).substr(std::string_view("aten::").size()));
  return rule.tensors.empty() && is_pointwise ? ApartRule{"P"} : rule;
}

void check_read(std::string_view apart, const TensorImpl& written, const TensorImpl& read,
                std::size_t position) {
  check_one(apart.empty() ? 'p' : letter_of(apart, position), written, read, written.numel());
}

void check_reads(std::string_view apart, const TensorImpl& written, const TensorImpls& reads,
                 Moment moment, std::int64_t num_elements) {
  for (std::size_t k = 0; k < reads.size(); ++k) {
    const char letter = letter_of(apart, k);
    if (looks_at(letter, moment)) check_one(letter, written, *reads[k], num_elements);
  }
}

bool looks_at(std::string_view apart, Moment moment) {
  return std::any_of(apart.begin(), apart.end(),
                     [&](char letter) { return looks_at(letter, moment); });
}

bool has_repeats(const graph::TensorType& type) {
  if (type.shape.num_elements() == 0) return false;
  for (std::size_t i = 0; i < type.strides.size(); ++i) {
    if (type.strides[i] == 0 && type.shape.dims[i] > 1) return true;
  }
  return false;
}

void check_no_overlap(const graph::TensorType& type) {
  TORCH_CHECK(!has_repeats(type),
              "unsupported operation: more than one element of the written-to tensor refers to a "
              "single memory location. Please clone() the tensor before performing the "
              "operation.");
}

void warn_if_repeated(const TensorImpl& written, std::string_view name, std::string_view form) {
  if (!has_repeats(*written.xla_type())) return;
  TORCH_WARN("Use of ", name,
             " on expanded tensors is deprecated. Please clone() the tensor before performing this "
             "operation. This also applies to advanced indexing e.g. ",
             form);
}

void check_apart(const TensorImpl& written, const TensorImpl& read) {
  if (overlap_of(written, read) != Overlap::kNone) throw_shared_memory();
}

void check_no_partial_overlap(const TensorImpl& written, const TensorImpl& read) {
  if (overlap_of(written, read) == Overlap::kPart) throw_shared_memory();
}

}  // namespace torch_xla::aten
