// The memo: from the words that describe a call (operator, operand types, constants) to its entry.
// Reads take no lock when this thread has seen the call recently, a shared one otherwise. Entries
// live until the process ends, since nodes point to them.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/entry.h"

namespace torch_xla::graph {

class Memo {
 public:
  // Null when the call is new.
  const Entry* find(std::span<const std::uint64_t> words);
  // The entry that stands for the call from now on: `entry`, or the one that another thread was
  // first with.
  const Entry* insert(std::span<const std::uint64_t> words, Entry entry);
  std::size_t size() const;

 private:
  struct Record {
    std::vector<std::uint64_t> words;
    Entry entry;
  };
  static std::uint64_t hash(std::span<const std::uint64_t> words);
  static bool matches(const Record& record, std::span<const std::uint64_t> words);

  mutable std::shared_mutex mutex_;
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Record>> records_;  // under mutex_
};

}  // namespace torch_xla::graph
