// What the members of a group are about to exchange, which they compare before they do: members
// that exchange different things would get wrong answers, or wait for each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aten/member_rows.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Of one group: how far its members know of each other. Used by one call at a time.
class Agreement {
 public:
  // Before the first call of a collective that has a number in its program. Blocks until all
  // `members`, by their ranks in the job, are there, where they have not told it each other yet,
  // which `gather` does.
  // Throws, on every member alike, where they are about to exchange different things.
  //
  // If all get here and `carried` is small, it travels with what they tell: then its elements on
  // each member are returned, [members, elements]. Otherwise the result is undefined.
  at::Tensor enter(const GatherRows& gather, const std::vector<std::int64_t>& members,
                   const runtime::HostCall& call, const at::Tensor& carried);

 private:
  at::Tensor agree(const GatherRows& gather, const std::vector<std::int64_t>& members,
                   const at::Tensor& carried);
  [[noreturn]] void fail(const GatherRows& gather, const std::vector<std::int64_t>& members) const;

  std::vector<std::string> lines_;  // the collectives of the program that runs
  std::size_t next_ = 0;            // of these
  std::int64_t agreed_ = 0;         // how many from there on all members are known to have
};

// The first line of the members' texts, from this number on, in which one differs from the first
// member, in the words of both; nothing where all are alike.
std::optional<std::string> describe_difference(const std::vector<std::int64_t>& members,
                                               std::size_t number,
                                               const std::vector<std::string>& texts);

}  // namespace torch_xla::aten
