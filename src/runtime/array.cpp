// The states of an array, the errors of asynchronous work, and the list for shutdowns.
#include "runtime/array.h"

#include <algorithm>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include "base/error.h"
#include "runtime/device.h"
#include "runtime/interruption.h"
#include "runtime/origin.h"
#include "runtime/recovery.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {
namespace {

// "graph 1f0c..., of 120 operations (started at train.py:12)"
std::string launch_text(const LaunchDescription& launch) {
  return launch.where.empty() ? launch.program
                              : base::str(launch.program, " (started at ", launch.where, ")");
}

std::string failure_text(const LaunchDescription& launch, const char* what) {
  std::string text = base::str(
      "running ", launch_text(launch), " failed: ", what, "; its ", launch.num_outputs,
      launch.can_run_again ? " results are computed anew if they are read" : " results are lost");
  if (launch.num_donated > 0) {
    text += base::str(", and so are ", launch.num_donated, " inputs that they were to replace");
  }
  if (launch.num_kept > 0) {
    text += base::str("; the ", launch.num_kept, " tensors that it was to change are as before");
  }
  return text;
}

// Where threads wait that have to look up from time to time, which an atomic has no way to do.
// There are few of them: one place for all arrays.
struct WaitingPlace {
  std::mutex mutex;
  std::condition_variable changed;
};

WaitingPlace& waiting_place() {
  static auto* const instance = new WaitingPlace();
  return *instance;
}

// Guards what arrays keep of what they replace, and where failed ones come from: only failures, and
// reads that a barrier overtakes, need it.
std::mutex& replaced_mutex() {
  static auto* const mutex = new std::mutex();
  return *mutex;
}

}  // namespace

std::exception_ptr launch_error(const LaunchDescription& launch, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const base::Error& e) {
    return std::make_exception_ptr(base::Error(e.kind(), failure_text(launch, e.what())));
  } catch (const std::exception& e) {
    return std::make_exception_ptr(
        base::Error(base::ErrorKind::kRuntime, failure_text(launch, e.what())));
  }
}

std::string describe_memory(Device& device) {
  constexpr std::size_t kMaxLines = 20;
  struct Group {
    std::size_t count = 0;
    std::int64_t num_bytes = 0;
  };
  std::map<std::string, Group> groups;  // alike in shape and line
  for (const LiveArray& array : device.arrays().list()) {
    Group& group = groups[base::str(base::to_string(array.shape), " made at ",
                                    array.where.empty() ? "an unknown line" : array.where)];
    ++group.count;
    group.num_bytes += array.num_bytes;
  }
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.num_bytes > b.second.num_bytes;
  });
  std::string text = base::str("live buffers of xla:", device.ordinal(), ", ",
                               device.arrays().num_bytes(), " bytes in all:");
  for (std::size_t i = 0; i < sorted.size() && i < kMaxLines; ++i) {
    const Group& group = sorted[i].second;
    text += base::str("\n  ", group.num_bytes, " bytes: ", group.count, " x ", sorted[i].first);
  }
  if (sorted.size() > kMaxLines) {
    text += base::str("\n  and ", sorted.size() - kMaxLines, " smaller kinds");
  }
  if (!graph::locations_are_wanted.load()) {
    text += "\n  (lines are those of barriers and uploads; XLA_IR_DEBUG=1 gives the operations')";
  }
  return text;
}

std::exception_ptr with_memory(Device& device, const base::Error& error) {
  if (error.kind() != base::ErrorKind::kOutOfMemory) return std::make_exception_ptr(error);
  return std::make_exception_ptr(
      base::Error(error.kind(), base::str(error.what(), "\n", describe_memory(device), "\n")));
}

Array::Array(Device& device, base::Shape shape, const base::Sharding* sharding)
    : graph::Data(std::move(shape)), device_(&device), sharding_(sharding) {
  base::internal_check(num_shards(sharding) == device.num_devices(), "an array of ",
                       num_shards(sharding), " shards on ", device.num_devices(), " devices");
  device_->arrays().add(*this);
}

Array::~Array() {
  if (holds_memory()) device_->arrays().count(-num_bytes());
  device_->arrays().remove(*this);
}

std::int64_t Array::num_bytes() const {
  if (has_room()) return memory_shape().num_bytes();
  const auto num_buffers = static_cast<std::int64_t>(device_->pjrt_devices().size());
  return base::local_shape(shape(), sharding_).num_bytes() * num_buffers;
}

