// Collectives as the fake plugin runs them: `all_reduce`, `all_gather`, `reduce_scatter`,
// `all_to_all`, `collective_permute` and `collective_broadcast`. The launches of a group meet
// (fake_meetings.h) in the collective that is of the same number in each of their programs, if they
// have the same launch_id; what the programs say of it is compared then. XLA's plugins do not
// compare: the test may ask for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fake_meetings.h"
#include "fake_program.h"
#include "fake_sharding.h"

namespace fake {

// One of the launches of an execution on several devices.
struct Place {
  int replica = 0;
  int partition = 0;
  int num_replicas = 1;
  int num_partitions = 1;
  std::vector<int> device_ids;  // [replica][partition]
  int launch_id = 0;
  Meetings* meetings = nullptr;

  int device_id() const { return device_ids[replica * num_partitions + partition]; }
};

// The rows of `name = dense<[[0, 1], [2, 3]]>`; none for an empty attribute.
inline std::vector<std::vector<int>> parse_rows(std::string_view attributes,
                                                std::string_view name) {
  std::vector<std::vector<int>> rows;
  const std::size_t at = attributes.find(name);
  if (at == attributes.npos) return rows;
  const std::string text(enclosed(attributes, "dense<", ">", at));
  bool is_open = false;
  for (const char* c = text.c_str(); *c != '\0';) {
    if (*c >= '0' && *c <= '9') {
      char* end = nullptr;
      const long number = std::strtol(c, &end, 10);
      if (!is_open) rows.emplace_back();
      is_open = true;
      rows.back().push_back(static_cast<int>(number));
      c = end;
      continue;
    }
    if (*c == ']') is_open = false;
    ++c;
  }
  return rows;
}

inline std::int64_t parse_integer(std::string_view attributes, std::string_view name) {
  const std::size_t at = attributes.find(name);
  if (at == attributes.npos) return 0;
  return std::strtoll(std::string(attributes.substr(at + name.size())).c_str(), nullptr, 10);
}

// One collective of one launch.
class Collective {
 public:
  Collective(const Operation& operation, const Place& place, int number)
      : operation_(operation),
        place_(place),
        number_(number),
        has_channel_(parse_integer(operation.attributes, "handle = ") > 0),
        has_global_ids_(operation.attributes.find("use_global_device_ids") != std::string::npos) {}

  Values run(const Values& operands) const {
    std::vector<int> group = this->group();
    std::string key = "launch " + std::to_string(place_.launch_id) + ", collective " +
                      std::to_string(number_) + " of devices";
    for (const int index : group) key += " " + std::to_string(place_.device_ids[index]);
    for (const std::string& what : {std::string("Collective"), "Collective " + device()}) {
      if (const std::optional<Status> failure = control().enter(what)) throw *failure;
    }
    const auto met = place_.meetings->meet(key, group.size(), place_.device_id(),
                                           {describe(operands), operands});
    Values results;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::vector<const Value*> inputs;
      for (const int index : group) {
        const Values& values = met->at(place_.device_ids[index]).values;
        inputs.push_back(&values.at(std::min(i, values.size() - 1)));
      }
      results.push_back(combine(group, inputs, operands[i]));
    }
    return results;
  }

 private:
  std::string device() const { return std::to_string(place_.device_id()); }
  int own_index() const { return place_.replica * place_.num_partitions + place_.partition; }
  bool is(std::string_view name) const { return operation_.name == name; }

