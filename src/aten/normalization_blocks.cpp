// As of products (product_kernel.cpp): OpenMP's threads would be woken for each call.
#include "aten/normalization_blocks.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "aten/host_tensor.h"
#include "aten/parallel.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 32768;

struct Rows {
  torch::jit::Stack operands;
  // Operands of which each row has its own part, and along which dimension: -1 for the others.
  std::vector<std::int64_t> operand_dims;
  std::array<at::Tensor, 3> results;
  std::array<std::int64_t, 3> result_dims;
  std::int64_t count;
};

std::optional<Rows> layer_norm_rows(const HostCall& call, const torch::jit::Stack& operands) {
  Rows rows{operands, {0, -1, -1, -1, -1}, {}, {0, 0, 0}, result_over(call, 1).numel()};
  if (rows.count == 0) return std::nullopt;
  const std::int64_t size = operands[0].toTensor().numel() / rows.count;
  rows.operands[0] = operands[0].toTensor().view({rows.count, size});
  rows.operands[1] = c10::List<std::int64_t>({size});
  for (const std::size_t parameter : {2, 3}) {
    if (!operands[parameter].isNone()) {
      rows.operands[parameter] = operands[parameter].toTensor().view({size});
    }
  }
  rows.results = {result_over(call, 0).view({rows.count, size}),
                  result_over(call, 1).view({rows.count, 1}),
                  result_over(call, 2).view({rows.count, 1})};
  return rows;
}

std::optional<Rows> batch_norm_rows(const HostCall& call, const torch::jit::Stack& operands) {
  const bool is_training = operands[5].toBool();
  const bool has_running = !operands[3].isNone() || !operands[4].isNone();
  if (operands[0].toTensor().size(0) != 1 || !is_training || has_running) return std::nullopt;
  const auto of_parameter = [&](std::size_t i) { return operands[i].isNone() ? -1 : 0; };
  return Rows{operands,
              {1, of_parameter(1), of_parameter(2), -1, -1, -1, -1, -1},
              {result_over(call, 0), result_over(call, 1), result_over(call, 2)},
              {1, 0, 0},
              operands[0].toTensor().size(1)};
}

void write_block(const Rows& rows, const c10::OperatorHandle& op, std::int64_t start,
                 std::int64_t length) {
  torch::jit::Stack stack = rows.operands;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const std::int64_t dim = rows.operand_dims[i];
    if (dim >= 0) stack[i] = stack[i].toTensor().narrow(dim, start, length);
  }
  op.callBoxed(&stack);
  for (std::size_t i = 0; i < rows.results.size(); ++i) {
    rows.results[i].narrow(rows.result_dims[i], start, length).copy_(stack[i].toTensor());
  }
}

}  // namespace

bool normalize_in_blocks(const HostCall& call, const c10::OperatorHandle& op, std::string_view name,
                         const torch::jit::Stack& operands) {
  const bool is_layer_norm = name == "native_layer_norm";
  if (!is_layer_norm && name != "native_batch_norm") return false;
  if (call.num_outputs() != 3) return false;
  const std::optional<Rows> rows =
      is_layer_norm ? layer_norm_rows(call, operands) : batch_norm_rows(call, operands);
  if (!rows.has_value()) return false;
  const std::int64_t size = operands[0].toTensor().numel() / rows->count;
  in_parallel(call, rows->count, std::max<std::int64_t>(1, kElementsPerThread / size),
              [&](std::int64_t begin, std::int64_t end) {
                const OnThisThread on_this_thread;
                write_block(*rows, op, begin, end - begin);
              });
  return true;
}

}  // namespace torch_xla::aten
