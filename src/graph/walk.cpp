// Depth-first walk with an explicit stack. Nodes and leaves carry the walk's number and their place
// in it, so that no table of visited nodes is needed.
#include "graph/walk.h"

#include <atomic>
#include <bit>

namespace torch_xla::graph {

class Walker {
 public:
  Walker() : walk_(num_walks.fetch_add(1, std::memory_order_relaxed) + 1) { trace_.number = walk_; }

  static std::optional<std::uint32_t> find(const Trace& trace, const Data& data) {
    return data.walk_ == trace.number ? std::optional(data.walk_index_) : std::nullopt;
  }

  static std::optional<std::uint32_t> find(const Trace& trace, const Node& node) {
    const bool is_step = node.walk_ == trace.number && node.entry() != nullptr;
    return is_step ? std::optional(node.walk_index_) : std::nullopt;
  }

  Trace run(std::span<const Value> roots) {
    for (const Value& root : roots) {
      visit(root.node.get(), root.output);
      const Source source = source_of(root.node.get(), root.output);
      trace_.roots.push_back(source);
      if (!source.is_leaf) ++root.node->walk_uses_;
    }
    for (Trace::Step& step : trace_.steps) step.uses = step.node->walk_uses_;
    finish_keys();
    return std::move(trace_);
  }

 private:
  struct Pending {
    Node* node;
    std::uint32_t next_operand;
  };

  bool is_seen(const Node* node) const { return node->walk_ == walk_; }

  void add_leaf(const DataPtr& data) {
    if (data->walk_ == walk_) return;
    data->walk_ = walk_;
    data->walk_index_ = static_cast<std::uint32_t>(trace_.leaves.size());
    trace_.leaves.push_back(data);
  }

  Source source_of(Node* node, std::uint32_t output) const {
    if (const DataPtr& data = node->data(output)) return {data->walk_index_, 0, true};
    return {node->walk_index_, output, false};
  }

  void visit(Node* root, std::uint32_t output) {
    if (const DataPtr& data = root->data(output)) {
      add_leaf(data);
      return;
    }
    if (is_seen(root)) return;
    enter(root);
    while (!stack_.empty()) {
      Pending& top = stack_.back();
      if (top.next_operand == top.node->operands().size()) {
        append(top.node);
        stack_.pop_back();
        continue;
      }
      const Node::Edge& edge = top.node->operands()[top.next_operand++];
      if (const DataPtr& data = edge.node->data(edge.output)) {
        add_leaf(data);
      } else if (!is_seen(edge.node)) {
        enter(edge.node);
      }
    }
  }

  void enter(Node* node) {
    node->walk_ = walk_;
    node->walk_uses_ = 0;
    stack_.push_back({node, 0});
  }

  // All operands of `node` are in the trace.
  void append(Node* node) {
    node->walk_index_ = static_cast<std::uint32_t>(trace_.steps.size());
    if (node->born_as() != 0) [[unlikely]]
      trace_.births.push_back(node->walk_index_);
    trace_.steps.push_back(
        {NodeRef::share(node), static_cast<std::uint32_t>(trace_.sources.size()), 0});
    relaxed_.add(node->entry()->key);
    for (const Node::Edge& edge : node->operands()) {
      const Source source = source_of(edge.node, edge.output);
      trace_.sources.push_back(source);
      if (!source.is_leaf) ++edge.node->walk_uses_;
      add_source(source);
    }
    const std::vector<Slot>& slots = node->entry()->slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::uint64_t bits = node->slots()[i];
      trace_.numbers.push_back(bits);
      trace_.is_data.push_back(!is_constant_at_first(slots[i], bits));
    }
  }

  // Leaves enter the key by their number, which tells `a + a` from `a + b`.
  void add_source(const Source& source) {
    relaxed_.add(static_cast<std::uint64_t>(source.index) << 32 |
                 static_cast<std::uint64_t>(source.output) << 1 | (source.is_leaf ? 1 : 0));
  }

  void finish_keys() {
    relaxed_.add(trace_.roots.size());
    for (const Source& root : trace_.roots) add_source(root);
    trace_.relaxed_key = relaxed_.finish();
    trace_.strict_key = key_of(trace_, trace_.is_data);
  }

  inline static std::atomic<std::uint64_t> num_walks{0};
  const std::uint64_t walk_;
  Trace trace_;
  base::Hasher relaxed_;
  std::vector<Pending> stack_;
};

Trace walk(std::span<const Value> roots) { return Walker().run(roots); }

base::Hash128 key_of(const Trace& trace, const std::vector<bool>& is_data) {
  base::Hasher hasher;
  hasher.add(trace.relaxed_key);
  for (std::size_t i = 0; i < is_data.size(); ++i) {
    hasher.add(is_data[i] ? 1 : 0);
    if (!is_data[i]) hasher.add(trace.numbers[i]);
  }
  return hasher.finish();
}

std::optional<std::uint32_t> find_leaf(const Trace& trace, const Data& data) {
  return Walker::find(trace, data);
}

std::optional<std::uint32_t> find_step(const Trace& trace, const Node& node) {
  return Walker::find(trace, node);
}

}  // namespace torch_xla::graph
