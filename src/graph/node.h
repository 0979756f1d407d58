// Nodes of the lazy graph. A node is one recorded call: a pointer to its memo entry, its operands
// and the numbers that travel with it, in one allocation. A leaf is a node without an entry that
// holds an array. Nodes are immutable but for what running a program does to them under the
// device's lock: it attaches results and then drops the operands.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/shape.h"
#include "graph/entry.h"
#include "graph/location.h"
#include "graph/ref.h"

namespace torch_xla::graph {

// An array on a device, as the graph sees it; `runtime::Array` is the one implementation.
class Data {
 public:
  explicit Data(base::Shape shape) : shape_(std::move(shape)) {}
  virtual ~Data() = default;
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  const base::Shape& shape() const { return shape_; }

 private:
  friend class Walker;
  base::Shape shape_;
  // Where the walk with this number put it; written under the device's lock.
  std::uint64_t walk_ = 0;
  std::uint32_t walk_index_ = 0;
};
using DataPtr = std::shared_ptr<Data>;

class Node;
using NodeRef = Ref<Node>;

// One output of a node.
struct Value {
  NodeRef node;
  std::uint32_t output = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
  friend bool operator==(const Value&, const Value&) = default;
};

class Node {
 public:
  struct Edge {
    Node* node;  // owned
    std::uint32_t output;
  };

  // The numbers must be as many as the entry's slots.
  static NodeRef make(const Entry* entry, std::span<const Value> operands,
                      std::span<const std::uint64_t> slots);
  static NodeRef make_leaf(DataPtr data);

  const Entry* entry() const { return entry_; }  // null for a leaf
  std::span<const Edge> operands() const { return {edges(), num_operands_}; }
  std::span<const std::uint64_t> slots() const;
  std::uint32_t num_outputs() const { return num_outputs_; }
  // Where it was recorded; 0 unless someone wanted to know.
  Location location() const { return location_; }
  // For people alone: no key depends on it. Under the device's lock.
  void set_location(Location location) { location_ = location; }
  const base::Shape& shape(std::uint32_t output) const;
  // The number of the alias whose memory held this constant first, if that was written since; 0.
  // Under the device's lock.
  std::uint64_t born_as() const { return born_as_; }
  void set_born_as(std::uint64_t alias) { born_as_ = alias; }

  // The array of an output, or null while it has not been computed. Under the device's lock.
  const DataPtr& data(std::uint32_t output) const;
  void set_data(std::uint32_t output, DataPtr data);
  // True when every output has been computed.
  bool is_computed() const;
  // Moves the operands to `garbage`, to be freed outside the lock. What is dropped can't be
  // computed from this node any more.
  void drop_operands(std::vector<NodeRef>& garbage);
  // Undoes it, by whoever did and still has that garbage.
  void take_operands_back();

  std::uint32_t use_count() const { return refs_.load(std::memory_order_acquire); }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  // Freeing the last reference frees the chain behind it in a loop, never by recursion: a graph may
  // be a million nodes deep.
  void release();

 private:
  friend class Walker;
  Node() = default;
  ~Node() = default;
  Edge* edges() const;
  static std::size_t size(std::uint32_t num_operands, std::uint32_t num_slots);
  static Node* allocate(const Entry* entry, std::uint32_t num_operands, std::uint32_t num_slots);
  void destroy();

  std::atomic<std::uint32_t> refs_{1};
  std::uint32_t num_operands_ = 0;
  std::uint32_t max_operands_ = 0;  // where the slots begin, also after the operands were dropped
  std::uint32_t num_slots_ = 0;
  std::uint32_t num_outputs_ = 1;
  Location location_ = 0;
  const Entry* entry_ = nullptr;
  std::uint64_t born_as_ = 0;
  std::unique_ptr<DataPtr[]> data_;

  // Of the walk with number `walk_`: the place in its order and the edges seen to this node. When
  // the node is being freed, `next_dead_` chains it to those that wait.
  std::uint64_t walk_ = 0;
  std::uint32_t walk_index_ = 0;
  std::uint32_t walk_uses_ = 0;
  Node* next_dead_ = nullptr;
};

}  // namespace torch_xla::graph
