#include "aten/groups.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "aten/program_meetings.h"
#include "base/error.h"

namespace torch_xla::aten {
namespace {

class Groups {
 public:
  void add(const std::string& name, const std::string& group,
           const std::vector<std::int64_t>& members, std::int64_t device,
           c10::intrusive_ptr<c10d::Store> partitions) {
    if (name_known(name, group, device)) return;
    are_any_ = true;
    std::string process_group = process_group_name(group, device);
    c10::intrusive_ptr<c10d::ProcessGroup> meeting;
    std::shared_ptr<HostMemory> memory;
    if (members.size() > 1) {
      are_any_of_several_ = true;
      meeting = c10d::resolve_process_group(process_group);
      // Waits for the others, without the lock that their programs' calls may need here.
      memory = HostMemory::of(*meeting);
      if (partitions != nullptr) {
        const auto place = static_cast<std::size_t>(meeting->getRank());
        say_members(*partitions, group, members, members.at(place));
      }
    }
    const auto added = std::make_shared<Group>();
    added->members = members;
    added->process_group_name = std::move(process_group);
    added->process_group = std::move(meeting);
    added->memory = std::move(memory);
    added->partitions = std::move(partitions);
    const std::lock_guard lock(mutex_);
    groups_[{group, device}] = added;
  }
  void remove_of(std::int64_t device) {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [&](const auto& item) {
      const bool is_of_device = item.first.second == device;
      if (is_of_device && item.second->process_group != nullptr) {
        c10d::unregister_process_group(item.second->process_group_name);
      }
      return is_of_device;
    });
  }
  // What programs call it.
  std::string named(const std::string& name, const std::string& op) {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    TORCH_CHECK_VALUE(found != names_.end(), op, ": the process group '", name,
                      "' can't exchange tensors of the device xla; make it with the backend 'xla'");
    return found->second;
  }
  std::shared_ptr<Group> find(const std::string& group, std::int64_t device) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find({group, device});
    base::check(found != groups_.end(), "the program's group '", group, "' is not there");
    return found->second;
  }

  bool are_any() const { return are_any_; }
  bool are_any_of_several() const { return are_any_of_several_; }

 private:
  // Gives the group this name. Whether it was known under another.
  bool name_known(const std::string& name, const std::string& group, std::int64_t device) {
    const std::lock_guard lock(mutex_);
    names_[name] = group;
    return groups_.contains({group, device});
  }

  std::mutex mutex_;
  std::atomic<bool> are_any_ = false;
  std::atomic<bool> are_any_of_several_ = false;
  std::map<std::string, std::string> names_;
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<Group>> groups_;
};

// Programs may run while the process exits.
Groups& groups() {
  static auto* const instance = new Groups();
  return *instance;
}

}  // namespace

void add_group(const std::string& name, const std::string& group,
               const std::vector<std::int64_t>& members, std::int64_t device,
               c10::intrusive_ptr<c10d::Store> partitions) {
  groups().add(name, group, members, device, std::move(partitions));
}

void forget_groups_of(std::int64_t device) { groups().remove_of(device); }

std::string process_group_name(const std::string& group, std::int64_t device) {
  return base::str("torch_xla:", group, ":", device);
}

bool has_groups() { return groups().are_any(); }

bool meets_others() { return groups().are_any_of_several(); }

std::string group_named(const std::string& name, const std::string& op) {
  return groups().named(name, op);
}

std::shared_ptr<Group> find_group(const std::string& group, std::int64_t device) {
  return groups().find(group, device);
}

std::vector<std::int64_t> members_of(const std::string& process_group_name) {
  const std::size_t start = process_group_name.find(':') + 1;
  const std::size_t middle = process_group_name.find(':', start);
  const std::int64_t device = std::stoll(process_group_name.substr(middle + 1));
  return groups().find(process_group_name.substr(start, middle - start), device)->members;
}

}  // namespace torch_xla::aten
