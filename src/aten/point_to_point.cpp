// One member sends, another receives, on the host. A sender does not wait: what it gives is copied,
// and kept until it has gone. In front of each tensor goes what it is, so that a receiver of
// another kind says so.
//
// A channel does not say whom it joins. Each of its ends sets a key of the group's store when it
// records a message (`join_channel` of python/torch_xla/_replicas/meetings.py), and the program of
// the other waits for that key.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "aten/collectives.h"
#include "aten/groups.h"
#include "aten/tensor.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/settings.h"
#include "runtime/watched_wait.h"

namespace torch_xla::aten {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Tags below are those of `collective_permute`. Above kTags are channels, and above twice as many
// CPU tensors, which are sent at the call (python/torch_xla/_replicas/functional.py).
constexpr int kFirstTag = 8;
constexpr int kTags = 1 << 28;
constexpr std::int64_t kOfChannel = -1;  // in the place of a member
constexpr std::chrono::milliseconds kPollInterval{2};
constexpr int kRoundsBetweenEnds = 50;
constexpr std::int64_t kWords = 12;  // of a description: dtype, rank, sizes as far as they fit

// What a member has said in its group's store at the end of its program (`finish` of
// python/torch_xla/_replicas/meetings.py): that it records nothing more, and that it takes nothing
// more. False where the store has ended itself.
bool has_said(c10d::Store& store, std::int64_t member, const char* what) {
  try {
    return store.check({base::str(member, " ", what)});
  } catch (const std::exception&) {
    return false;
  }
}

// What has been sent and may not have arrived; `works` refer to `tensors`.
struct Sent {
  std::string spoken;  // for a user: "what rank 0 sent ..."
  c10::intrusive_ptr<c10d::Store> store;
  std::int64_t dst = 0;
  std::vector<at::Tensor> tensors = {};
  std::vector<WorkPtr> works = {};

  void wait() const {
    for (const WorkPtr& work : works) work->wait();
  }
};

class Outbox {
 public:
  void add(Sent sent) {
    std::shared_ptr<Sent> oldest;
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back(std::make_shared<Sent>(std::move(sent)));
      if (sent_.size() > kMost) {
        oldest = std::move(sent_.front());
        sent_.pop_front();
      }
    }
    if (oldest == nullptr) return;
    try {
      oldest->wait();
    } catch (const std::exception& error) {
      base::fail(base::ErrorKind::kRuntime, oldest->spoken, " did not arrive: ", error.what());
    }
  }
  void add_lost(std::string spoken) {
    const std::lock_guard lock(mutex_);
    lost_.push_back(std::move(spoken));
  }
  std::vector<std::string> finish() {
    std::deque<std::shared_ptr<Sent>> all;
    std::vector<std::string> lost;
    {
      const std::lock_guard lock(mutex_);
      all.swap(sent_);
      lost.swap(lost_);
    }
    std::set<std::pair<c10d::Store*, std::int64_t>> deaf;
    for (const std::shared_ptr<Sent>& sent : all) {
      const std::pair receiver(sent->store.get(), sent->dst);
      if (arrives(sent, deaf.contains(receiver) ? kArrivalInterval : kGrace)) continue;
      deaf.insert(receiver);
      lost.push_back(sent->spoken);
    }
    return lost;
  }

 private:
  // So many are on their way before a sender waits.
  static constexpr std::size_t kMost = 256;
  static constexpr std::chrono::milliseconds kArrivalInterval{20};
  // The last of what a receiver takes may still be on its way when it has ended.
  static constexpr std::chrono::milliseconds kGrace{1000};

