// Launches whose programs are being compiled. A compilation takes as long as it takes; a shutdown
// does not wait for it, but fails the results of these launches.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <set>

namespace torch_xla::runtime {

struct Launch;

// Those of one device. Thread-safe.
class UncompiledLaunches {
 public:
  void fail_all(const std::exception_ptr& error);

 private:
  friend class Uncompiled;
  std::mutex mutex_;
  std::set<std::shared_ptr<Launch>> launches_;  // under mutex_
};

// While the calling thread, or one that it hands this to, awaits the program of a launch. Only one
// of `take` and a shutdown gets to use the launch.
class Uncompiled {
 public:
  explicit Uncompiled(std::shared_ptr<Launch> launch) : launch_(std::move(launch)) {}
  Uncompiled(Uncompiled&& other) noexcept = default;
  ~Uncompiled();

  // From now on a shutdown may fail it. May be called again.
  void list();
  // The launch is its owner's again. Throws if a shutdown has failed it.
  void take();

 private:
  UncompiledLaunches& all() const;

  std::shared_ptr<Launch> launch_;
  bool is_listed_ = false;
};

}  // namespace torch_xla::runtime
