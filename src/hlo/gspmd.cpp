// The words of GSPMD: strings of XLA's `OpSharding`, and calls that the partitioner knows.
#include "hlo/gspmd.h"

#include <algorithm>
#include <utility>

#include "hlo/ops.h"
#include "hlo/text.h"

namespace torch_xla::hlo::gspmd {
namespace {

constexpr std::string_view kWhole = "{replicated}";
constexpr std::string_view kManual = "{manual}";

Value call(std::string_view target, Value operand, const Type& result, std::string sharding,
           std::string config = {}) {
  const CustomCall custom{.call_target_name = std::string(target),
                          .results = {result},
                          .backend_config_text = std::move(config),
                          .api_version = 1,
                          .sharding = std::move(sharding)};
  return custom_call({operand}, custom)[0];
}

}  // namespace

std::string sharding_attribute(const base::Sharding& sharding, std::int64_t rank) {
  return string_literal(base::tiling_text(sharding, rank));
}

Value sharding_constraint(Value operand, const base::Sharding& sharding) {
  return call("Sharding", operand, operand.type(), base::tiling_text(sharding, operand.rank()));
}

Value whole_along(Value operand, const Dims& dims) {
  Dims others;
  for (std::int64_t d = 0; d < operand.rank(); ++d) {
    if (std::ranges::find(dims, d) == dims.end()) others.push_back(d);
  }
  std::string config;
  if (!others.empty()) {
    config = "unspecified_dims=" + list(others);
    std::erase(config, ' ');  // XLA's parser takes none
  }
  return call("Sharding", operand, operand.type(), std::string(kWhole), std::move(config));
}

Values manual_computation(const Values& operands, std::span<const Type> parts,
                          std::span<const Type> results, const base::Sharding& in,
                          const base::Sharding& out, const Region& body) {
  Values own;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Value placed = gspmd::sharding_constraint(operands[i], in);
    own.push_back(call("SPMDFullToShardShape", placed, parts[i], std::string(kManual)));
  }
  Values whole;
  for (const Value& made : body(own)) {
    const Value part = call("Sharding", made, made.type(), std::string(kManual));
    const Type& result = results[whole.size()];
    whole.push_back(
        call("SPMDShardToFullShape", part, result, base::tiling_text(out, result.rank())));
  }
  return whole;
}

}  // namespace torch_xla::hlo::gspmd