  // Waits for that, or until the receiver has ended. A gloo work that was waited for with a limit
  // closes its connection, so that a thread waits, and may go on waiting, without one.
  static bool arrives(const std::shared_ptr<Sent>& sent, std::chrono::milliseconds grace) {
    std::packaged_task<void()> waiting([sent] { sent->wait(); });
    std::future<void> arrival = waiting.get_future();
    std::thread(std::move(waiting)).detach();
    bool is_last_chance = false;
    while (arrival.wait_for(is_last_chance ? grace : kArrivalInterval) !=
           std::future_status::ready) {
      if (is_last_chance) return false;
      is_last_chance = has_said(*sent->store, sent->dst, "has ended");
    }
    try {
      arrival.get();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  std::mutex mutex_;
  // Both under mutex_.
  std::deque<std::shared_ptr<Sent>> sent_;
  std::vector<std::string> lost_;
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

int tag_of(std::int64_t tag) { return kFirstTag + 2 * static_cast<int>(tag); }
int tag_of_channel(std::int64_t channel) { return tag_of(channel + kTags); }

using StorePtr = c10::intrusive_ptr<c10d::Store>;

bool are_others_at_their_end(c10d::ProcessGroup& group) {
  for (int member = 0; member < group.getSize(); ++member) {
    if (member != group.getRank() && !has_said(*group.getStore(), member, "is at its end"))
      return false;
  }
  return true;
}

// Waits until a member has said that it is this end, "sender" or "receiver", of the channel.
std::int64_t wait_for_end(c10d::ProcessGroup& group, std::int64_t channel, const std::string& end) {
  const StorePtr store = group.getStore();
  const std::string key = base::str("channel ", channel, " ", end);
  const runtime::WatchedWait watched(
      [=] { return base::str("a ", end, " on channel ", channel, ", which nobody is yet"); });
  const std::chrono::duration<double> limit(base::settings().collective_timeout());
  const auto start = std::chrono::steady_clock::now();
  // A store that waits can't be asked anything else in the meantime.
  for (int round = 1; !store->check({key}); ++round) {
    if (round % kRoundsBetweenEnds == 0 && are_others_at_their_end(group) && !store->check({key})) {
      base::fail(base::ErrorKind::kRuntime, "no replica became the ", end, " on channel ", channel,
                 ", and all others have ended");
    }
    if (std::chrono::steady_clock::now() - start > limit) {
      base::fail(base::ErrorKind::kRuntime, "no replica became the ", end, " on channel ", channel,
                 " within ", limit.count(), " s");
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return std::stoll(store->get_to_str(key));
}

// Who is at the ends of channels. The stores live on, so that no other one has their address.
class Ends {
 public:
  std::int64_t find(c10d::ProcessGroup& group, std::int64_t channel, const char* end) {
    const StorePtr store = group.getStore();
    const std::tuple place(store.get(), channel, std::string(end));
    {
      const std::lock_guard lock(mutex_);
      const auto known = ends_.find(place);
      if (known != ends_.end()) return known->second.second;
    }
    const std::int64_t member = wait_for_end(group, channel, end);
    const std::lock_guard lock(mutex_);
    ends_.insert_or_assign(place, std::pair(store, member));
    return member;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<c10d::Store*, std::int64_t, std::string>, std::pair<StorePtr, std::int64_t>>
      ends_;
};

Ends& ends() {
  static auto* const instance = new Ends();
  return *instance;
}

at::Tensor send(const at::Tensor& input, std::int64_t dst, std::int64_t tag,
                const std::string& group_name) {
  const auto group = c10d::resolve_process_group(group_name);
  const bool is_channel = dst == kOfChannel;
  const int first_tag = is_channel ? tag_of_channel(tag) : tag_of(tag);
  const std::vector<std::int64_t> members = members_of(group_name);
  const std::string from =
      base::str("what replica ", members.at(static_cast<std::size_t>(group->getRank())), " sent ");
  if (is_channel) {
    try {
      dst = ends().find(*group, tag, "receiver");
    } catch (const std::exception&) {
      outbox().add_lost(base::str(from, "on channel ", tag));
      throw;
    }
  }
  const std::int64_t rank = members.at(static_cast<std::size_t>(dst));
  Sent sent{.spoken = is_channel ? base::str(from, "on channel ", tag, " to replica ", rank)
                                 : base::str(from, "to replica ", rank, " with tag ", tag % kTags),
            .store = group->getStore(),
            .dst = dst};
  sent.tensors = {description_of(input)};
  if (input.numel() > 0) sent.tensors.push_back(input.clone());
  for (std::size_t i = 0; i < sent.tensors.size(); ++i) {
    std::vector<at::Tensor> one{sent.tensors[i]};
    sent.works.push_back(group->send(one, static_cast<int>(dst), first_tag + static_cast<int>(i)));
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
  const bool is_channel = src == kOfChannel;
  const int first_tag = is_channel ? tag_of_channel(tag) : tag_of(tag);
  if (is_channel) src = ends().find(*group, tag, "sender");
  const std::int64_t rank = members_of(group_name).at(static_cast<std::size_t>(src));
  at::Tensor output = at::empty_like(like);
  const at::Tensor expected = description_of(like);
  at::Tensor found = at::zeros_like(expected);
  const runtime::WatchedWait watched([=] { return base::str("a message from rank ", rank); });
  try {
    std::optional<at::Tensor> description;
    if (!is_channel) description = opened().take({group_name, src, tag});
    if (description.has_value()) {
      found = std::move(*description);
    } else {
      receive(*group, found, src, first_tag);
    }
    if (at::equal(found, expected)) {
      if (like.numel() > 0) receive(*group, output, src, first_tag + 1);
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

std::vector<std::string> finish_sends() { return outbox().finish(); }

}  // namespace torch_xla::aten
