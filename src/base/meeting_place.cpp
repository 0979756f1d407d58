// The memory is a file without a name, which other processes open by way of the one that made it:
// nothing is left behind however they end. Each member's part of it is a ring, from whose beginning
// it starts again whenever nobody reads there: what was used last is in the processor's caches.
#include "base/meeting_place.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
// Rows that a member may show before the others have let go of the first of them.
constexpr std::size_t kMostRows = 64;
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

// A row of nothing has a place of its own too.
std::size_t space_of(std::size_t num_bytes) {
  return up_to(std::max<std::size_t>(num_bytes, 1), kLine);
}

}  // namespace

struct alignas(kLine) MeetingPlace::Seat {
  std::atomic<std::uint64_t> shown;   // how many rows
  std::atomic<std::uint64_t> met;     // how often
  std::atomic<std::uint64_t> let_go;  // the number of the last row that is not read any more
  std::atomic<pid_t> process;
  std::array<std::atomic<std::uint64_t>, kMostRows> starts;  // of rows, by their numbers
};

struct alignas(kLine) MeetingPlace::Header {
  std::uint64_t nonce;
  std::uint64_t num_members;
  std::uint64_t bytes_of_each;
  std::atomic<std::uint64_t> given_up_by;  // one more than the member; 0 is nobody
  std::atomic<std::uint32_t> bell;         // rung when all have come, or one has given up
  std::atomic<std::uint32_t> sleepers;
};

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return str(boot, "/", namespace_of("pid"), "/", namespace_of("net"), "/", geteuid());
}

MeetingPlace::MeetingPlace(int descriptor, std::size_t num_members, std::size_t bytes_of_each,
                           std::size_t member)
    : descriptor_(descriptor),
      num_members_(num_members),
      bytes_of_each_(bytes_of_each),
      member_(member),
      num_bytes_(up_to(sizeof(Header) + num_members * sizeof(Seat), kPage) +
                 num_members * bytes_of_each),
      memory_(static_cast<std::byte*>(
          mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0))) {}

MeetingPlace::~MeetingPlace() {
  if (memory_ != MAP_FAILED) munmap(memory_, num_bytes_);
  close(descriptor_);
}

