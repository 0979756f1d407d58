// Allocation and freeing of nodes.
#include "graph/node.h"

#include <cstdlib>
#include <new>

#include "base/error.h"
#include "base/pool.h"

namespace torch_xla::graph {
namespace {

const DataPtr kNoData;

}  // namespace

Node::Edge* Node::edges() const { return reinterpret_cast<Edge*>(const_cast<Node*>(this) + 1); }

std::span<const std::uint64_t> Node::slots() const {
  return {reinterpret_cast<const std::uint64_t*>(edges() + max_operands_), num_slots_};
}

std::size_t Node::size(std::uint32_t num_operands, std::uint32_t num_slots) {
  return sizeof(Node) + num_operands * sizeof(Edge) + num_slots * sizeof(std::uint64_t);
}

Node* Node::allocate(const Entry* entry, std::uint32_t num_operands, std::uint32_t num_slots) {
  Node* node = new (base::pool_allocate(size(num_operands, num_slots))) Node();
  node->num_operands_ = num_operands;
  node->max_operands_ = num_operands;
  node->num_slots_ = num_slots;
  node->entry_ = entry;
  return node;
}

NodeRef Node::make(const Entry* entry, std::span<const Value> operands,
                   std::span<const std::uint64_t> slots) {
  Node* node = allocate(entry, static_cast<std::uint32_t>(operands.size()),
                        static_cast<std::uint32_t>(slots.size()));
  node->num_outputs_ = static_cast<std::uint32_t>(entry->outputs.size());
  if (locations_are_wanted.load(std::memory_order_relaxed)) [[unlikely]]
    node->location_ = noted_location();
  Edge* edge = node->edges();
  for (const Value& operand : operands) {
    operand.node->retain();
    *edge++ = {operand.node.get(), operand.output};
  }
  auto* numbers = reinterpret_cast<std::uint64_t*>(node->edges() + node->max_operands_);
  for (const std::uint64_t slot : slots) *numbers++ = slot;
  return NodeRef::adopt(node);
}

NodeRef Node::make_leaf(DataPtr data) {
  Node* node = allocate(nullptr, 0, 0);
  node->data_ = std::make_unique<DataPtr[]>(1);
  node->data_[0] = std::move(data);
  return NodeRef::adopt(node);
}

const base::Shape& Node::shape(std::uint32_t output) const {
  if (entry_ == nullptr) return data_[0]->shape();
  return entry_->outputs[output]->shape;
}

const DataPtr& Node::data(std::uint32_t output) const {
  return data_ == nullptr ? kNoData : data_[output];
}

void Node::set_data(std::uint32_t output, DataPtr data) {
  if (data_ == nullptr) data_ = std::make_unique<DataPtr[]>(num_outputs_);
  data_[output] = std::move(data);
}

bool Node::is_computed() const {
  if (data_ == nullptr) return false;
  for (std::uint32_t i = 0; i < num_outputs_; ++i) {
    if (data_[i] == nullptr && (entry_ == nullptr || entry_->outputs[i] != nullptr)) return false;
  }
  return true;
}

void Node::drop_operands(std::vector<NodeRef>& garbage) {
  for (std::uint32_t i = 0; i < num_operands_; ++i) {
    garbage.push_back(NodeRef::adopt(edges()[i].node));
  }
  num_operands_ = 0;
}

void Node::take_operands_back() {
  num_operands_ = max_operands_;
  for (const Edge& edge : operands()) edge.node->retain();
}

void Node::destroy() {
  const std::size_t bytes = size(max_operands_, num_slots_);
  this->~Node();
  base::pool_free(this, bytes);
}

void Node::release() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Node* dead = this;
  dead->next_dead_ = nullptr;
  while (dead != nullptr) {
    Node* node = dead;
    dead = node->next_dead_;
    for (const Edge& edge : node->operands()) {
      if (edge.node->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        edge.node->next_dead_ = dead;
        dead = edge.node;
      }
    }
    node->destroy();
  }
}

}  // namespace torch_xla::graph
