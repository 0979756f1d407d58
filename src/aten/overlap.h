// Memory that a call writes and reads, or writes twice: what PyTorch's kernels for the CPU refuse.
#pragma once

#include <string_view>

#include "aten/operator_rules.h"
#include "aten/tensor.h"

namespace torch_xla::aten {

// Throws where PyTorch refuses an in-place call that writes the one tensor and reads the other, the
// `position`-th of its tensors.
void check_read(const ReadRules& rules, const TensorImpl& written, const TensorImpl& read,
                std::size_t position);
// The same for all that an `out=` call reads, at one of the moments; the result has so many
// elements.
void check_reads(const ReadRules& rules, const TensorImpl& written, const TensorImpls& reads,
                 Moment moment, std::int64_t num_elements);

// Whether elements of such a tensor share memory: expanded ones do.
bool has_repeats(const graph::TensorType& type);
// Throws as PyTorch does when elements of a tensor that is written to share memory.
void check_no_overlap(const graph::TensorType& type);
// Warns as PyTorch does of a call, and of the form of assignment that comes to it, that writes such
// elements.
void warn_if_repeated(const TensorImpl& written, std::string_view name, std::string_view form);
// Throws as PyTorch's indexing does when what is written shares memory with what is read.
void check_apart(const TensorImpl& written, const TensorImpl& read);
// Throws as PyTorch does when a call reads and writes two tensors that share a part of their
// memory: which elements it reads before and which after the write would be undefined.
void check_no_partial_overlap(const TensorImpl& written, const TensorImpl& read);

}  // namespace torch_xla::aten
