#include "aten/row_collectives.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "aten/member_rows.h"
#include "base/error.h"
#include "ops/aten_call.h"

namespace torch_xla::aten {
namespace {

using Rows = std::vector<at::Tensor>;

struct NamedReduction {
  std::string_view name;
  c10d::ReduceOp::RedOpType reduction;
};
constexpr NamedReduction kReductions[] = {
    {"sum", c10d::ReduceOp::SUM},
    {"avg", c10d::ReduceOp::AVG},
    {"product", c10d::ReduceOp::PRODUCT},
    {"min", c10d::ReduceOp::MIN},
    {"max", c10d::ReduceOp::MAX},
    {"band", c10d::ReduceOp::BAND},
    {"bor", c10d::ReduceOp::BOR},
    {"bxor", c10d::ReduceOp::BXOR},
    {"premul_sum", c10d::ReduceOp::PREMUL_SUM},
    {"unused", c10d::ReduceOp::UNUSED},
};

// As much as a core's cache holds of all members' pieces, where they are few.
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

RowCollective all_reduce(const std::string& op) {
  return {.write = [op = reduction(op)](const Rows& inputs, const at::Tensor& output,
                                        HostMemory* memory) {
    if (memory == nullptr) return reduce_rows(op, inputs, output);
    memory->all_reduce(op, inputs, output);
  }};
}

RowCollective all_gather(std::int64_t num_members) {
  return {.output_rows = num_members,
          .write = [](const Rows& inputs, const at::Tensor& output, HostMemory*) {
            for (std::size_t i = 0; i < inputs.size(); ++i) {
              output[static_cast<std::int64_t>(i)].copy_(inputs[i][0]);
            }
          }};
}

RowCollective reduce_scatter(const std::string& op, std::int64_t member, std::int64_t num_members) {
  return {.input_rows = num_members,
          .write = [op = reduction(op), member](const Rows& inputs, const at::Tensor& output,
                                                HostMemory*) {
            Rows parts;
            for (const at::Tensor& input : inputs) parts.push_back(input[member]);
            reduce_rows(op, parts, output[0]);
          }};
}

RowCollective broadcast(std::int64_t src, std::int64_t member) {
  return {.is_shown = member == src,
          .write = [src](const Rows& inputs, const at::Tensor& output, HostMemory*) {
            output.copy_(inputs[static_cast<std::size_t>(src)]);
          }};
}

}  // namespace

c10d::ReduceOp::RedOpType reduction(const std::string& name) {
  const auto* const found = std::ranges::find(kReductions, name, &NamedReduction::name);
  base::internal_check(found != std::end(kReductions), name, " is no reduction");
  return found->reduction;
}

std::string name_of_reduction(c10d::ReduceOp::RedOpType reduction) {
  const auto* const found = std::ranges::find(kReductions, reduction, &NamedReduction::reduction);
  return found == std::end(kReductions) ? "unknown" : std::string(found->name);
}

std::optional<RowCollective> row_collective(const std::string& op,
                                            const torch::jit::Stack& arguments, std::int64_t member,
                                            std::int64_t num_members) {
  const std::string name = op.substr(op.rfind(':') + 1);
  if (name == "all_reduce") return all_reduce(arguments[1].toStringRef());
  if (name == "all_gather_into_tensor") return all_gather(num_members);
  if (name == "reduce_scatter_tensor") {
    return reduce_scatter(arguments[1].toStringRef(), member, num_members);
  }
  if (name == "broadcast") return broadcast(arguments[1].toInt(), member);
  return std::nullopt;
}

// While a piece is read, the next is shown.
void exchange_at_once(const RowCollective& collective, HostMemory& memory, const at::Tensor& input,
                      const at::Tensor& output) {
  const at::Tensor from = input.view({collective.input_rows, -1});
  const at::Tensor to = output.view({collective.output_rows, -1});
  // Other members' programs may show the same in the first of two calls.
  const bool is_whole = static_cast<std::int64_t>(input.nbytes()) <= ops::kMostBytesStarted;
  const std::int64_t width =
      is_whole ? from.size(1)
               : kPieceBytes / static_cast<std::int64_t>(input.itemsize()) / collective.input_rows;
  const auto piece_of = [&](const at::Tensor& matrix, std::int64_t start) {
    return matrix.narrow(1, start, std::min(width, matrix.size(1) - start));
  };
  const auto show = [&](std::int64_t start) {
    return memory.show_when_free(collective.shown(piece_of(from, start)));
  };
  std::uint64_t number = show(0);
  for (std::int64_t start = 0; start < from.size(1); start += width) {
    const std::uint64_t shown = number;
    if (start + width < from.size(1)) number = show(start + width);
    const at::Tensor piece = piece_of(from, start);
    collective.write(memory.rows(shown, piece.sizes(), piece.options()), piece_of(to, start),
                     &memory);
    memory.let_go(shown);
  }
}

}  // namespace torch_xla::aten
