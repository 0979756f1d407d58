// A map that forgets the least recently used key when it is full. Not thread-safe.
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
    return &it->second->second;
  }

  // The key must be new. What has to go for it is appended to `evicted`, so that the caller may
  // destroy it outside a lock.
  Value& insert(const Key& key, Value value, std::size_t max_size, std::vector<Value>& evicted) {
    order_.emplace_front(key, std::move(value));
    index_.emplace(key, order_.begin());
    while (order_.size() > 1 && order_.size() > max_size) {
      index_.erase(order_.back().first);
      evicted.push_back(std::move(order_.back().second));
      order_.pop_back();
    }
    return order_.front().second;
  }

  void erase(const Key& key) {
    const auto it = index_.find(key);
    if (it == index_.end()) return;
    order_.erase(it->second);
    index_.erase(it);
  }

  // Moves all values to `evicted`.
  void clear(std::vector<Value>& evicted) {
    for (auto& [key, value] : order_) evicted.push_back(std::move(value));
    index_.clear();
    order_.clear();
  }

  std::size_t size() const { return order_.size(); }

 private:
  using Order = std::list<std::pair<Key, Value>>;
  Order order_;  // the most recently used first
  std::unordered_map<Key, typename Order::iterator> index_;
};

}  // namespace torch_xla::runtime
