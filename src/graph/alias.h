// What tensors share: an Alias is the memory that a base tensor and its views stand for, as a lazy
// value that writes replace. A View says how to read a tensor out of its alias and how to write it
// back. LiveSet holds a device's aliases, which are what a barrier computes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/pool.h"
#include "base/sharding.h"
#include "graph/node.h"

namespace torch_xla::graph {

class LiveSet;

// One step from a parent's value to a view of it. Immutable and shared by the views behind it.
class View : public base::Pooled {
 public:
  // `forward` maps (parent) to the view, `inverse` maps (parent, new view) to the new parent; both
  // take the same slots.
  View(Ref<View> parent, const Entry* forward, const Entry* inverse,
       std::vector<std::uint64_t> slots)
      : parent_(std::move(parent)),
        forward_(forward),
        inverse_(inverse),
        slots_(std::move(slots)) {}

  const Ref<View>& parent() const { return parent_; }
  const Op& op() const { return *forward_->op; }
  const Entry& forward() const { return *forward_; }
  const TensorType* type() const { return forward_->outputs[0]; }
  const std::vector<std::uint64_t>& slots() const { return slots_; }
  Value read(const Value& parent) const;
  Value write(const Value& parent, const Value& update) const;

  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  std::atomic<std::uint32_t> refs_{1};
  Ref<View> parent_;
  const Entry* forward_;
  const Entry* inverse_;
  std::vector<std::uint64_t> slots_;
};
using ViewRef = Ref<View>;

class Alias : public base::Pooled {
 public:
  // Joins `live`, whose lock the caller must not hold.
  static Ref<Alias> make(LiveSet& live, const TensorType* type, Value value);

  LiveSet& live() const { return *live_; }
  const TensorType* type() const { return type_; }
  // No other alias of the device has had it, or will.
  std::uint64_t number() const { return number_; }

  // The members below are read and written under the LiveSet's lock.
  const Value& value() const { return value_; }
  // Replaces what the memory holds, or its value by an equal one (its leaf, after a barrier). Views
  // must be read anew. A constant that it held before any barrier is what it was born as.
  void write(Value value, std::vector<NodeRef>& garbage);
  // Views must be read anew: what they were read as can't be computed any more.
  void expire_views() { ++epoch_; }
  // Counts writes: a view read at another epoch is stale.
  std::uint64_t epoch() const { return epoch_; }
  // The array that the value was when a barrier last computed or an upload made it. The step that
  // writes the alias may donate that array to its new value.
  const DataPtr& settled() const { return settled_; }
  // Returns what it was before.
  DataPtr settle(DataPtr data) { return std::exchange(settled_, std::move(data)); }
  // A barrier has made memory of what it was born as, since when no other has come.
  bool is_newborn() const { return is_newborn_; }
  void set_newborn(bool is_newborn) { is_newborn_ = is_newborn; }
  void set_type(const TensorType* type) { type_ = type; }
  // How the user wants the memory to lie on a mesh; null: nothing was said of it.
  const base::Sharding* sharding() const { return sharding_; }
  void set_sharding(const base::Sharding* sharding) { sharding_ = sharding; }
  // Where programs are told that this memory is. 0 until one asked.
  std::uint64_t address() const { return address_; }
  void set_address(std::uint64_t address) { address_ = address; }

  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  friend class LiveSet;
  Alias() = default;
  ~Alias() = default;

  std::atomic<std::uint32_t> refs_{1};
  LiveSet* live_ = nullptr;
  std::uint64_t number_ = 0;
  const TensorType* type_ = nullptr;
  const base::Sharding* sharding_ = nullptr;
  Value value_;
  std::uint64_t epoch_ = 1;
  std::uint64_t address_ = 0;
  DataPtr settled_;
  bool is_newborn_ = false;
  Alias* previous_ = nullptr;
  Alias* next_ = nullptr;
};
using AliasRef = Ref<Alias>;

// What a view tensor remembers of its last read.
struct ViewCache {
  Value value;
  std::uint64_t epoch = 0;
};

// The current value of `view` of `alias` (of the alias itself when null). Under the lock, as is the
// use of what is returned.
const Value& read_view(const Alias& alias, const View* view, ViewCache& cache,
                       std::vector<NodeRef>& garbage);
// Writes `update`, of the view's type, through `view` into the alias. Under the lock.
void write_view(Alias& alias, const View* view, Value update, ViewCache& cache,
                std::vector<NodeRef>& garbage);

// The aliases of one device in the order of their making. `mutex` is the device's recording lock:
// held for the building of a node or the walk of a graph, never while something runs or waits.
class LiveSet {
 public:
  LiveSet();
  LiveSet(const LiveSet&) = delete;
  LiveSet& operator=(const LiveSet&) = delete;

  std::mutex mutex;

  // Calls `visit(Alias&)` for each. Under the lock.
  template <typename F>
  void for_each(F&& visit) {
    for (Alias* alias = head_.next_; alias != &head_; alias = alias->next_) visit(*alias);
  }
  std::size_t size() const { return size_; }  // under the lock

  // Under the lock: counts one recorded operation. True now and then, when it is worth comparing
  // `num_recorded` with a limit.
  bool count_recorded() {
    if (!recording_since_.has_value()) recording_since_ = std::chrono::steady_clock::now();
    return (++num_recorded_ & (kCountsPerLook - 1)) == 0;
  }
  // When the first operation was recorded since the last call of this; none if none was.
  std::optional<std::chrono::steady_clock::time_point> take_recording_since() {
    return std::exchange(recording_since_, std::nullopt);
  }
  // Since the last barrier.
  std::uint64_t num_recorded() const { return num_recorded_; }
  void reset_recorded() { num_recorded_ = 0; }

  // How often an alias was written, or a tensor made to stand for other memory: while it stays the
  // same, so does what each tensor shows. Counted under the lock; without it, others may be
  // counting.
  std::uint64_t num_writes() const { return num_writes_.load(std::memory_order_relaxed); }
  void count_write() { num_writes_.store(num_writes() + 1, std::memory_order_relaxed); }

  // Under the lock: an alias that joins while the caller records.
  AliasRef add_locked(const TensorType* type, Value value);

 private:
  friend class Alias;
  static constexpr std::uint64_t kCountsPerLook = 1024;
  Alias head_;
  std::size_t size_ = 0;
  std::uint64_t num_made_ = 0;
  std::uint64_t num_recorded_ = 0;
  std::optional<std::chrono::steady_clock::time_point> recording_since_;
  std::atomic<std::uint64_t> num_writes_{0};
};

}  // namespace torch_xla::graph
