// Memory in which processes meet: each sees what all have written, and learns of those that will
// not come.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/meeting_place.h"
#include "check.h"

namespace torch_xla::base {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60000};
constexpr milliseconds kShort{50};

std::uint64_t number_in(const std::byte* row) {
  std::uint64_t number = 0;
  std::memcpy(&number, row, sizeof number);
  return number;
}

// Shows a row of so many bytes, the first of which are that number.
std::uint64_t show(MeetingPlace& place, std::uint64_t value, std::size_t num_bytes = 8) {
  place.wait_for_space(num_bytes, kLong);
  std::memcpy(place.next_row(num_bytes), &value, sizeof value);
  return place.show();
}

// How many members' rows are not what each of them wrote.
int mistakes_in(const MeetingPlace& place, std::uint64_t number, std::uint64_t step) {
  int mistakes = 0;
  for (std::size_t i = 0; i < place.num_members(); ++i) {
    if (number_in(place.row(number, i)) != step * 100 + i) ++mistakes;
  }
  return mistakes;
}

// Of many steps. Members show rows of several sizes, some of them before they wait for the last.
int mistakes_of(MeetingPlace& place, std::uint64_t num_steps) {
  int mistakes = 0;
  std::uint64_t shown = 0;
  for (std::uint64_t step = 0; step < num_steps; ++step) {
    const bool goes_ahead = step % 3 == place.member() % 3 && step + 1 < num_steps;
    while (shown < step + (goes_ahead ? 2 : 1)) {
      show(place, shown * 100 + place.member(), 8 + 40 * (shown % 4));
      ++shown;
    }
    place.wait_for_rows(step + 1, kLong);
    mistakes += mistakes_in(place, step + 1, step);
    if (step % 5 == 0) place.meet(kLong);
    place.let_go(step + 1);
  }
  return mistakes;
}

void meet_in_threads(std::size_t num_members) {
  std::vector<std::unique_ptr<MeetingPlace>> places;
  places.push_back(MeetingPlace::make(num_members, 512));
  for (std::size_t i = 1; i < num_members; ++i) {
    places.push_back(MeetingPlace::open(places[0]->address(), i));
  }
  std::atomic<int> mistakes = 0;
  std::vector<std::thread> threads;
  for (const auto& place : places) {
    threads.emplace_back([&] { mistakes += mistakes_of(*place, 3000); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mistakes.load(), 0);
}

TEST(all_see_what_all_have_written) {
  meet_in_threads(2);
  meet_in_threads(5);
}

TEST(who_shows_waits_for_nobody) {
  const auto first = MeetingPlace::make(2, 256);
  const auto second = MeetingPlace::open(first->address(), 1);
  for (std::uint64_t step = 0; step < 3; ++step) show(*first, step * 100, 64);
  EXPECT(first->next_row(64) != nullptr);
  EXPECT_EQ(first->show(), 4U);
  EXPECT(first->next_row(64) == nullptr);  // the memory is full
  for (std::uint64_t step = 0; step < 3; ++step) show(*second, step * 100 + 1, 64);
  for (std::uint64_t step = 0; step < 3; ++step) {
    first->wait_for_rows(step + 1, kLong);
    EXPECT_EQ(mistakes_in(*first, step + 1, step), 0);
    EXPECT_EQ(mistakes_in(*second, step + 1, step), 0);
  }
  first->let_go(3);
  EXPECT(first->next_row(64) == nullptr);  // the other may still read there
  second->let_go(2);
  EXPECT(first->next_row(192) == nullptr);
  EXPECT(first->next_row(128) != nullptr);
}

TEST(processes_meet) {
  const auto place = MeetingPlace::make(2, 512);
  const std::string address = place->address();
  const pid_t child = fork();
  if (child == 0) {
    const auto own = MeetingPlace::open(address, 1);
    _exit(own == nullptr ? 100 : mistakes_of(*own, 500));
  }
  EXPECT_EQ(mistakes_of(*place, 500), 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(who_waits_for_a_member_that_has_ended_learns_of_it) {
  const auto place = MeetingPlace::make(3, 512);
  const auto third = MeetingPlace::open(place->address(), 2);
  const std::string address = place->address();
  const pid_t child = fork();
  if (child == 0) {
    // It is there, and has ended before its parent knows of that.
    _exit(MeetingPlace::open(address, 1) == nullptr ? 1 : 0);
  }
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(info.si_status, 0);
  show(*place, 0);
  EXPECT_THROWS(place->wait_for_rows(1, kLong), "member 1 has ended");
  EXPECT_THROWS(third->wait_for_rows(1, kLong), "member 0 has given up");
  EXPECT_THROWS(place->wait_for_rows(1, kLong), "member 0 has given up");
  waitpid(child, nullptr, 0);
}

TEST(who_comes_too_late_learns_of_it) {
  const auto place = MeetingPlace::make(2, 512);
  const auto late = MeetingPlace::open(place->address(), 1);
  show(*place, 0);
  EXPECT_THROWS(place->wait_for_rows(1, kShort), "timed out: member 1 has not come");
  EXPECT_THROWS(late->meet(kLong), "member 0 has given up");
}

TEST(a_place_is_found_by_its_own_address_alone) {
  const auto place = MeetingPlace::make(2, 512);
  const std::string address = place->address();
  EXPECT(MeetingPlace::open(address, 1) != nullptr);
  EXPECT(MeetingPlace::open(address, 2) == nullptr);
  EXPECT(MeetingPlace::open("", 1) == nullptr);
  EXPECT(MeetingPlace::open(str(getpid(), " 0 1 2 512"), 1) == nullptr);
  std::string other = address;
  other.insert(other.find(' ', other.find(' ') + 1) + 1, "1");  // another nonce
  EXPECT(MeetingPlace::open(other, 1) == nullptr);
}

TEST(processes_of_one_host_have_one_identity) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT(host_identity().find("none") == std::string::npos);
}

}  // namespace
}  // namespace torch_xla::base
