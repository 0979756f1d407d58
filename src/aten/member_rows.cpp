#include "aten/member_rows.h"

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "base/error.h"

namespace torch_xla::aten {
namespace {

using Combine = at::Tensor& (*)(at::Tensor& output, const at::Tensor& a, const at::Tensor& b);

at::Tensor& add(at::Tensor& output, const at::Tensor& a, const at::Tensor& b) {
  return at::add_out(output, a, b);
}

Combine combination(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM: return add;
    case c10d::ReduceOp::PRODUCT: return at::mul_out;
    case c10d::ReduceOp::MIN: return at::minimum_out;
    case c10d::ReduceOp::MAX: return at::maximum_out;
    case c10d::ReduceOp::BAND: return at::bitwise_and_out;
    case c10d::ReduceOp::BOR: return at::bitwise_or_out;
    case c10d::ReduceOp::BXOR: return at::bitwise_xor_out;
    default: return nullptr;
  }
}

}  // namespace

at::Tensor gather_rows(c10d::ProcessGroup& process_group, const at::Tensor& row) {
  const at::Tensor rows = at::empty({process_group.getSize(), row.numel()}, row.options());
  std::vector<std::vector<at::Tensor>> outputs{rows.unbind()};
  std::vector<at::Tensor> inputs{row};
  process_group.allgather(outputs, inputs)->wait();
  return rows;
}

std::vector<std::string> gather_texts(const GatherRows& gather, std::string_view text) {
  const auto size = static_cast<std::int64_t>(text.size());
  const at::Tensor sizes = gather(at::tensor({size}, at::kLong));
  at::Tensor padded = at::zeros({sizes.max().item<std::int64_t>()}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor rows = gather(padded);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const at::Tensor row = rows[i];
    texts.emplace_back(static_cast<const char*>(row.const_data_ptr()),
                       static_cast<std::size_t>(sizes[i].item<std::int64_t>()));
  }
  return texts;
}

void reduce_rows(c10d::ReduceOp::RedOpType op, const std::vector<at::Tensor>& rows,
                 at::Tensor output) {
  const Combine combine = combination(op);
  base::internal_check(combine != nullptr && rows.size() > 1, "rows can't be reduced");
  combine(output, rows[0], rows[1]);
  for (std::size_t i = 2; i < rows.size(); ++i) combine(output, output, rows[i]);
}

}  // namespace torch_xla::aten
