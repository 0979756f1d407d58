// The count.
#include "runtime/background.h"

#include <atomic>

namespace torch_xla::runtime {
namespace {

std::atomic<std::int64_t> count_of_process{0};

}  // namespace

BackgroundWork::BackgroundWork() { count_of_process.fetch_add(1); }

BackgroundWork::~BackgroundWork() { count_of_process.fetch_sub(1); }

std::int64_t BackgroundWork::count() { return count_of_process.load(); }

}  // namespace torch_xla::runtime
