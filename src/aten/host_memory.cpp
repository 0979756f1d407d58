#include "aten/host_memory.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/metrics.h"
#include "base/settings.h"

namespace torch_xla::aten {
namespace {

// Up to this each member reduces all of a row, since to meet a second time costs more.
constexpr std::size_t kWholeBytes = std::size_t{16} << 10;
// Two members read as many bytes if each reduces all.
constexpr std::size_t kFewMembers = 2;
constexpr int kMostMembers = 128;

std::chrono::milliseconds limit() {
  const std::chrono::duration<double> limit(base::settings().collective_timeout());
  return std::chrono::duration_cast<std::chrono::milliseconds>(limit);
}

// Whether all members are processes of this host.
bool are_on_this_host(const std::vector<std::string>& identities, const std::string& own) {
  return std::ranges::all_of(identities, [&](const std::string& each) { return each == own; });
}

}  // namespace

std::shared_ptr<HostMemory> HostMemory::of(c10d::ProcessGroup& process_group) {
  if (process_group.getSize() > kMostMembers) return nullptr;
  const auto num_members = static_cast<std::size_t>(process_group.getSize());
  const auto member = static_cast<std::size_t>(process_group.getRank());
  const GatherRows gather = [&](const at::Tensor& row) { return gather_rows(process_group, row); };
  const std::string identity = base::host_identity();
  if (!are_on_this_host(gather_texts(gather, identity), identity)) return nullptr;

  std::unique_ptr<base::MeetingPlace> place;
  if (member == 0) place = base::MeetingPlace::make(num_members, kBytesOfEach);
  const std::string own_address = place == nullptr ? "" : place->address();
  const std::string address = gather_texts(gather, own_address).front();
  if (address.empty()) return nullptr;
  if (member > 0) place = base::MeetingPlace::open(address, member);
  const std::string is_here = place == nullptr ? "" : std::to_string(getpid());
  const std::vector<std::string> here = gather_texts(gather, is_here);
  const std::set<std::string> distinct(here.begin(), here.end());
  // Threads of one process are members too, which end without their process.
  if (distinct.contains("") || distinct.size() < num_members) return nullptr;
  return std::make_shared<HostMemory>(std::move(place));
}

std::optional<std::uint64_t> HostMemory::show(const at::Tensor& tensor) {
  static base::Counter& exchanges = base::counter("HostMemoryExchange");
  std::byte* const row = place_->next_row(tensor.nbytes());
  if (row == nullptr) return std::nullopt;
  exchanges.add();
  at::from_blob(row, tensor.sizes(), tensor.options()).copy_(tensor);
  return place_->show();
}

std::uint64_t HostMemory::show_when_free(const at::Tensor& tensor) {
  place_->wait_for_space(tensor.nbytes(), limit());
  return *show(tensor);
}

std::vector<at::Tensor> HostMemory::rows(std::uint64_t number, at::IntArrayRef sizes,
                                         const at::TensorOptions& options) {
  place_->wait_for_rows(number, limit());
  std::vector<at::Tensor> rows;
  for (std::size_t i = 0; i < place_->num_members(); ++i) {
    rows.push_back(at::from_blob(place_->row(number, i), sizes, options));
  }
  return rows;
}

void HostMemory::all_reduce(c10d::ReduceOp::RedOpType op, const std::vector<at::Tensor>& rows,
                            const at::Tensor& output) {
  if (rows.size() <= kFewMembers || output.nbytes() <= kWholeBytes) {
    return reduce_rows(op, rows, output);
  }
  const auto share_of = [&](const at::Tensor& tensor, std::size_t member) {
    const std::int64_t count = tensor.numel();
    const auto members = static_cast<std::int64_t>(rows.size());
    const auto place = static_cast<std::int64_t>(member);
    const std::int64_t start = count * place / members;
    return tensor.view({-1}).narrow(0, start, count * (place + 1) / members - start);
  };
  const std::size_t own = place_->member();
  std::vector<at::Tensor> shares;
  for (const at::Tensor& row : rows) shares.push_back(share_of(row, own));
  const at::Tensor reduced = share_of(output, own);
  reduce_rows(op, shares, reduced);
  // Nobody else reads that part of its row.
  shares[own].copy_(reduced);
  place_->meet(limit());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i != own) share_of(output, i).copy_(share_of(rows[i], i));
  }
}

at::Tensor HostMemory::gather(const at::Tensor& row) {
  const std::uint64_t number = show_when_free(row);
  at::Tensor gathered = at::stack(rows(number, row.sizes(), row.options()));
  let_go(number);
  return gathered;
}

}  // namespace torch_xla::aten
