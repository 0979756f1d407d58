// What the types of a region's node must be, and the table of such nodes' entries.
#include "graph/region.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace torch_xla::graph {
namespace {

void add_type(base::Hasher& hasher, const TensorType* type) {
  hasher.add(static_cast<std::uint64_t>(type->shape.dtype));
  hasher.add(type->shape.dims.size());
  for (const std::int64_t dim : type->shape.dims) hasher.add(static_cast<std::uint64_t>(dim));
  for (const std::int64_t stride : type->strides) hasher.add(static_cast<std::uint64_t>(stride));
}

std::string_view name_of(RegionKind kind) {
  switch (kind) {
    case RegionKind::kCall: return "call";
    case RegionKind::kCond: return "cond";
    case RegionKind::kWhile: return "while_loop";
    case RegionKind::kScan: return "scan";
    case RegionKind::kBarrier: return "optimization_barrier";
  }
  return "";
}

void check_type(std::string_view what, std::size_t index, const TensorType* got,
                const base::Shape& wanted) {
  base::check(got->shape == wanted, what, " ", index, " must be ", base::to_string(wanted),
              ", got ", base::to_string(got->shape));
}

void check_predicate(RegionKind kind, const TensorType* type) {
  base::check(type->shape.dtype == base::DType::kBool && type->shape.num_elements() == 1,
              name_of(kind), ": the condition must be one boolean, got ",
              base::to_string(type->shape));
}

base::Shape without_length(const base::Shape& shape) {
  return {shape.dtype, base::Dims(shape.dims.begin() + 1, shape.dims.end())};
}

// Of a loop's body: what it carries on must be what it was given.
void check_carried(RegionKind kind, const Region& body, std::size_t num_carried) {
  base::check(body.results.size() >= num_carried, name_of(kind), ": the function must return ",
              num_carried, " carried values, got ", body.results.size());
  for (std::size_t i = 0; i < num_carried; ++i) {
    check_type(base::str(name_of(kind), ": carried value"), i, body.results[i],
               body.operands[i]->shape);
  }
}

using Types = std::vector<const TensorType*>;

Types cond_results(const RegionOp& op, std::span<const TensorType* const> operands) {
  check_predicate(op.kind, operands[0]);
  const Region& first = *op.regions[0];
  const Region& second = *op.regions[1];
  base::check(first.results.size() == second.results.size(),
              "cond: both branches must return equally many tensors, got ", first.results.size(),
              " and ", second.results.size());
  for (std::size_t i = 0; i < first.results.size(); ++i) {
    check_type("cond: the second branch's result", i, second.results[i], first.results[i]->shape);
  }
  return first.results;
}

Types while_results(const RegionOp& op) {
  base::check(op.regions[0]->results.size() == 1,
              "while_loop: the condition must return one tensor, got ",
              op.regions[0]->results.size());
  check_predicate(op.kind, op.regions[0]->results[0]);
  const Region& body = *op.regions[1];
  check_carried(op.kind, body, op.parameters.num_carried);
  base::check(body.results.size() == op.parameters.num_carried, "while_loop: the body must return ",
              op.parameters.num_carried, " tensors, got ", body.results.size());
  return body.results;
}

Types scan_results(const RegionOp& op, std::span<const TensorType* const> operands) {
  const Region& body = *op.regions[0];
  const std::size_t num_carried = op.parameters.num_carried;
  check_carried(op.kind, body, num_carried);
  base::internal_check(operands.size() == body.operands.size(), "a scan of ", body.operands.size(),
                       " operands is given ", operands.size());
  for (std::size_t i = num_carried; i < body.num_arguments; ++i) {
    const base::Shape& shape = operands[i]->shape;
    base::check(!shape.dims.empty() && shape.dims[0] == op.parameters.length, "scan: sequence ",
                i - num_carried, " must have ", op.parameters.length, " slices, got ",
                base::to_string(shape));
    check_type("scan: a slice of sequence", i - num_carried, body.operands[i],
               without_length(shape));
  }
  Types results(body.results.begin(),
                body.results.begin() + static_cast<std::ptrdiff_t>(num_carried));
  for (std::size_t i = num_carried; i < body.results.size(); ++i) {
    base::Shape shape = body.results[i]->shape;
    shape.dims.insert(shape.dims.begin(), op.parameters.length);
    results.push_back(intern_contiguous(std::move(shape)));
  }
  return results;
}

Types results_of(const RegionOp& op, std::span<const TensorType* const> operands) {
  switch (op.kind) {
    case RegionKind::kCall: return op.regions[0]->results;
    case RegionKind::kCond: return cond_results(op, operands);
    case RegionKind::kWhile: return while_results(op);
    case RegionKind::kScan: return scan_results(op, operands);
    case RegionKind::kBarrier: {
      const auto carried = operands.first(op.parameters.num_carried);
      return {carried.begin(), carried.end()};
    }
  }
  return {};
}

struct Item {
  RegionOp op;
  Entry entry;
};

std::unique_ptr<Item> make_item(RegionOp op, std::span<const TensorType* const> operands) {
  auto item = std::make_unique<Item>();
  item->op = std::move(op);
  item->op.region = &item->op;
  Entry& entry = item->entry;
  entry.op = &item->op;
  entry.operands.assign(operands.begin(), operands.end());
  for (std::uint32_t i = 0; i < operands.size(); ++i) entry.args.emplace_back(Operand{i});
  for (const RegionPtr& region : item->op.regions) {
    entry.slots.insert(entry.slots.end(), region->keys.size(),
                       {base::DType::kUInt64, SlotMode::kData});
  }
  entry.outputs = results_of(item->op, operands);
  entry.key = compute_key(entry);
  return item;
}

}  // namespace

void finish(Region& region) {
  base::Hasher hasher;
  hasher.add(region.trace.strict_key);
  for (const Trace::Step& step : region.trace.steps) {
    const std::vector<Slot>& slots = step.node->entry()->slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (is_key(slots[i])) {
        region.keys.push_back(step.node->slots()[i]);
      } else {
        hasher.add(step.node->slots()[i]);
      }
    }
  }
  hasher.add(region.num_arguments);
  hasher.add(region.operands.size());
  for (const TensorType* type : region.operands) add_type(hasher, type);
  for (const std::uint32_t operand : region.operand_of_leaf) hasher.add(operand);
  for (const TensorType* type : region.results) add_type(hasher, type);
  region.key = hasher.finish();
}

const Entry* region_entry(RegionKind kind, std::vector<RegionPtr> regions,
                          const RegionParameters& parameters,
                          std::span<const TensorType* const> operands) {
  base::Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(kind));
  for (const RegionPtr& region : regions) hasher.add(region->key);
  hasher.add(parameters.num_carried);
  hasher.add(static_cast<std::uint64_t>(parameters.length));
  hasher.add(parameters.is_reversed ? 1 : 0);
  for (const TensorType* type : operands) add_type(hasher, type);
  const base::Hash128 key = hasher.finish();
  static auto* const mutex = new std::mutex();
  static auto* const items =
      new std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<Item>>();
  const std::lock_guard lock(*mutex);
  std::unique_ptr<Item>& item = (*items)[{key.lo, key.hi}];
  if (item == nullptr) {
    RegionOp op;
    op.name = base::str("region:", name_of(kind), ":", base::to_string(key));
    op.kind = kind;
    op.regions = std::move(regions);
    op.parameters = parameters;
    try {
      item = make_item(std::move(op), operands);
    } catch (...) {
      items->erase({key.lo, key.hi});
      throw;
    }
  }
  return &item->entry;
}

}  // namespace torch_xla::graph
