// What the compiler leaves with the allocator goes back to the system.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <thread>
#include <vector>

#include "runtime_fixture.h"

namespace torch_xla::runtime {
namespace {

using testing::add;
using testing::AsyncFake;
using testing::eventually;
using testing::Floats;
using testing::tensor;
using testing::Tensor;
using testing::values_of;

constexpr const char* kCompile = "PJRT_Client_Compile";
constexpr std::size_t kBlock = std::size_t{4} << 10;
constexpr std::size_t kFreed = std::size_t{64} << 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::size_t resident_bytes() {
  std::size_t size = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Freed blocks below one that stays: the allocator keeps them.
std::vector<char> leave_freed_memory() {
  std::vector<std::vector<char>> blocks;
  for (std::size_t i = 0; i < kFreed / kBlock; ++i) blocks.emplace_back(kBlock, 'x');
  return std::vector<char>(kBlock, 'x');
}

TEST(a_compilation_of_a_second_gives_freed_memory_back) {
  if (kSanitized) {
    std::cerr << "skipped: the sanitizer has an allocator of its own\n";
    return;
  }
  const AsyncFake fake;
  const Tensor a = tensor(device(0), {1, 2});
  const std::vector<char> last = leave_freed_memory();
  const std::size_t before = resident_bytes();
  fake.hang(kCompile);
  std::thread compiler([&] {
    EXPECT(eventually([&] { return fake.waiting(kCompile) == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    fake.release();
  });
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
  compiler.join();
  EXPECT(resident_bytes() + kFreed / 2 < before);
}

}  // namespace
}  // namespace torch_xla::runtime
