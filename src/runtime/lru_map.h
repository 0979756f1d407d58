// A map that forgets the least recently used key when it is full, by number or by weight. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch_xla::runtime {

template <typename Key, typename Value>
class LruMap {
 public:
  // Null when there is none. Counts as a use.
  Value* find(const Key& key) {
    const auto it = index_.find(key);
    if (it == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return &it->second->value;
  }

  // The key must be new. What has to go for it is appended to `evicted`, so that the caller may
  // destroy it outside a lock.
  Value& insert(const Key& key, Value value, std::size_t max_size, std::vector<Value>& evicted) {
    order_.push_front({key, std::move(value)});
    index_.emplace(key, order_.begin());
    while (order_.size() > 1 && order_.size() > max_size) drop_last(evicted);
    return order_.front().value;
  }

  // Nothing weighs anything before. Then the least recently used go until the rest weighs no more
  // than `max_weight`; the last one stays. Of a key that is not there, does nothing.
  void weigh(const Key& key, std::size_t weight, std::size_t max_weight,
             std::vector<Value>& evicted) {
    const auto it = index_.find(key);
    if (it == index_.end()) return;
    weight_ += weight - it->second->weight;
    it->second->weight = weight;
    while (order_.size() > 1 && weight_ > max_weight) drop_last(evicted);
  }

  void erase(const Key& key) {
    const auto it = index_.find(key);
    if (it == index_.end()) return;
    weight_ -= it->second->weight;
    order_.erase(it->second);
    index_.erase(it);
  }

  // Moves all values to `evicted`.
  void clear(std::vector<Value>& evicted) {
    for (Place& place : order_) evicted.push_back(std::move(place.value));
    index_.clear();
    order_.clear();
    weight_ = 0;
  }

  std::size_t size() const { return order_.size(); }

 private:
  struct Place {
    Key key;
    Value value;
    std::size_t weight = 0;
  };
  using Order = std::list<Place>;

  void drop_last(std::vector<Value>& evicted) {
    Place& last = order_.back();
    weight_ -= last.weight;
    index_.erase(last.key);
    evicted.push_back(std::move(last.value));
    order_.pop_back();
  }

  Order order_;  // the most recently used first
  std::size_t weight_ = 0;
  std::unordered_map<Key, typename Order::iterator> index_;
};

}  // namespace torch_xla::runtime
