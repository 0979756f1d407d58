// Memory that a call writes and reads, or writes twice: what PyTorch's kernels for the CPU refuse.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

#include "aten/tensor.h"

namespace torch_xla::aten {

// When out tensors are looked at: as they are given, or when they have the results' sizes.
enum class Moment : std::uint8_t { kGiven, kResized };

// What an operator's tensors may share with those that it writes, by a letter for each tensor in
// order, of which the last stands for the rest too. In capitals they are looked at as out tensors
// are given, else when these have the results' sizes; in-place calls know no such difference.
//   p  all of its elements, or none
//   s  the same, but for a tensor that is broadcast: it may share what it likes
//   x  none
//   b  none, and it is looked at both times
//   q  all or none, and it is looked at both times
//   n  none, if it has dimensions
//   -  what it likes: it is read before
struct ApartRule {
  std::string_view tensors;           // empty: nothing is looked at
  bool first_out = false;             // of several out tensors the first alone
  std::string_view of_integers = {};  // instead of `tensors`, where integers are only copied
};
// That of the operator of this name, like "index_add", "max.dim_max".
ApartRule apart_of(std::string_view name);
// That of an `out=` overload over this functional one.
ApartRule apart_of_out(const c10::OperatorHandle& handle, bool is_pointwise);

// Throws where PyTorch refuses an in-place call that writes the one tensor and reads the other, the
// `position`-th of its tensors.
void check_read(std::string_view apart, const TensorImpl& written, const TensorImpl& read,
                std::size_t position);
// The same for all that an `out=` call reads, at one of the moments; the result has so many
// elements.
void check_reads(std::string_view apart, const TensorImpl& written, const TensorImpls& reads,
                 Moment moment, std::int64_t num_elements);
// Whether there is something to look at then.
bool looks_at(std::string_view apart, Moment moment);

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
