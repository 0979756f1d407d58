// Memory that some processes of one host share, through which they exchange bytes without asking
// the network.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace torch_xla::base {

// Which processes can share memory: those of whom this is the same text. Network namespaces are
// hosts of their own, as containers are.
std::string host_identity();

// Seats for a number of members, each with memory that all read. A member shows the others one row
// of bytes after the other, without waiting for them: all show equally many, in one order. Whoever
// needs what the others show waits for that, and lets go of it in the end, so that they may use the
// memory again. One thread of a member uses it at a time.
class MeetingPlace {
 public:
  // With so much memory for each member, which the system gives when it is used for the first time.
  // Null where it gives no such memory. The caller is member 0.
  static std::unique_ptr<MeetingPlace> make(std::size_t num_members, std::size_t bytes_of_each);
  // The one whose `address()` that is, for another member; null if it can't be reached from here.
  static std::unique_ptr<MeetingPlace> open(const std::string& address, std::size_t member);
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  // Where processes of this host find it while member 0 has it.
  std::string address() const;

  std::size_t num_members() const { return num_members_; }
  std::size_t member() const { return member_; }
  std::size_t bytes_of_each() const { return bytes_of_each_; }

  // Memory for the next row, to be written before `show()`. Null while others have not let go of
  // what is there. Throws std::runtime_error if the system gives no more memory.
  std::byte* next_row(std::size_t num_bytes);
  // Waits until `next_row` would give so much.
  void wait_for_space(std::size_t num_bytes, std::chrono::milliseconds limit);
  // Shows the row that `next_row` gave last. Returns its number: how many this member has shown.
  std::uint64_t show();

  // The calls that wait throw std::runtime_error if a member that has not come has ended or given
  // up, or does not come within `limit`; so do all calls of all members after that.
  //
  // Until all members have shown their rows of that number.
  void wait_for_rows(std::uint64_t number, std::chrono::milliseconds limit);
  // The member's row, which lies there until this member lets go of it.
  std::byte* row(std::uint64_t number, std::size_t member) const;
  // A second meeting, over rows that all have: until all have called it equally often.
  void meet(std::chrono::milliseconds limit);
  // This member does not read the row of that number any more, nor any before.
  void let_go(std::uint64_t number);

 private:
  struct Seat;
  struct Header;
  struct OwnRow {
    std::uint64_t number;
    std::size_t start;
    std::size_t end;
  };
  using Count = std::atomic<std::uint64_t> Seat::*;

  MeetingPlace(int descriptor, std::size_t num_members, std::size_t bytes_of_each,
               std::size_t member);

  Header& header() const;
  Seat& seat(std::size_t member) const;
  std::size_t start_of(std::size_t member) const;
  void forget_rows_let_go();
  std::optional<std::size_t> find_space(std::size_t num_bytes) const;
  void take_from_system(std::size_t end);
  std::uint64_t least(Count count) const;
  void advance(Count count, std::uint64_t value);
  void wait_until(Count count, std::uint64_t value, std::chrono::milliseconds limit);
  std::string find_loss(Count count, std::uint64_t value, bool is_late) const;
  [[noreturn]] void give_up(const std::string& loss);

  int descriptor_;
  std::size_t num_members_;
  std::size_t bytes_of_each_;
  std::size_t member_;
  std::size_t num_bytes_;
  std::byte* memory_;
  std::deque<OwnRow> own_rows_;  // of which some member has not let go; the last may not be shown
  std::size_t num_taken_ = 0;    // bytes of its own that the system has given this member
};

}  // namespace torch_xla::base