std::unique_ptr<MeetingPlace> MeetingPlace::make(std::size_t num_members,
                                                 std::size_t bytes_of_each) {
  internal_check(bytes_of_each % kLine == 0,
                 "members' memory begins where lines of the processor's caches do");
  const int descriptor = memfd_create("torch_xla", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<MeetingPlace> place(new MeetingPlace(descriptor, num_members, bytes_of_each, 0));
  const auto num_bytes = static_cast<off_t>(place->num_bytes_);
  const auto num_common = static_cast<off_t>(place->start_of(0));
  if (place->memory_ == MAP_FAILED || ftruncate(descriptor, num_bytes) != 0 ||
      posix_fallocate(descriptor, 0, num_common) != 0) {
    return nullptr;
  }
  auto* const header = new (place->memory_) Header{};
  header->nonce = random_number();
  header->num_members = num_members;
  header->bytes_of_each = bytes_of_each;
  for (std::size_t i = 0; i < num_members; ++i) new (&place->seat(i)) Seat{};
  place->seat(0).process = getpid();
  return place;
}

std::string MeetingPlace::address() const {
  return str(getpid(), " ", descriptor_, " ", header().nonce, " ", num_members_, " ",
             bytes_of_each_);
}

std::unique_ptr<MeetingPlace> MeetingPlace::open(const std::string& address, std::size_t member) {
  std::istringstream words(address);
  std::string process;
  std::string number;
  std::uint64_t nonce = 0;
  std::size_t num_members = 0;
  std::size_t bytes_of_each = 0;
  words >> process >> number >> nonce >> num_members >> bytes_of_each;
  if (!words || member >= num_members) return nullptr;
  const int descriptor = ::open(str("/proc/", process, "/fd/", number).c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<MeetingPlace> place(
      new MeetingPlace(descriptor, num_members, bytes_of_each, member));
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

std::size_t MeetingPlace::start_of(std::size_t member) const {
  return num_bytes_ - (num_members_ - member) * bytes_of_each_;
}

std::byte* MeetingPlace::next_row(std::size_t num_bytes) {
  const std::uint64_t number = seat(member_).shown + 1;
  if (!own_rows_.empty() && own_rows_.back().number == number) own_rows_.pop_back();
  forget_rows_let_go();
  const std::optional<std::size_t> start = find_space(num_bytes);
  if (!start.has_value()) return nullptr;
  const std::size_t end = *start + space_of(num_bytes);
  take_from_system(end);
  own_rows_.push_back({number, *start, end});
  return memory_ + start_of(member_) + *start;
}

void MeetingPlace::forget_rows_let_go() {
  if (own_rows_.empty()) return;
  const std::uint64_t number = least(&Seat::let_go);
  while (!own_rows_.empty() && own_rows_.front().number <= number) own_rows_.pop_front();
}

// Behind the last row, or at the beginning, before the first.
std::optional<std::size_t> MeetingPlace::find_space(std::size_t num_bytes) const {
  internal_check(num_bytes <= bytes_of_each_, "a row of ", num_bytes, " bytes of ", bytes_of_each_);
  if (own_rows_.empty()) return 0;
  if (own_rows_.size() == kMostRows) return std::nullopt;
  const std::size_t space = space_of(num_bytes);
  const std::size_t first = own_rows_.front().start;
  const std::size_t last = own_rows_.back().end;
  const bool is_around = own_rows_.back().start < first;
  if (space <= (is_around ? first : bytes_of_each_) - last) return last;
  if (!is_around && space <= first) return 0;
  return std::nullopt;
}

// Writing to memory that the system can't give ends a process.
void MeetingPlace::take_from_system(std::size_t end) {
  if (end <= num_taken_) return;
  const auto start = static_cast<off_t>(start_of(member_) + num_taken_);
  int error = EINTR;
  while (error == EINTR) {
    error = posix_fallocate(descriptor_, start, static_cast<off_t>(end - num_taken_));
  }
  if (error != 0) {
    give_up(str("the system gives no ", end, " bytes of memory that processes share"));
  }
  num_taken_ = end;
}

void MeetingPlace::wait_for_space(std::size_t num_bytes, milliseconds limit) {
  while (true) {
    forget_rows_let_go();
    if (find_space(num_bytes).has_value()) return;
    wait_until(&Seat::let_go, own_rows_.front().number, limit);
  }
}

std::uint64_t MeetingPlace::show() {
  const OwnRow& shown = own_rows_.back();
  seat(member_).starts[shown.number % kMostRows] = shown.start;
  advance(&Seat::shown, shown.number);
  return shown.number;
}

void MeetingPlace::wait_for_rows(std::uint64_t number, milliseconds limit) {
  wait_until(&Seat::shown, number, limit);
}

std::byte* MeetingPlace::row(std::uint64_t number, std::size_t member) const {
  return memory_ + start_of(member) + seat(member).starts[number % kMostRows];
}

void MeetingPlace::meet(milliseconds limit) {
  const std::uint64_t number = seat(member_).met + 1;
  advance(&Seat::met, number);
  wait_until(&Seat::met, number, limit);
}

void MeetingPlace::let_go(std::uint64_t number) { advance(&Seat::let_go, number); }

std::uint64_t MeetingPlace::least(Count count) const {
  std::uint64_t value = seat(0).*count;
  for (std::size_t i = 1; i < num_members_; ++i) {
    value = std::min<std::uint64_t>(value, seat(i).*count);
  }
  return value;
}

// Rings for the others if this member is the last to get there.
void MeetingPlace::advance(Count count, std::uint64_t value) {
  seat(member_).*count = value;
  if (least(count) < value) return;
  ++header().bell;
  if (header().sleepers != 0) wake_all(header().bell);
}

void MeetingPlace::wait_until(Count count, std::uint64_t value, milliseconds limit) {
  if (header().given_up_by != 0) give_up(find_loss(count, value, false));
  // Where members share a core, one that waits keeps it from the others.
  static const std::size_t num_cores = std::thread::hardware_concurrency();
  for (int i = 0; i < (num_members_ <= num_cores ? kSpins : 1); ++i) {
    if (least(count) >= value) return;
    relax();
  }
  const auto deadline = steady_clock::now() + limit;
  while (true) {
    ++header().sleepers;
    const std::uint32_t bell = header().bell;
    const bool is_there = least(count) >= value;
    if (!is_there && header().given_up_by == 0) sleep_while(header().bell, bell, kLook);
    --header().sleepers;
    if (is_there || least(count) >= value) return;
    const std::string loss = find_loss(count, value, steady_clock::now() > deadline);
    if (!loss.empty()) give_up(loss);
  }
}

// Why those that have not come will not, in words.
std::string MeetingPlace::find_loss(Count count, std::uint64_t value, bool is_late) const {
  if (const std::uint64_t by = header().given_up_by; by != 0) {
    return str("member ", by - 1, " has given up");
  }
  for (std::size_t i = 0; i < num_members_; ++i) {
    if (seat(i).*count >= value) continue;
    // It may have come, and ended since.
    if (has_ended(seat(i).process) && seat(i).*count < value) {
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
