// Which arguments a graph's calls share, and when they are let go of.
#include "runtime/kept_arguments.h"

#include <mutex>
#include <utility>

#include "runtime/device.h"

namespace torch_xla::runtime {

// Whether the argument is the one that the call before had in its place.
bool KeptArguments::stays(std::size_t i, const graph::DataPtr& argument) const {
  if ((*list_)[i] != nullptr) return (*list_)[i] == argument;
  return !seen_[i].owner_before(argument) && !argument.owner_before(seen_[i]);
}

// The list as it is to be after these arguments: the same one, nearly always.
ArgumentListPtr KeptArguments::next_list(std::span<const graph::DataPtr* const> arguments) const {
  const std::size_t count = arguments.size();
  const graph::DataPtr* const kept = list_->data();
  bool is_same = true;
  for (std::size_t i = 0; is_same && i < count; ++i) {
    if (arguments[i] == &kept[i]) continue;  // read out of the list
    is_same = stays(i, *arguments[i]) == (kept[i] != nullptr);
  }
  if (is_same) return list_;
  auto list = std::make_shared<ArgumentList>(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (stays(i, *arguments[i])) (*list)[i] = *arguments[i];
  }
  return list;
}

ArgumentListPtr KeptArguments::divide(Device& device,
                                      std::span<const graph::DataPtr* const> arguments,
                                      ArgumentList& own, std::vector<ArgumentListPtr>& freed) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = arguments.size();
  if (list_ == nullptr || list_->size() != count) {
    freed.push_back(std::exchange(list_, std::make_shared<ArgumentList>(count)));
    seen_.assign(count, {});
  }
  freed.push_back(std::exchange(list_, next_list(arguments)));
  if (device_ != &device) {
    device_ = &device;
    device.keepers().push_back(weak_from_this());
  }
  own.resize(count);
  const graph::DataPtr* const kept = list_->data();
  for (std::size_t i = 0; i < count; ++i) {
    if (kept[i] != nullptr) continue;
    own[i] = *arguments[i];
    seen_[i] = own[i];
  }
  return list_;
}

ArgumentListPtr KeptArguments::list() {
  const std::lock_guard lock(mutex_);
  return list_;
}

ArgumentListPtr KeptArguments::forget() {
  const std::lock_guard lock(mutex_);
  seen_.clear();
  device_ = nullptr;
  return std::exchange(list_, nullptr);
}

std::vector<ArgumentListPtr> forget_arguments_locked(Device& device) {
  std::vector<ArgumentListPtr> lists;
  for (const std::weak_ptr<KeptArguments>& weak : std::exchange(device.keepers(), {})) {
    if (const std::shared_ptr<KeptArguments> kept = weak.lock()) lists.push_back(kept->forget());
  }
  return lists;
}

void forget_arguments(Device& device) {
  std::vector<ArgumentListPtr> freed;
  const std::lock_guard lock(device.live().mutex);
  freed = forget_arguments_locked(device);
}

}  // namespace torch_xla::runtime
