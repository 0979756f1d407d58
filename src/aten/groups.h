// The groups of replicas that programs name.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aten/agreement.h"
#include "aten/host_memory.h"

namespace torch_xla::aten {

// One device's part in a group.
struct Group {
  std::vector<std::int64_t> members;  // their ranks in the job
  std::string process_group_name;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;  // null: it has one member
  std::shared_ptr<HostMemory> memory;                    // null: members are not on one host
  // Where all processes of the job say who is in their groups; null in threads.
  c10::intrusive_ptr<c10d::Store> partitions;
  // What they said of those called as this one, once all have.
  std::mutex mutex;
  std::vector<std::vector<std::int64_t>> partition;  // under mutex
  // The token orders what follows.
  Agreement agreement;
  std::int64_t num_exchanges = 0;
};

// Lets collectives name a group by `name`. Programs name it `group`: a number that this process
// gave it and how many members it has, "0/4". `members` are their ranks in the job, one of which is
// that of `device` of this process. Where they are several, they meet in the process group that
// c10d knows by `process_group_name(group, device)`. `partitions` is as in `Group`.
void add_group(const std::string& name, const std::string& group,
               const std::vector<std::int64_t>& members, std::int64_t device,
               c10::intrusive_ptr<c10d::Store> partitions);
// Forgets that device's part in its groups.
void forget_groups_of(std::int64_t device);
std::string process_group_name(const std::string& group, std::int64_t device);

// Whether collectives may be recorded, of this process alone too.
bool has_groups();
// Whether this process is in a group with others.
bool meets_others();

// What programs call the group of that name. `op` asks.
std::string group_named(const std::string& name, const std::string& op);
std::shared_ptr<Group> find_group(const std::string& group, std::int64_t device);
// The ranks in the job of the members of the group of that process group.
std::vector<std::int64_t> members_of(const std::string& process_group_name);

}  // namespace torch_xla::aten
