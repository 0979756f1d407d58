// Reading and writing through views, and the list of live aliases.
#include "graph/alias.h"

#include <array>

namespace torch_xla::graph {

Value View::read(const Value& parent) const {
  return {Node::make(forward_, std::span(&parent, 1), slots_), 0};
}

Value View::write(const Value& parent, const Value& update) const {
  const std::array<Value, 2> operands = {parent, update};
  return {Node::make(inverse_, operands, slots_), 0};
}

void View::release() {
  // A chain of views of views is freed in a loop: it may be long.
  View* view = this;
  while (view != nullptr && view->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    View* parent = view->parent_.detach();
    delete view;
    view = parent;
  }
}

AliasRef Alias::make(LiveSet& live, const TensorType* type, Value value) {
  const std::lock_guard lock(live.mutex);
  return live.add_locked(type, std::move(value));
}

namespace {

bool is_constant(const Value& value) {
  const Entry* const entry = value.node->entry();
  return entry != nullptr && entry->op->constant != Constant::kNone;
}

}  // namespace

void Alias::write(Value value, std::vector<NodeRef>& garbage) {
  if (settled_ == nullptr && value_ && is_constant(value_)) value_.node->set_born_as(number_);
  garbage.push_back(std::move(value_.node));
  value_ = std::move(value);
  ++epoch_;
  live_->count_write();
}

void Alias::release() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    const std::lock_guard lock(live_->mutex);
    previous_->next_ = next_;
    next_->previous_ = previous_;
    --live_->size_;
  }
  delete this;
}

LiveSet::LiveSet() {
  head_.previous_ = &head_;
  head_.next_ = &head_;
}

AliasRef LiveSet::add_locked(const TensorType* type, Value value) {
  auto* alias = new Alias();
  alias->live_ = this;
  alias->number_ = ++num_made_;
  alias->type_ = type;
  alias->value_ = std::move(value);
  alias->previous_ = head_.previous_;
  alias->next_ = &head_;
  head_.previous_->next_ = alias;
  head_.previous_ = alias;
  ++size_;
  return AliasRef::adopt(alias);
}

const Value& read_view(const Alias& alias, const View* view, ViewCache& cache,
                       std::vector<NodeRef>& garbage) {
  if (view == nullptr) return alias.value();
  if (cache.epoch == alias.epoch()) return cache.value;
  std::vector<const View*> chain;
  for (const View* v = view; v != nullptr; v = v->parent().get()) chain.push_back(v);
  Value value = alias.value();
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) value = (*it)->read(value);
  garbage.push_back(std::move(cache.value.node));
  cache = {std::move(value), alias.epoch()};
  return cache.value;
}

void write_view(Alias& alias, const View* view, Value update, ViewCache& cache,
                std::vector<NodeRef>& garbage) {
  if (view == nullptr) {
    alias.write(std::move(update), garbage);
    return;
  }
  std::vector<const View*> chain;
  for (const View* v = view; v != nullptr; v = v->parent().get()) chain.push_back(v);
  // The parents' values, from the alias outward; the last view's own value is not needed.
  std::vector<Value> parents = {alias.value()};
  for (std::size_t i = chain.size(); i-- > 1;) parents.push_back(chain[i]->read(parents.back()));
  Value value = update;
  for (const View* v : chain) {
    value = v->write(parents.back(), value);
    parents.pop_back();
  }
  alias.write(std::move(value), garbage);
  garbage.push_back(std::move(cache.value.node));
  // Where elements repeat, the view shows the one that was written last.
  cache = view->type()->may_repeat ? ViewCache() : ViewCache{std::move(update), alias.epoch()};
}

}  // namespace torch_xla::graph