bool Array::is_complete() const {
  if (!device_->spans_processes() || base::is_whole(sharding_)) return true;
  std::set<base::Dims> missing;  // where the parts begin
  for (std::size_t place = 0; place < device_->num_devices(); ++place) {
    missing.insert(sharding_->slice(shape(), place).starts);
  }
  for (std::size_t i = 0; i < device_->pjrt_devices().size(); ++i) {
    missing.erase(sharding_->slice(shape(), device_->place_of(i)).starts);
  }
  return missing.empty();
}

bool Array::holds_memory() const {
  return state_.load(std::memory_order_acquire) == kLaunched && !is_taken_.load();
}

ArrayPtr Array::make_pending(Device& device, base::Shape shape, const base::Sharding* sharding) {
  return ArrayPtr(new Array(device, std::move(shape), sharding));
}

ArrayPtr Array::make_pending(Device& device, base::Shape shape) {
  return make_pending(device, std::move(shape), device.whole());
}

ArrayPtr Array::make_launched(Device& device, std::vector<pjrt::Buffer> buffers, base::Shape shape,
                              const base::Sharding* sharding) {
  ArrayPtr array = make_pending(device, std::move(shape), sharding);
  array->set_launched(std::move(buffers), nullptr);
  return array;
}

void Array::set_taken() {
  if (!is_taken_.exchange(true)) device_->arrays().count(-num_bytes());
}

std::exception_ptr Array::await_launch() const {
  if (is_pending()) {
    const WatchedWait watched([this] { return base::str("the launch of ", description()); });
    await_state();
  }
  return error();
}

void Array::wait_launched() {
  await_launch();
  if (can_be_revived()) {
    Array* const self = this;
    revive(*device_, std::span(&self, 1));
  }
  if (const std::exception_ptr error = this->error()) {
    restore_values(*device_, error);
    std::rethrow_exception(error);
  }
}

void Array::await_state() const {
  if (!is_interruptible()) {
    for (int state = state_.load(); state <= kKeeping; state = state_.load()) {
      state_.wait(state, std::memory_order_acquire);
    }
    return;
  }
  std::unique_lock lock(waiting_place().mutex);
  is_awaited_.store(true);
  wait_interruptibly(waiting_place().changed, lock, [this] { return !is_pending(); });
}

// Either this sees that the array is awaited, or who waits sees the state.
int Array::set_state(State state) {
  const int before = state_.exchange(state);
  state_.notify_all();
  if (is_awaited_.load()) {
    const std::lock_guard lock(waiting_place().mutex);
    waiting_place().changed.notify_all();
  }
  return before;
}

Array* as_array(const graph::DataPtr& data) {
  if (data == nullptr || typeid(*data) != typeid(Array)) return nullptr;
  return static_cast<Array*>(data.get());
}

void Array::wait_ready() {
  wait_launched();
  await_value();
}

void Array::await_value() const {
  for (const pjrt::Buffer& shard : buffers_) {
    try {
      await_watched_interruptibly(shard.ready_event(), [this] {
        return launch_ == nullptr
                   ? base::str("the copy of ", description())
                   : base::str(launch_text(*launch_), " on xla:", device_->ordinal());
      });
    } catch (const pjrt::Error& error) {
      raise(error);
    }
  }
}

std::string Array::description() const {
  const std::string where = graph::to_string(location());
  return base::str(base::to_string(shape()), " on xla:", device_->ordinal(),
                   where.empty() ? "" : ", made at ", where);
}

bool Array::is_ready() const {
  if (is_pending()) return false;
  if (is_failed()) return true;
  for (const pjrt::Buffer& shard : buffers_) {
    if (!shard.ready_event().is_ready()) return false;
  }
  return true;
}

const std::vector<pjrt::Buffer>& Array::buffers() const {
  const int state = state_.load(std::memory_order_acquire);
  if (state == kFailed) std::rethrow_exception(error_);
  base::internal_check(state == kLaunched, "the buffer of a pending array was asked for");
  return has_room() ? buffers_without_room() : buffers_;
}

void Array::set_launched(std::vector<pjrt::Buffer> buffers, LaunchDescriptionPtr launch,
                         base::Dims room) {
  buffers_ = std::move(buffers);
  if (room != shape().dims) room_ = std::move(room);
  launch_ = std::move(launch);
  device_->arrays().count(num_bytes());
  if (set_state(kLaunched) != kKeeping) return;
  std::vector<std::pair<std::uint64_t, graph::DataPtr>> freed;
  const std::lock_guard lock(replaced_mutex());
  freed.swap(replaced_);
}

void Array::add_replaced(std::uint64_t alias, graph::DataPtr before) {
  if (before == nullptr || state_.load() == kLaunched) return;
  const std::lock_guard lock(replaced_mutex());
  int state = kPending;
  state_.compare_exchange_strong(state, kKeeping);
  if (state != kLaunched) replaced_.emplace_back(alias, std::move(before));
}

