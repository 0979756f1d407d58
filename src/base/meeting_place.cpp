// The memory is a file without a name, which other processes open by way of the one that made it:
// nothing is left behind however they end. Rows are there twice and used in turn, so that a member
// may write its next row while others read the last ones.
#include "base/meeting_place.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace torch_xla::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
// Some ten microseconds, in which members usually come; then the thread sleeps.
constexpr int kSpins = 1000;
// How often who sleeps looks whether the others still live.
constexpr milliseconds kLook{100};

std::string namespace_of(const char* kind) {
  struct stat found{};
  if (stat(str("/proc/self/ns/", kind).c_str(), &found) != 0) return "none";
  return str(found.st_dev, ":", found.st_ino);
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return 0;
  return number;
}

// Until the word is another, somebody wakes the thread, or the time is over.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value, milliseconds limit) {
  timespec time{};
  time.tv_nsec = std::chrono::nanoseconds(limit).count();
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  constexpr int kAll = 1 << 30;
  syscall(SYS_futex, &word, FUTEX_WAKE, kAll, nullptr, nullptr, 0);
}

// False also where the system can't tell.
bool has_ended(pid_t process) {
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return errno == ESRCH;
  pollfd asked{descriptor, POLLIN, 0};
  const bool is_over = poll(&asked, 1, 0) == 1;
  close(descriptor);
  return is_over;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::size_t up_to(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

struct alignas(kLine) MeetingPlace::Seat {
  std::atomic<std::uint64_t> steps;  // that the member has come to
  std::atomic<pid_t> process;
};

struct alignas(kLine) MeetingPlace::Header {
  std::uint64_t nonce;
  std::uint64_t num_members;
  std::uint64_t row_bytes;
  std::atomic<std::uint64_t> given_up_by;  // one more than the member; 0 is nobody
  std::atomic<std::uint32_t> bell;         // rung when all have come, or one has given up
  std::atomic<std::uint32_t> sleepers;
};

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return str(boot, "/", namespace_of("pid"), "/", namespace_of("net"), "/", geteuid());
}

MeetingPlace::MeetingPlace(int descriptor, std::size_t num_members, std::size_t row_bytes,
                           std::size_t member)
    : descriptor_(descriptor),
      num_members_(num_members),
      row_bytes_(row_bytes),
      member_(member),
      num_bytes_(up_to(sizeof(Header) + num_members * sizeof(Seat), kPage) +
                 2 * num_members * row_bytes),
      memory_(static_cast<std::byte*>(
          mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0))) {}

MeetingPlace::~MeetingPlace() {
  if (memory_ != MAP_FAILED) munmap(memory_, num_bytes_);
  close(descriptor_);
}

std::unique_ptr<MeetingPlace> MeetingPlace::make(std::size_t num_members, std::size_t row_bytes) {
  internal_check(row_bytes % kLine == 0, "rows begin where lines of the processor's caches do");
  const int descriptor = memfd_create("torch_xla", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<MeetingPlace> place(new MeetingPlace(descriptor, num_members, row_bytes, 0));
  // All of it now: writing to memory that the system can't give ends a process.
  const auto num_bytes = static_cast<off_t>(place->num_bytes_);
  if (place->memory_ == MAP_FAILED || posix_fallocate(descriptor, 0, num_bytes) != 0) {
    return nullptr;
  }
  auto* const header = new (place->memory_) Header{};
  header->nonce = random_number();
  header->num_members = num_members;
  header->row_bytes = row_bytes;
  for (std::size_t i = 0; i < num_members; ++i) new (&place->seat(i)) Seat{};
  place->seat(0).process = getpid();
  return place;
}

std::string MeetingPlace::address() const {
  return str(getpid(), " ", descriptor_, " ", header().nonce, " ", num_members_, " ", row_bytes_);
}

std::unique_ptr<MeetingPlace> MeetingPlace::open(const std::string& address, std::size_t member) {
  std::istringstream words(address);
  std::string process;
  std::string number;
  std::uint64_t nonce = 0;
  std::size_t num_members = 0;
  std::size_t row_bytes = 0;
  words >> process >> number >> nonce >> num_members >> row_bytes;
  if (!words || member >= num_members) return nullptr;
  const int descriptor = ::open(str("/proc/", process, "/fd/", number).c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<MeetingPlace> place(new MeetingPlace(descriptor, num_members, row_bytes, member));
  struct stat found{};
  const bool is_whole = place->memory_ != MAP_FAILED && fstat(descriptor, &found) == 0 &&
                        found.st_size == static_cast<off_t>(place->num_bytes_);
  // On another host a process of that number may have another file there.
  if (!is_whole || place->header().nonce != nonce) return nullptr;
  place->seat(member).process = getpid();
  return place;
}

MeetingPlace::Header& MeetingPlace::header() const { return *reinterpret_cast<Header*>(memory_); }

MeetingPlace::Seat& MeetingPlace::seat(std::size_t member) const {
  return reinterpret_cast<Seat*>(memory_ + sizeof(Header))[member];
}

std::byte* MeetingPlace::row(std::uint64_t step, std::size_t member) const {
  std::byte* const rows = memory_ + num_bytes_ - 2 * num_members_ * row_bytes_;
  return rows + (step % 2 * num_members_ + member) * row_bytes_;
}

bool MeetingPlace::have_all_come() const {
  for (std::size_t i = 0; i < num_members_; ++i) {
    if (seat(i).steps < steps_) return false;
  }
  return true;
}

const std::byte* MeetingPlace::meet(milliseconds limit) {
  ++steps_;
  seat(member_).steps = steps_;
  if (have_all_come()) {
    ++header().bell;
    if (header().sleepers != 0) wake_all(header().bell);
  } else {
    wait_for_all(limit);
  }
  if (header().given_up_by != 0) give_up(find_loss(false));
  return row(steps_, 0);
}

void MeetingPlace::wait_for_all(milliseconds limit) {
  // Where members share a core, one that waits keeps it from the others.
  static const std::size_t num_cores = std::thread::hardware_concurrency();
  for (int i = 0; num_members_ <= num_cores && i < kSpins; ++i) {
    if (have_all_come()) return;
    relax();
  }
  const auto deadline = steady_clock::now() + limit;
  while (true) {
    ++header().sleepers;
    const std::uint32_t bell = header().bell;
    const bool is_there = have_all_come();
    if (!is_there && header().given_up_by == 0) sleep_while(header().bell, bell, kLook);
    --header().sleepers;
    if (is_there || have_all_come()) return;
    const std::string loss = find_loss(steady_clock::now() > deadline);
    if (!loss.empty()) give_up(loss);
  }
}

// Why those that have not come will not, in words.
std::string MeetingPlace::find_loss(bool is_late) const {
  if (const std::uint64_t by = header().given_up_by; by != 0) {
    return str("member ", by - 1, " has given up");
  }
  for (std::size_t i = 0; i < num_members_; ++i) {
    if (seat(i).steps >= steps_) continue;
    // It may have come, and ended since.
    if (has_ended(seat(i).process) && seat(i).steps < steps_) {
      return str("member ", i, " has ended");
    }
    if (is_late) return str("timed out: member ", i, " has not come");
  }
  return {};
}

void MeetingPlace::give_up(const std::string& loss) {
  std::uint64_t nobody = 0;
  header().given_up_by.compare_exchange_strong(nobody, member_ + 1);
  ++header().bell;
  wake_all(header().bell);
  throw std::runtime_error(loss);
}

}  // namespace torch_xla::base
