// Process groups whose members are processes of one host show each other tensors in memory that
// they share.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "aten/member_rows.h"
#include "base/meeting_place.h"

namespace torch_xla::aten {

// That of one group, for one of its members. All members show tensors of the same sizes in the same
// order, and take what is shown in that order. The calls that wait throw where a member has ended,
// has given up, or does not come within XLA_COLLECTIVE_TIMEOUT.
class HostMemory {
 public:
  // What `base::MeetingPlace` gives each member: more than this in one tensor can't be shown.
  static constexpr std::size_t kBytesOfEach = std::size_t{64} << 20;

  // Null unless all members are processes of this host, each another one. All members call it at
  // the same time, and find the same.
  static std::shared_ptr<HostMemory> of(c10d::ProcessGroup& process_group);

  explicit HostMemory(std::unique_ptr<base::MeetingPlace> place) : place_(std::move(place)) {}

  // Copies a tensor to where the others see it, and returns its number; nothing if there is no
  // room, as others have not let go of what was shown before. Waits for nobody.
  std::optional<std::uint64_t> show(const at::Tensor& tensor);
  // The same, when there is room.
  std::uint64_t show_when_free(const at::Tensor& tensor);

  // Waits for what the members have shown under that number, tensors of these sizes: they are there
  // until `let_go`.
  std::vector<at::Tensor> rows(std::uint64_t number, at::IntArrayRef sizes,
                               const at::TensorOptions& options);
  // Reduces all of such rows to what every member gets: where that pays, each reduces a share, and
  // they meet again.
  void all_reduce(c10d::ReduceOp::RedOpType op, const std::vector<at::Tensor>& rows,
                  const at::Tensor& output);
  void let_go(std::uint64_t number) { place_->let_go(number); }

  // Of a vector on each member: [members, elements].
  at::Tensor gather(const at::Tensor& row);

 private:
  std::unique_ptr<base::MeetingPlace> place_;
};

}  // namespace torch_xla::aten
