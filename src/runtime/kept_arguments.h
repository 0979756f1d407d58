// The arguments that the calls of a captured graph have in common: its parameters, as a rule. Their
// launches share one list of them. To count a reference to each here, which the queue's thread then
// gives back, moves every count from core to core: that took a third of a call with 148 arguments.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "graph/node.h"

namespace torch_xla::runtime {

class Device;

using ArgumentList = std::vector<graph::DataPtr>;
using ArgumentListPtr = std::shared_ptr<const ArgumentList>;

// Of one graph. Thread-safe.
class KeptArguments : public std::enable_shared_from_this<KeptArguments> {
 public:
  // Of a call's arguments, the list of those that the call before had in the same places; the rest
  // goes to `own`. Each of the two is as long as `arguments`, and null where the other is not.
  // An argument may point into the list of before, at one that is there.
  // `freed` receives what is to be freed outside the lock. Under the device's recording lock.
  ArgumentListPtr divide(Device& device, std::span<const graph::DataPtr* const> arguments,
                         ArgumentList& own, std::vector<ArgumentListPtr>& freed);
  // That list, or null.
  ArgumentListPtr list();
  ArgumentListPtr forget();

 private:
  bool stays(std::size_t i, const graph::DataPtr& argument) const;
  ArgumentListPtr next_list(std::span<const graph::DataPtr* const> arguments) const;

  std::mutex mutex_;
  // All below are under it.
  Device* device_ = nullptr;  // that was told of this one; none while there is no list
  // In the last call, in the places where the list has none.
  std::vector<std::weak_ptr<graph::Data>> seen_;
  ArgumentListPtr list_;
};

// Lets go of what the device's graphs keep, so that it can be donated or freed: for every run of
// something else. Under the recording lock; the answer is to be freed outside it.
std::vector<ArgumentListPtr> forget_arguments_locked(Device& device);
// The same, with the lock.
void forget_arguments(Device& device);

}  // namespace torch_xla::runtime
