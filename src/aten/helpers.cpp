// A helper may run on all cores that the process may use but for that of who called it last.
#include "aten/helpers.h"

#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace torch_xla::aten {
namespace {

struct Helper {
  std::thread thread;
  int barred_core = -1;  // its caller's to change
  std::mutex mutex;
  std::condition_variable called;
  std::function<void()> job;  // under mutex
};

struct Team {
  std::mutex mutex;
  std::vector<std::unique_ptr<Helper>> all;  // under mutex
  std::vector<Helper*> idle;                 // under mutex, the last one to go first
};

// Never destroyed: its threads wait until the process ends.
Team& team() {
  static auto* const instance = new Team();
  return *instance;
}

void run(Helper& helper) {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(helper.mutex);
      helper.called.wait(lock, [&] { return helper.job != nullptr; });
      job = std::exchange(helper.job, nullptr);
    }
    job();
    job = nullptr;
    const std::lock_guard lock(team().mutex);
    team().idle.push_back(&helper);
  }
}

// Nothing if all are busy and there are `most`, or there is no thread to be had.
Helper* take_idle(std::size_t most) {
  Team& all = team();
  const std::lock_guard lock(all.mutex);
  if (!all.idle.empty()) {
    Helper* const helper = all.idle.back();
    all.idle.pop_back();
    return helper;
  }
  if (all.all.size() >= most) return nullptr;
  try {
    all.idle.reserve(all.all.size() + 1);
    all.all.reserve(all.all.size() + 1);
    auto helper = std::make_unique<Helper>();
    helper->thread = std::thread([&own = *helper] {
      pthread_setname_np(pthread_self(), "xla-helper");
      run(own);
    });
    all.all.push_back(std::move(helper));
  } catch (const std::system_error&) {
    return nullptr;
  }
  return all.all.back().get();
}

}  // namespace

bool help_elsewhere(std::function<void()> job) {
  const int core = sched_getcpu();
  cpu_set_t cores;
  if (core < 0 || pthread_getaffinity_np(pthread_self(), sizeof cores, &cores) != 0) return false;
  CPU_CLR(core, &cores);
  const int others = CPU_COUNT(&cores);
  if (others == 0) return false;
  Helper* const helper = take_idle(static_cast<std::size_t>(others));
  if (helper == nullptr) return false;
  if (helper->barred_core != core) {
    pthread_setaffinity_np(helper->thread.native_handle(), sizeof cores, &cores);
    helper->barred_core = core;
  }
  {
    const std::lock_guard lock(helper->mutex);
    helper->job = std::move(job);
  }
  helper->called.notify_one();
  return true;
}

}  // namespace torch_xla::aten
