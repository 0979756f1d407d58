// One member sends, another receives, on the host. A sender does not wait: what it gives is copied,
// and kept until it has gone. In front of each tensor goes what it is, so that a receiver of
// another kind says so.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "aten/collectives.h"
#include "aten/tensor.h"
#include "base/dtype.h"
#include "base/error.h"
#include "runtime/watched_wait.h"

namespace torch_xla::aten {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Tags below are those of `collective_permute`.
constexpr int kFirstTag = 8;
constexpr int kTags = 1 << 20;
constexpr std::int64_t kWords = 12;  // of a description: dtype, rank, sizes as far as they fit

// What has been sent and may not have arrived; `works` refer to `tensors`.
struct Sent {
  std::vector<at::Tensor> tensors;
  std::vector<WorkPtr> works;
};

class Outbox {
 public:
  void add(Sent sent) {
    std::optional<Sent> oldest;
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back(std::move(sent));
      if (sent_.size() > kMost) {
        oldest = std::move(sent_.front());
        sent_.pop_front();
      }
    }
    if (oldest.has_value()) wait(*oldest);
  }
  void finish() {
    std::deque<Sent> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(sent_);
    }
    for (const Sent& sent : all) wait(sent);
  }

 private:
  // So many are on their way before a sender waits.
  static constexpr std::size_t kMost = 256;

  static void wait(const Sent& sent) {
    for (const WorkPtr& work : sent.works) work->wait();
  }

  std::mutex mutex_;
  std::deque<Sent> sent_;
};

// Programs may run while the process exits.
Outbox& outbox() {
  static auto* const instance = new Outbox();
  return *instance;
}

at::Tensor description_of(const at::Tensor& tensor) {
  at::Tensor description = at::zeros({kWords}, at::kLong);
  auto* const words = description.mutable_data_ptr<std::int64_t>();
  words[0] = static_cast<std::int64_t>(tensor.scalar_type());
  words[1] = tensor.dim();
  for (std::int64_t i = 0; i < std::min(tensor.dim(), kWords - 2); ++i) {
    words[2 + i] = tensor.size(i);
  }
  return description;
}

std::string spoken(const at::Tensor& description) {
  const auto* const words = description.const_data_ptr<std::int64_t>();
  const std::int64_t dims = std::clamp<std::int64_t>(words[1], 0, kWords - 2);
  return base::str(base::dtype_info(to_dtype(static_cast<at::ScalarType>(words[0]))).name,
                   " of size ", base::to_string(base::Dims(words + 2, words + 2 + dims)));
}

int tag_of(std::int64_t tag) { return kFirstTag + 2 * static_cast<int>(tag % kTags); }

at::Tensor send(const at::Tensor& input, std::int64_t dst, std::int64_t tag,
                const std::string& group_name) {
  const auto group = c10d::resolve_process_group(group_name);
  Sent sent;
  sent.tensors = {description_of(input)};
  if (input.numel() > 0) sent.tensors.push_back(input.clone());
  for (std::size_t i = 0; i < sent.tensors.size(); ++i) {
    std::vector<at::Tensor> one{sent.tensors[i]};
    sent.works.push_back(
        group->send(one, static_cast<int>(dst), tag_of(tag) + static_cast<int>(i)));
  }
  outbox().add(std::move(sent));
  return at::zeros({}, at::kLong);
}

// Descriptions that were received to see who sent them, and whose tensors were not received yet.
class Opened {
 public:
  // Sender and tag in a group.
  using Place = std::tuple<std::string, std::int64_t, std::int64_t>;

  void add(const Place& place, at::Tensor description) {
    const std::lock_guard lock(mutex_);
    descriptions_[place].push_back(std::move(description));
  }
  std::optional<at::Tensor> take(const Place& place) {
    const std::lock_guard lock(mutex_);
    const auto found = descriptions_.find(place);
    if (found == descriptions_.end()) return std::nullopt;
    at::Tensor first = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) descriptions_.erase(found);
    return first;
  }

 private:
  std::mutex mutex_;
  std::map<Place, std::deque<at::Tensor>> descriptions_;
};

Opened& opened() {
  static auto* const instance = new Opened();
  return *instance;
}

at::Tensor find_sender(const at::Tensor& /*like*/, std::int64_t tag,
                       const std::string& group_name) {
  const auto group = c10d::resolve_process_group(group_name);
  at::Tensor description = at::zeros({kWords}, at::kLong);
  std::vector<at::Tensor> one{description};
  const runtime::WatchedWait watched([] { return "a message from any rank"; });
  try {
    const WorkPtr work = group->recvAnysource(one, tag_of(tag));
    work->wait();
    const std::int64_t src = work->sourceRank();
    opened().add({group_name, src, tag}, std::move(description));
    return at::scalar_tensor(src, at::kLong);
  } catch (const std::exception& error) {
    base::fail(base::ErrorKind::kRuntime, "xla::recv: nothing came from any rank: ", error.what());
  }
}

void receive(c10d::ProcessGroup& group, at::Tensor& into, std::int64_t src, int tag) {
  std::vector<at::Tensor> one{into};
  group.recv(one, static_cast<int>(src), tag)->wait();
}

at::Tensor recv(const at::Tensor& like, std::int64_t src, std::int64_t tag,
                const std::string& group_name) {
  const auto group = c10d::resolve_process_group(group_name);
  const std::int64_t rank = members_of(group_name).at(static_cast<std::size_t>(src));
  at::Tensor output = at::empty_like(like);
  const at::Tensor expected = description_of(like);
  at::Tensor found = at::zeros_like(expected);
  const runtime::WatchedWait watched([=] { return base::str("a message from rank ", rank); });
  try {
    if (std::optional<at::Tensor> description = opened().take({group_name, src, tag})) {
      found = std::move(*description);
    } else {
      receive(*group, found, src, tag_of(tag));
    }
    if (at::equal(found, expected)) {
      if (like.numel() > 0) receive(*group, output, src, tag_of(tag) + 1);
      return output;
    }
  } catch (const std::exception& error) {
    base::fail(base::ErrorKind::kRuntime, "xla::recv: nothing came from rank ", rank, ": ",
               error.what());
  }
  base::fail(base::ErrorKind::kRuntime, "xla::recv: rank ", rank, " sent ", spoken(found), ", and ",
             spoken(expected), " was to be received");
}

TORCH_LIBRARY_IMPL(xla, CPU, m) {
  m.impl("send", send);
  m.impl("recv", recv);
  m.impl("find_sender", find_sender);
}

}  // namespace

void finish_sends() { outbox().finish(); }

}  // namespace torch_xla::aten
