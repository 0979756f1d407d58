// Members tell each other what they are about to do in a message of one size, whatever that is:
// they must not differ in it. A small tensor has its place there, since a second message takes
// longer than to send some thousand bytes with the first.
#include "aten/agreement.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "ops/aten_call.h"
#include "ops/lines.h"

namespace torch_xla::aten {
namespace {

// Of how many collectives members tell each other at a time: a count, then their keys.
constexpr std::int64_t kMostTold = 63;
constexpr std::int64_t kToldWords = 1 + kMostTold;
// Behind these, in groups of few members.
constexpr std::int64_t kCarriedBytes = 4096;
constexpr std::int64_t kFewMembers = 16;

// The first line, which is taken off the text.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) lines.emplace_back(take_line(text));
  return lines;
}

// Without what is for people.
std::string_view compared(std::string_view line) { return line.substr(0, line.find('\t')); }

std::string spoken(std::string_view line) {
  if (line.empty()) return "nothing";
  const std::size_t tab = line.find('\t');
  std::string text(line.substr(0, tab));
  if (tab != line.npos) text += base::str(" at ", line.substr(tab + 1));
  return text;
}

// What was carried in the rows of the members' messages, as its elements.
at::Tensor carried_in(const at::Tensor& rows, const at::Tensor& carried) {
  const auto row_bytes = rows.size(1) * static_cast<std::int64_t>(sizeof(std::int64_t));
  return at::from_blob(
      rows.mutable_data_ptr<std::int64_t>() + kToldWords, {rows.size(0), carried.numel()},
      {row_bytes / static_cast<std::int64_t>(carried.itemsize()), 1}, [rows](void*) {},
      at::TensorOptions().dtype(carried.scalar_type()));
}

}  // namespace

std::optional<std::string> describe_difference(const std::vector<std::int64_t>& members,
                                               std::size_t number,
                                               const std::vector<std::string>& texts) {
  std::vector<std::string_view> rest(texts.begin(), texts.end());
  for (;; ++number) {
    std::vector<std::string_view> lines;
    for (std::string_view& text : rest) lines.push_back(take_line(text));
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (compared(lines[0]) == compared(lines[i])) continue;
      return base::str("number ", number, " of this program is ", spoken(lines[0]), " on rank ",
                       members[0], ", and ", spoken(lines[i]), " on rank ", members[i]);
    }
    if (lines[0].empty()) return std::nullopt;
  }
}

at::Tensor Agreement::enter(const GatherRows& gather, const std::vector<std::int64_t>& members,
                            const runtime::HostCall& call, const at::Tensor& carried) {
  if (call.has_attribute(ops::kAtenCallAgreement)) {
    lines_ = lines_of(call.text(ops::kAtenCallAgreement));
    next_ = 0;
  }
  // Collectives of nothing are not called.
  const auto number = static_cast<std::size_t>(call.integer(ops::kAtenCallNumber));
  agreed_ -= std::min(agreed_, static_cast<std::int64_t>(number - next_));
  next_ = number;
  at::Tensor rows;
  if (agreed_ == 0) rows = agree(gather, members, carried);
  ++next_;
  --agreed_;
  return rows;
}

// Compares what the members are about to do, as far as all of them know it: one may have read where
// others go on.
at::Tensor Agreement::agree(const GatherRows& gather, const std::vector<std::int64_t>& members,
                            const at::Tensor& carried) {
  const bool has_place = std::ssize(members) <= kFewMembers;
  const std::int64_t num_words =
      kToldWords +
      (has_place ? kCarriedBytes / static_cast<std::int64_t>(sizeof(std::int64_t)) : 0);
  const at::Tensor mine = at::zeros({num_words}, at::kLong);
  auto* const words = mine.mutable_data_ptr<std::int64_t>();
  const auto known = static_cast<std::int64_t>(lines_.size() - next_);
  words[0] = std::min(known, kMostTold);
  for (std::int64_t i = 0; i < words[0]; ++i) {
    words[1 + i] = ops::key_of_line(lines_[next_ + static_cast<std::size_t>(i)]);
  }
  const bool is_carried = has_place && carried.defined() &&
                          static_cast<std::int64_t>(carried.nbytes()) <= kCarriedBytes;
  if (is_carried) std::memcpy(words + kToldWords, carried.const_data_ptr(), carried.nbytes());
  const at::Tensor all = gather(mine);
  const auto* const theirs = all.const_data_ptr<std::int64_t>();
  agreed_ = words[0];
  for (std::int64_t i = 0; i < all.size(0); ++i) {
    agreed_ = std::min(agreed_, theirs[i * num_words]);
  }
  for (std::int64_t i = 0; i < all.size(0); ++i) {
    const std::int64_t* const keys = theirs + i * num_words + 1;
    if (!std::equal(keys, keys + agreed_, words + 1)) fail(gather, members);
  }
  return is_carried ? carried_in(all, carried) : at::Tensor();
}

void Agreement::fail(const GatherRows& gather, const std::vector<std::int64_t>& members) const {
  std::string text;
  for (std::size_t i = next_; i < lines_.size(); ++i) text += lines_[i] + "\n";
  const auto difference = describe_difference(members, next_ + 1, gather_texts(gather, text));
  base::internal_check(difference.has_value(), "collectives with one key differ");
  base::fail(base::ErrorKind::kRuntime,
             "replicas are about to exchange different things: ", *difference);
}

}  // namespace torch_xla::aten
