// Every collective is made of steps in which each member shows the others a row
// (base/meeting_place.h); tensors that are larger than a row take several.
#include "aten/host_memory.h"

#include <ATen/ops/from_blob.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "aten/member_rows.h"
#include "base/error.h"
#include "base/meeting_place.h"
#include "base/metrics.h"
#include "base/settings.h"

namespace torch_xla::aten {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// As much as a core's cache holds of all members' rows, where they are few.
constexpr std::size_t kRowBytes = std::size_t{256} << 10;
// Up to this each member reduces all of a row, since a second step costs more.
constexpr std::size_t kWholeBytes = std::size_t{16} << 10;
// Of the members' rows that is, at most, 64 MB.
constexpr int kMostMembers = 128;

class Done final : public c10d::Work {
 public:
  Done() { finish(); }
};

std::byte* bytes_of(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous());
  return static_cast<std::byte*>(tensor.data_ptr());
}

// A part of so many bytes, from the n-th byte on, of what has `size` bytes.
using OnPart = std::function<void(std::size_t start, std::size_t num_bytes)>;
void for_each_part(std::size_t size, std::size_t part_bytes, const OnPart& function) {
  for (std::size_t start = 0; start < size; start += part_bytes) {
    function(start, std::min(part_bytes, size - start));
  }
}

class HostMemoryBackend final : public c10d::Backend {
 public:
  HostMemoryBackend(std::unique_ptr<base::MeetingPlace> place, BackendPtr messages)
      : Backend(messages->getRank(), messages->getSize()),
        num_members_(static_cast<std::size_t>(getSize())),
        place_(std::move(place)),
        messages_(std::move(messages)) {}

