// The memo's table and the thread's view of it.
#include "graph/memo.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"

namespace torch_xla::graph {
namespace {

// Direct-mapped, without destructor: it may be read while static tensors are freed at exit.
struct Recent {
  const Memo* memo;
  std::uint64_t hash;
  const void* record;
};
constexpr std::size_t kRecentSize = 4096;
thread_local std::array<Recent, kRecentSize> recent{};

}  // namespace

std::uint64_t Memo::hash(std::span<const std::uint64_t> words) {
  std::uint64_t h = words.size();
  for (const std::uint64_t word : words) {
    h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 32;
  }
  return h;
}

bool Memo::matches(const Record& record, std::span<const std::uint64_t> words) {
  return std::equal(words.begin(), words.end(), record.words.begin(), record.words.end());
}

const Entry* Memo::find(std::span<const std::uint64_t> words) {
  const std::uint64_t h = hash(words);
  Recent& slot = recent[h % kRecentSize];
  if (slot.hash == h && slot.memo == this) {
    const auto* record = static_cast<const Record*>(slot.record);
    if (matches(*record, words)) return &record->entry;
  }
  const std::shared_lock lock(mutex_);
  const auto [first, last] = records_.equal_range(h);
  for (auto it = first; it != last; ++it) {
    if (!matches(*it->second, words)) continue;
    slot = {this, h, it->second.get()};
    return &it->second->entry;
  }
  return nullptr;
}

const Entry* Memo::insert(std::span<const std::uint64_t> words, Entry entry) {
  const std::uint64_t h = hash(words);
  const std::unique_lock lock(mutex_);
  const auto [first, last] = records_.equal_range(h);
  for (auto it = first; it != last; ++it) {
    if (matches(*it->second, words)) return &it->second->entry;
  }
  auto record = std::make_unique<Record>(
      Record{std::vector<std::uint64_t>(words.begin(), words.end()), std::move(entry)});
  const auto limit = base::settings().ir_shape_cache_size();
  if (limit > 0 && std::cmp_greater_equal(records_.size(), limit)) [[unlikely]] {
    base::warn_once(base::str("types of results were inferred for more than ", limit,
                              " different calls (XLA_IR_SHAPE_CACHE_SIZE): sizes that change all "
                              "the time fill the memory of the host"));
  }
  return &records_.emplace(h, std::move(record))->second->entry;
}

std::size_t Memo::size() const {
  const std::shared_lock lock(mutex_);
  return records_.size();
}

}  // namespace torch_xla::graph
