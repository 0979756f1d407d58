// What a program does in lines for people, by which replicas tell each other where theirs differ:
// each ends in a newline.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/walk.h"
#include "ops/lower.h"

namespace torch_xla::ops {

// The operator, what it takes, and behind a tab what may differ from replica to replica: where the
// user called it, as far as the node knows.
std::string line_of(const graph::Node& node);
// The same of a collective, without its group. With `has_own_sizes`, sizes and where each replica
// sends its own may differ, too.
std::string line_of_collective(const graph::Node& node, bool has_own_sizes);
// Of what is not for people alone, the same in every process.
std::int64_t key_of_line(std::string_view line);
// The groups of several members in which it exchanges: one, or those of its regions.
std::vector<std::string> groups_of(const graph::Node& node);
// Of each collective, by its group, in their order: those in regions, too, and none of groups of
// one.
std::map<std::string, std::vector<std::string>> lines_of_collectives(const graph::Trace& trace);
// Of each step, of each result, and of each that takes the memory of what it replaces.
std::string lines_of(const graph::Trace& trace, std::span<const Donation> donations);

}  // namespace torch_xla::ops
