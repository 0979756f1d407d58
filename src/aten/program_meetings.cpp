// Replicas whose programs exchange by the plugin's collectives meet before each launch: here, by
// the memory of their host or gloo, they compare what they launch. A plugin does not.
#include "aten/program_meetings.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>

#include "aten/agreement.h"
#include "aten/attendance.h"
#include "aten/groups.h"
#include "aten/member_rows.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/settings.h"
#include "runtime/replica_programs.h"

namespace torch_xla::aten {
namespace {

base::Dims members_of_group(const std::string& group, int device) {
  const auto found = find_group(group, device);
  return {found->members.begin(), found->members.end()};
}

std::string key_of_members(const std::string& group, std::int64_t rank) {
  return base::str("members of ", group, " of ", rank);
}

// What a rank has said of its group.
base::Dims members_said(c10d::Store& store, const std::string& group, std::int64_t rank) {
  const std::string key = key_of_members(group, rank);
  const std::chrono::duration<double> limit(base::settings().collective_timeout());
  try {
    store.wait({key}, std::chrono::duration_cast<std::chrono::milliseconds>(limit));
  } catch (const c10::Error&) {
    base::fail(base::ErrorKind::kRuntime, "a program exchanges in several groups, of which rank ",
               rank, " has made none like '", group, "' within ", limit.count(), " s");
  }
  std::istringstream said(store.get_to_str(key));
  return {std::istream_iterator<std::int64_t>(said), {}};
}

// As `ReplicaGroupCalls::partition`.
std::vector<base::Dims> ask_for_partition(const Group& own, const std::string& group,
                                          int num_processes, bool wait) {
  std::vector<base::Dims> rows;
  std::vector<bool> is_placed(static_cast<std::size_t>(num_processes));
  for (int rank = 0; rank < num_processes; ++rank) {
    if (is_placed[static_cast<std::size_t>(rank)]) continue;
    if (!wait && !own.partitions->check({key_of_members(group, rank)})) return {};
    rows.push_back(members_said(*own.partitions, group, rank));
    for (const std::int64_t member : rows.back()) {
      const auto place = static_cast<std::size_t>(member);
      if (!is_placed.at(place)) {
        is_placed[place] = true;
      } else if (wait) {
        base::fail(base::ErrorKind::kRuntime, "a program exchanges in several groups, and rank ",
                   member, " is in two of the groups '", group,
                   "': replicas must make their groups in one order");
      } else {
        return {};
      }
    }
  }
  return rows;
}

std::vector<base::Dims> partition_into(const std::string& group, int device, int num_processes,
                                       bool wait) {
  const auto own = find_group(group, device);
  {
    const std::lock_guard lock(own->mutex);
    if (!own->partition.empty()) return own->partition;
  }
  std::vector<base::Dims> asked = ask_for_partition(*own, group, num_processes, wait);
  const std::lock_guard lock(own->mutex);
  own->partition = asked;
  return asked;
}

// Of how much members tell each other at a time, behind whether all is well, how many there are,
// and a key of all of them.
constexpr std::int64_t kMostTold = 61;
constexpr std::int64_t kFirstKey = 3;
constexpr std::int64_t kWords = kFirstKey + kMostTold;

[[noreturn]] void fail_to_agree(const GatherRows& gather, const std::vector<std::int64_t>& members,
                                const runtime::ReplicaMeeting& meeting, std::size_t start) {
  std::string text;
  for (std::size_t i = start; i < meeting.lines.size(); ++i) text += meeting.lines[i];
  const auto difference = describe_difference(members, start + 1, gather_texts(gather, text));
  base::fail(base::ErrorKind::kRuntime, "replicas are about to exchange different things: ",
             difference.value_or("their programs compute the same, but are not alike"));
}

at::Tensor told(const runtime::ReplicaMeeting& meeting, std::size_t start, bool is_well) {
  at::Tensor row = at::zeros({kWords}, at::kLong);
  auto* const words = row.mutable_data_ptr<std::int64_t>();
  const auto count = static_cast<std::int64_t>(meeting.keys.size() - start);
  words[0] = is_well ? 1 : 0;
  words[1] = count;
  base::Hasher all;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t key = meeting.keys[start + static_cast<std::size_t>(i)];
    all.add(static_cast<std::uint64_t>(key));
    if (i < kMostTold) words[kFirstKey + i] = key;
  }
  words[2] = static_cast<std::int64_t>(all.finish().lo);
  return row;
}

std::size_t agree_in(const Group& group, const runtime::ReplicaMeeting& meeting, std::size_t start,
                     bool is_well) {
  const GatherRows gather = [&](const at::Tensor& row) {
    return group.memory == nullptr ? gather_rows(*group.process_group, row)
                                   : group.memory->gather(row);
  };
  const at::Tensor mine = told(meeting, start, is_well);
  const auto* const words = mine.const_data_ptr<std::int64_t>();
  const at::Tensor rows = gather(mine);
  const auto row_of = [&](std::size_t i) {
    return rows.const_data_ptr<std::int64_t>() + static_cast<std::int64_t>(i) * kWords;
  };
  std::int64_t shared = words[1];
  bool is_alike = true;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (row_of(i)[0] == 0) {
      base::fail(base::ErrorKind::kRuntime, "rank ", group.members[i],
                 " can't launch its program: an input of it has failed there, or memory has ended");
    }
    shared = std::min(shared, row_of(i)[1]);
    is_alike = is_alike && std::equal(words, words + kFirstKey, row_of(i));
  }
  if (is_alike) return static_cast<std::size_t>(shared);
  shared = std::min(shared, kMostTold);
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const std::int64_t* const keys = row_of(i) + kFirstKey;
    if (!std::equal(keys, keys + shared, words + kFirstKey)) {
      fail_to_agree(gather, group.members, meeting, start);
    }
  }
  return static_cast<std::size_t>(shared);
}

std::size_t agree(const runtime::ReplicaMeeting& meeting, std::size_t start, int device,
                  bool is_well) {
  const std::shared_ptr<Group> group = find_group(meeting.group, device);
  const Exchange exchange{.store = group->process_group->getStore(),
                          .place = static_cast<std::size_t>(group->process_group->getRank()),
                          .members = {group, &group->members},
                          .op = "the launch of a program",
                          .number = ++group->num_exchanges};
  std::size_t shared = 0;
  watch(exchange, [&] { shared = agree_in(*group, meeting, start, is_well); });
  return shared;
}

}  // namespace

void say_members(c10d::Store& partitions, const std::string& group,
                 const std::vector<std::int64_t>& members, std::int64_t rank) {
  std::string text;
  for (const std::int64_t member : members) text += base::str(text.empty() ? "" : " ", member);
  partitions.set(key_of_members(group, rank), text);
}

void install_program_meetings() {
  runtime::set_replica_group_calls({members_of_group, partition_into, agree});
}

}  // namespace torch_xla::aten