  // The indices, [replica][partition], of those who take part, in the order of the attribute.
  std::vector<int> group() const {
    const bool is_permutation = is("stablehlo.collective_permute");
    std::vector<std::vector<int>> rows;
    if (!is_permutation) rows = parse_rows(operation_.attributes, "replica_groups");
    const bool reduces = !operation_.reduction.empty() || is("stablehlo.all_gather");
    const bool is_of_partitions = has_channel_ && !has_global_ids_ && !reduces;
    if (rows.empty()) {
      std::vector<int>& all = rows.emplace_back();
      const int count = has_global_ids_    ? static_cast<int>(place_.device_ids.size())
                        : is_of_partitions ? place_.num_partitions
                                           : place_.num_replicas;
      for (int i = 0; i < count; ++i) all.push_back(i);
    }
    for (const std::vector<int>& row : rows) {
      std::vector<int> indices;
      for (const int id : row) {
        if (has_global_ids_) {
          indices.push_back(id);
        } else if (is_of_partitions) {
          indices.push_back(place_.replica * place_.num_partitions + id);
        } else if (has_channel_) {  // these replicas, in all partitions
          for (int p = 0; p < place_.num_partitions; ++p) {
            indices.push_back(id * place_.num_partitions + p);
          }
        } else {
          indices.push_back(id * place_.num_partitions + place_.partition);
        }
      }
      if (std::ranges::find(indices, own_index()) != indices.end()) return indices;
    }
    return {own_index()};  // alone
  }

  std::string describe(const Values& operands) const {
    std::string result = operation_.name;
    if (!operation_.reduction.empty()) result += " of " + operation_.reduction;
    for (const Value& operand : operands) {
      result += " ";
      for (const std::int64_t dim : operand.type.dims) result += std::to_string(dim) + "x";
      result += info_of(operand.type.type).name;
    }
    return result;
  }

  Value combine(const std::vector<int>& group, const std::vector<const Value*>& inputs,
                const Value& own) const {
    const auto position = std::ranges::find(group, own_index()) - group.begin();
    const auto count = static_cast<std::int64_t>(group.size());
    const auto dim = [&](const char* name) {
      return static_cast<std::size_t>(parse_integer(operation_.attributes, name));
    };
    if (is("stablehlo.all_reduce")) return reduce(inputs, own);
    if (is("stablehlo.reduce_scatter")) {
      return slice(reduce(inputs, own), dim("scatter_dimension = "), position, count);
    }
    if (is("stablehlo.all_gather")) return concatenate(inputs, dim("all_gather_dim = "));
    if (is("stablehlo.all_to_all")) {
      Values slices;
      for (const Value* input : inputs) {
        slices.push_back(slice(*input, dim("split_dimension = "), position, count));
      }
      std::vector<const Value*> pointers;
      for (const Value& part : slices) pointers.push_back(&part);
      return concatenate(pointers, dim("concat_dimension = "));
    }
    if (is("stablehlo.collective_broadcast")) return *inputs.front();
    for (const std::vector<int>& pair : parse_rows(operation_.attributes, "source_target_pairs")) {
      if (pair.at(1) == position) return *inputs.at(pair.at(0));
    }
    return zeros(own.type);
  }

  // Of as many elements as all have, where they differ.
  Value reduce(const std::vector<const Value*>& inputs, const Value& own) const {
    Value result = own;
    for (std::int64_t i = 0; i < own.type.num_elements(); ++i) {
      std::optional<double> sum;
      for (const Value* input : inputs) {
        if (i >= input->type.num_elements()) continue;
        const double element = load(*input, i);
        sum = sum ? compute(operation_.reduction, *sum, element).value_or(0) : element;
      }
      store(result, i, sum.value_or(0));
    }
    return result;
  }

  static Value slice(const Value& value, std::size_t dim, std::int64_t index, std::int64_t count) {
    Part part{std::vector<std::int64_t>(value.type.dims.size(), 0), value.type};
    part.type.dims.at(dim) /= count;
    part.starts.at(dim) = index * part.type.dims[dim];
    return extract(value, part);
  }

  static Value concatenate(const std::vector<const Value*>& values, std::size_t dim) {
    ArrayType type = values.front()->type;
    type.dims.at(dim) = 0;
    for (const Value* value : values) type.dims[dim] += value->type.dims.at(dim);
    Value result = zeros(type);
    Part part{std::vector<std::int64_t>(type.dims.size(), 0), {}};
    for (const Value* value : values) {
      part.type = value->type;
      insert(result, part, value->bytes);
      part.starts[dim] += value->type.dims[dim];
    }
    return result;
  }

  const Operation& operation_;
  const Place& place_;
  int number_;
  bool has_channel_;
  bool has_global_ids_;
};

}  // namespace fake
