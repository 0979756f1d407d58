// The list of the process.
#include "runtime/uncompiled.h"

#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "runtime/launch.h"

namespace torch_xla::runtime {
namespace {

struct List {
  std::mutex mutex;
  std::set<std::shared_ptr<Launch>> launches;  // under mutex
};

List& listed() {
  static auto* const instance = new List();
  return *instance;
}

}  // namespace

Uncompiled::~Uncompiled() {
  if (launch_ == nullptr || !is_listed_) return;
  const std::lock_guard lock(listed().mutex);
  listed().launches.erase(launch_);
}

void Uncompiled::list() {
  if (std::exchange(is_listed_, true)) return;
  const std::lock_guard lock(listed().mutex);
  listed().launches.insert(launch_);
}

void Uncompiled::take() {
  if (!std::exchange(is_listed_, false)) return;
  const std::lock_guard lock(listed().mutex);
  base::check(listed().launches.erase(launch_) == 1, "the xla device was shut down");
}

void fail_uncompiled(const std::exception_ptr& error) {
  std::set<std::shared_ptr<Launch>> launches;
  {
    const std::lock_guard lock(listed().mutex);
    launches.swap(listed().launches);
  }
  for (const std::shared_ptr<Launch>& launch : launches) launch->fail(error);
}

}  // namespace torch_xla::runtime
