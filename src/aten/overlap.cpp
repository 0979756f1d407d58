// Ranges of memory that tensors have in common.
#include "aten/overlap.h"

#include <utility>

#include "aten/warning.h"

namespace torch_xla::aten {
namespace {

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

// PyTorch hands most kernels a copy of what is shown conjugated or negated, and writes a copy back.
bool is_copied(const TensorImpl& written, const TensorImpl& read) {
  return written.sign_bits() != SignBits() || read.sign_bits() != SignBits();
}

// `num_elements` are those of the result.
void check_one(ReadRule rule, const TensorImpl& written, const TensorImpl& read,
               std::int64_t num_elements) {
  if (!rule.is_as_stored && is_copied(written, read)) return;
  switch (rule.sharing) {
    case Sharing::kAny: return;
    case Sharing::kWholeOrExpanded:
      if (read.numel() != num_elements) return;
      [[fallthrough]];
    case Sharing::kWhole: return check_no_partial_overlap(written, read);
    case Sharing::kNoneOrNumber:
      if (read.dim() == 0) return check_no_partial_overlap(written, read);
      [[fallthrough]];
    case Sharing::kNone: return check_apart(written, read);
  }
}

}  // namespace

void check_read(const ReadRules& rules, const TensorImpl& written, const TensorImpl& read,
                std::size_t position) {
  const ReadRule rule = rules.empty() ? ReadRule{Sharing::kWhole} : rules[position];
  check_one(rule, written, read, written.numel());
}

void check_reads(const ReadRules& rules, const TensorImpl& written, const TensorImpls& reads,
                 Moment moment, std::int64_t num_elements) {
  for (std::size_t k = 0; k < reads.size(); ++k) {
    if (rules[k].is_for(moment)) check_one(rules[k], written, *reads[k], num_elements);
  }
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
  warn(c10::str(
      "Use of ", name,
      " on expanded tensors is deprecated. Please clone() the tensor before performing this "
      "operation. This also applies to advanced indexing e.g. ",
      form));
}

void check_apart(const TensorImpl& written, const TensorImpl& read) {
  if (is_copied(written, read)) return;
  if (overlap_of(written, read) != Overlap::kNone) throw_shared_memory();
}

void check_no_partial_overlap(const TensorImpl& written, const TensorImpl& read) {
  if (overlap_of(written, read) == Overlap::kPart) throw_shared_memory();
}

}  // namespace torch_xla::aten