  const std::string getBackendName() const override { return "torch_xla_host_memory"; }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    const c10d::ReduceOp::RedOpType op = options.reduceOp;
    if (!can_reduce_rows(op)) return messages_->allreduce(tensors, options);
    return done([&] {
      for (const at::Tensor& tensor : tensors) {
        for_each_part(tensor.nbytes(), kRowBytes, [&](std::size_t start, std::size_t num_bytes) {
          reduce_part(elements(bytes_of(tensor) + start, num_bytes, tensor), op);
        });
      }
    });
  }

  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions&) override {
    std::vector<std::byte*> places;
    for (const at::Tensor& output : outputs.front()) places.push_back(bytes_of(output));
    return done([&] { gather(inputs.front(), places); });
  }

  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions&) override {
    return done([&] {
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        std::vector<std::byte*> places;
        for (std::size_t i = 0; i < num_members_; ++i) {
          places.push_back(bytes_of(outputs[k]) + i * inputs[k].nbytes());
        }
        gather(inputs[k], places);
      }
    });
  }

  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    const c10d::ReduceOp::RedOpType op = options.reduceOp;
    if (!can_reduce_rows(op)) {
      return messages_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
    }
    return done([&] {
      for (std::size_t k = 0; k < inputs.size(); ++k) reduce_scatter(outputs[k], inputs[k], op);
    });
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override {
    if (!output_sizes.empty() || !input_sizes.empty()) {
      return messages_->alltoall_base(output, input, output_sizes, input_sizes, options);
    }
    return done([&] {
      const std::size_t block_bytes = output.nbytes() / num_members_;
      for_each_block(input, [&](std::size_t start, std::size_t num_bytes, std::byte* blocks) {
        for (std::size_t i = 0; i < num_members_; ++i) {
          std::memcpy(bytes_of(output) + i * block_bytes + start, blocks + i * kRowBytes,
                      num_bytes);
        }
      });
    });
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    return done([&] {
      std::byte* const bytes = bytes_of(tensors.front());
      const auto root = static_cast<std::size_t>(options.rootRank);
      const bool is_root = root == place_->member();
      for_each_part(tensors.front().nbytes(), kRowBytes,
                    [&](std::size_t start, std::size_t num_bytes) {
                      if (is_root) std::memcpy(place_->own_row(), bytes + start, num_bytes);
                      const std::byte* const rows = meet();
                      if (is_root) return;
                      std::memcpy(bytes + start, rows + root * kRowBytes, num_bytes);
                    });
    });
  }

  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return messages_->send(tensors, to, tag);
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return messages_->recv(tensors, from, tag);
  }
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    return messages_->recvAnysource(tensors, tag);
  }

 private:
  std::byte* meet() {
    const std::chrono::duration<double> limit(base::settings().collective_timeout());
    // Rows are read as tensors, which know of no const.
    return const_cast<std::byte*>(
        place_->meet(std::chrono::duration_cast<std::chrono::milliseconds>(limit)));
  }

  template <typename Function>
  WorkPtr done(const Function& exchange) {
    static base::Counter& exchanges = base::counter("HostMemoryExchange");
    exchanges.add();
    exchange();
    return c10::make_intrusive<Done>();
  }

  static at::Tensor elements(std::byte* bytes, std::size_t num_bytes, const at::Tensor& like) {
    return at::from_blob(bytes, {static_cast<std::int64_t>(num_bytes / like.itemsize())},
                         like.options());
  }

  // What lies at the same place of each member's row.
  at::Tensor rows_at(std::byte* first, std::size_t num_bytes, const at::Tensor& like) const {
    return at::from_blob(first, {getSize(), static_cast<std::int64_t>(num_bytes / like.itemsize())},
                         {static_cast<std::int64_t>(kRowBytes / like.itemsize()), 1},
                         like.options());
  }

  void gather(const at::Tensor& input, const std::vector<std::byte*>& outputs) {
    const std::byte* const bytes = bytes_of(input);
    for_each_part(input.nbytes(), kRowBytes, [&](std::size_t start, std::size_t num_bytes) {
      std::memcpy(place_->own_row(), bytes + start, num_bytes);
      const std::byte* const rows = meet();
      for (std::size_t i = 0; i < num_members_; ++i) {
        std::memcpy(outputs[i] + start, rows + i * kRowBytes, num_bytes);
      }
    });
  }

  void reduce_part(at::Tensor part, c10d::ReduceOp::RedOpType op) {
    std::memcpy(place_->own_row(), part.const_data_ptr(), part.nbytes());
    std::byte* rows = meet();
    if (part.nbytes() <= kWholeBytes)
      return reduce_rows(op, rows_at(rows, part.nbytes(), part), part);
    // Each member reduces a share, and shows it in a second step.
    const std::size_t count = part.numel();
    const auto start_of = [&](std::size_t member) {
      return count * member / num_members_ * part.itemsize();
    };
    const std::size_t own = start_of(place_->member());
    const std::size_t own_bytes = start_of(place_->member() + 1) - own;
    at::Tensor reduced = elements(place_->own_row(), own_bytes, part);
    reduce_rows(op, rows_at(rows + own, own_bytes, part), reduced);
    rows = meet();
    for (std::size_t i = 0; i < num_members_; ++i) {
      std::memcpy(bytes_of(part) + start_of(i), rows + i * kRowBytes,
                  start_of(i + 1) - start_of(i));
    }
  }

  void reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                      c10d::ReduceOp::RedOpType op) {
    for_each_block(input, [&](std::size_t start, std::size_t num_bytes, std::byte* blocks) {
      at::Tensor part = elements(bytes_of(output) + start, num_bytes, output);
      reduce_rows(op, rows_at(blocks, num_bytes, output), part);
    });
  }

  // Of a tensor with a block for each member: calls the function with a part of this member's
  // blocks, which lie in the members' rows.
  template <typename Function>
  void for_each_block(const at::Tensor& input, const Function& function) {
    const std::byte* const bytes = bytes_of(input);
    const std::size_t block_bytes = input.nbytes() / num_members_;
    const std::size_t unit = input.itemsize();
    const std::size_t part_bytes = kRowBytes / num_members_ / unit * unit;
    for_each_part(block_bytes, part_bytes, [&](std::size_t start, std::size_t num_bytes) {
      for (std::size_t i = 0; i < num_members_; ++i) {
        std::memcpy(place_->own_row() + i * num_bytes, bytes + i * block_bytes + start, num_bytes);
      }
      function(start, num_bytes, meet() + place_->member() * num_bytes);
    });
  }

  std::size_t num_members_;
  std::unique_ptr<base::MeetingPlace> place_;
  BackendPtr messages_;
};

// Whether all members are processes of this host, each another one.
bool are_on_this_host(const std::vector<std::string>& identities, const std::string& own) {
  return std::ranges::all_of(identities, [&](const std::string& each) { return each == own; });
}

}  // namespace

void meet_in_host_memory(c10d::ProcessGroup& process_group) {
  if (process_group.getSize() > kMostMembers) return;
  const auto num_members = static_cast<std::size_t>(process_group.getSize());
  const auto member = static_cast<std::size_t>(process_group.getRank());
  const std::string identity = base::host_identity();
  if (!are_on_this_host(gather_texts(process_group, identity), identity)) return;

  std::unique_ptr<base::MeetingPlace> place;
  if (member == 0) place = base::MeetingPlace::make(num_members, kRowBytes);
  const std::string own_address = place == nullptr ? "" : place->address();
  const std::string address = gather_texts(process_group, own_address).front();
  if (address.empty()) return;
  if (member > 0) place = base::MeetingPlace::open(address, member);
  const std::string is_here = place == nullptr ? "" : std::to_string(getpid());
  const std::vector<std::string> here = gather_texts(process_group, is_here);
  const std::set<std::string> distinct(here.begin(), here.end());
  // Threads of one process are members too, which end without their process.
  if (distinct.contains("") || distinct.size() < num_members) return;

  BackendPtr messages = process_group.getBackend(c10::DeviceType::CPU);
  process_group.setBackend(
      c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<HostMemoryBackend>(std::move(place), std::move(messages)));
}

}  // namespace torch_xla::aten
