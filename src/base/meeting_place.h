// Memory that some processes of one host share, through which they exchange bytes without asking
// the network.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace torch_xla::base {

// Which processes can share memory: those of whom this is the same text. Network namespaces are
// hosts of their own, as containers are.
std::string host_identity();

// Seats for a number of members, each with a row of bytes. All members take the same steps, each of
// which has two parts: a member writes into `own_row()`, and `meet()` shows it the rows of all. One
// thread of a member uses it at a time.
class MeetingPlace {
 public:
  // Null where the system gives no such memory. The caller is member 0.
  static std::unique_ptr<MeetingPlace> make(std::size_t num_members, std::size_t row_bytes);
  // The one whose `address()` that is, for another member; null if it can't be reached from here.
  static std::unique_ptr<MeetingPlace> open(const std::string& address, std::size_t member);
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  // Where processes of this host find it while member 0 has it.
  std::string address() const;

  std::size_t num_members() const { return num_members_; }
  std::size_t member() const { return member_; }
  std::size_t row_bytes() const { return row_bytes_; }

  // To be written before the next `meet()`.
  std::byte* own_row() const { return row(steps_ + 1, member_); }

  // Waits until all members have written their rows of this step. Returns the first row; the others
  // lie behind it. They stay as they are until the next `meet()` returns. Throws std::runtime_error
  // if one of them has ended or has given up, or has not come within `limit`; so do all calls of
  // all members after that.
  const std::byte* meet(std::chrono::milliseconds limit);

 private:
  struct Seat;
  struct Header;

  MeetingPlace(int descriptor, std::size_t num_members, std::size_t row_bytes, std::size_t member);

  Header& header() const;
  Seat& seat(std::size_t member) const;
  std::byte* row(std::uint64_t step, std::size_t member) const;
  bool have_all_come() const;
  void wait_for_all(std::chrono::milliseconds limit);
  std::string find_loss(bool is_late) const;
  [[noreturn]] void give_up(const std::string& loss);

  int descriptor_;
  std::size_t num_members_;
  std::size_t row_bytes_;
  std::size_t member_;
  std::size_t num_bytes_;
  std::byte* memory_;
  std::uint64_t steps_ = 0;
};

}  // namespace torch_xla::base