graph::DataPtr Array::take_replaced(std::uint64_t alias) {
  const std::lock_guard lock(replaced_mutex());
  const auto found = std::ranges::find(replaced_, alias, &decltype(replaced_)::value_type::first);
  if (found == replaced_.end()) return nullptr;
  graph::DataPtr before = std::move(found->second);
  replaced_.erase(found);
  return before;
}

void Array::set_failed(std::exception_ptr error, ResultOf origin) {
  {
    const std::lock_guard lock(replaced_mutex());
    std::swap(origin_, origin);  // what it was is freed without the lock
  }
  is_raised_.store(false);
  error_ = std::move(error);
  set_state(kFailed);
}

ResultOf Array::origin() const {
  const std::lock_guard lock(replaced_mutex());
  return origin_;
}

void Array::become(Array& computed) {
  ResultOf freed;
  std::vector<std::pair<std::uint64_t, graph::DataPtr>> before;
  const std::lock_guard lock(replaced_mutex());
  if (!is_failed()) return;  // another thread was faster
  std::swap(origin_, freed);
  replaced_.swap(before);
  computed.set_taken();
  buffers_ = std::move(computed.buffers_);
  room_ = computed.room_;  // stays where lists of what is alive may read it
  launch_ = computed.launch_;
  device_->arrays().count(num_bytes());
  set_state(kLaunched);
}

void Array::raise(const pjrt::Error& error) const {
  if (launch_ == nullptr && error.kind() != base::ErrorKind::kOutOfMemory) throw error;
  const std::exception_ptr explained = with_memory(*device_, error);
  std::rethrow_exception(launch_ == nullptr ? explained : launch_error(*launch_, explained));
}

void ArrayList::count(std::int64_t num_bytes) {
  const std::int64_t now = num_bytes_.fetch_add(num_bytes, std::memory_order_relaxed) + num_bytes;
  std::int64_t peak = peak_num_bytes();
  while (peak < now && !peak_num_bytes_.compare_exchange_weak(peak, now)) continue;
}

std::vector<LiveArray> ArrayList::list() {
  std::vector<LiveArray> arrays;
  {
    const std::lock_guard lock(mutex_);
    for (const Array* array = first_; array != nullptr; array = array->next_) {
      if (!array->holds_memory()) continue;
      LiveArray& entry = arrays.emplace_back();
      entry.shape = array->shape();
      entry.num_bytes = array->num_bytes();
      entry.where = graph::to_string(array->location());
      if (entry.where.empty() && array->launch_ != nullptr) entry.where = array->launch_->where;
    }
  }
  std::stable_sort(arrays.begin(), arrays.end(), [](const LiveArray& a, const LiveArray& b) {
    return a.num_bytes > b.num_bytes;
  });
  return arrays;
}

void ArrayList::add(Array& array) {
  const std::lock_guard lock(mutex_);
  array.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &array;
  first_ = &array;
}

void ArrayList::remove(Array& array) {
  const std::lock_guard lock(mutex_);
  if (array.previous_ != nullptr) {
    array.previous_->next_ = array.next_;
  } else {
    first_ = array.next_;
  }
  if (array.next_ != nullptr) array.next_->previous_ = array.previous_;
}

void ArrayList::spread(const std::vector<pjrt::Device*>& devices, const base::Sharding* whole) {
  const std::lock_guard lock(mutex_);
  for (const Array* array = first_; array != nullptr; array = array->next_) {
    base::check(!array->is_pending(), "use_spmd: ", array->description(),
                " is still to be computed; call torch_xla.sync(wait=True) first");
  }
  for (Array* array = first_; array != nullptr; array = array->next_) {
    if (array->holds_memory()) {
      for (std::size_t i = 1; i < devices.size(); ++i) {
        array->buffers_.push_back(array->buffers_[0].copy_to_device(devices[i]));
        count(array->shape().num_bytes());
      }
    }
    array->sharding_ = whole;
  }
}

void ArrayList::release_all(const std::exception_ptr& error) {
  std::vector<ResultOf> freed;  // without the lock: arrays are in the list until they are
  const std::lock_guard lock(mutex_);
  for (Array* array = first_; array != nullptr; array = array->next_) {
    if (array->holds_memory()) count(-array->num_bytes());
    array->buffers_.clear();
    array->without_room_.clear();
    freed.push_back(array->origin());
    array->set_failed(error);
  }
}

}  // namespace torch_xla::runtime
