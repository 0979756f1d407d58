// The calling thread and those that come to help it take ranges until there are none: it waits for
// no thread that has not begun, since the plugin's may all be busy, or wait like this one.
#include "aten/parallel.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "aten/call_arrays.h"
#include "aten/helpers.h"

namespace torch_xla::aten {
namespace {

// Below this, PyTorch's functions of one element run on one thread too.
constexpr std::int64_t kLeastForThreads = 32768;

// OpenMP is PyTorch's, and not ours to link.
template <typename Function>
Function* of_openmp(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

void set_openmp_threads(int count) {
  static auto* const set = of_openmp<void(int)>("omp_set_num_threads");
  if (set != nullptr) set(count);
}

int num_openmp_threads() {
  static auto* const get = of_openmp<int()>("omp_get_max_threads");
  return get != nullptr ? get() : 1;
}

// Shared with helpers that may come when all is done, and find nothing to do.
struct Work {
  std::int64_t count;
  std::int64_t size;  // of a range
  std::int64_t num_ranges;
  // The caller's, while ranges are left.
  const std::function<void(std::int64_t, std::int64_t)>* body;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> num_done{0};
  std::mutex mutex;
  std::exception_ptr error;  // under mutex: the first

  void help() noexcept;
};

void Work::help() noexcept {
  for (std::int64_t i = next.fetch_add(1); i < num_ranges; i = next.fetch_add(1)) {
    try {
      (*body)(i* size, std::min(count, (i + 1) * size));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
    if (num_done.fetch_add(1) + 1 == num_ranges) num_done.notify_one();
  }
}

// The last range of a helper is done soon: to sleep until it is and be woken takes longer.
void await(const std::atomic<std::int64_t>& count, std::int64_t goal) {
  constexpr std::chrono::microseconds kSoon(50);
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (count.load(std::memory_order_acquire) < goal && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  for (std::int64_t done = count; done < goal; done = count) count.wait(done);
}

}  // namespace

void in_parallel(const runtime::HostCall& call, std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t, std::int64_t)>& body,
                 std::int64_t ranges_per_thread) {
  const auto num_threads =
      count <= grain ? std::int64_t{1} : static_cast<std::int64_t>(call.num_threads());
  if (num_threads == 1) return body(0, count);
  const std::int64_t most = std::min((count + grain - 1) / grain, ranges_per_thread * num_threads);
  const std::int64_t size = (count + most - 1) / most;
  const auto work = std::make_shared<Work>(count, size, (count + size - 1) / size, &body);
  const std::int64_t num_helpers = std::min(num_threads, work->num_ranges) - 1;
  const auto help = [work] { work->help(); };
  try {
    for (std::int64_t i = 0; i < num_helpers; ++i) {
      if (!help_elsewhere(help)) call.schedule(help);
    }
  } catch (const std::bad_alloc&) {
    // Then fewer help: those who came already have the caller's `body`.
  }
  work->help();
  await(work->num_done, work->num_ranges);
  if (work->error != nullptr) std::rethrow_exception(work->error);
}

// Both are of the calling thread alone.
OneThread::OneThread() : before_(num_openmp_threads()) {
  if (before_ > 1) set_openmp_threads(1);
}

OneThread::~OneThread() {
  if (before_ > 1) set_openmp_threads(before_);
}

bool is_small(const runtime::HostCall& call) {
  for (std::size_t i = 0; i < call.num_inputs(); ++i) {
    if (count_of(call.input(i)) >= kLeastForThreads) return false;
  }
  for (std::size_t i = 0; i < call.num_outputs(); ++i) {
    if (count_of(call.output(i)) >= kLeastForThreads) return false;
  }
  return true;
}

}  // namespace torch_xla::aten
