// PyTorch's kernels multiply on OpenMP's threads, of which each thread of the plugin has its own:
// they are woken at each call, wait for the core that records the next step, and once there are
// more of them than cores, eager PyTorch's fall asleep at once too. Blocks of the result on the
// threads that the plugin has anyway do not.
#include "aten/product_kernel.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <optional>

#include "aten/host_tensor.h"
#include "aten/parallel.h"
#include "ops/aten_call.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So many products of two numbers are worth another thread, some 20 us.
constexpr std::int64_t kProductsPerThread = 1 << 20;
// With fewer in a batch, each is in blocks.
constexpr std::int64_t kMatricesPerThread = 2;
// For each row of a matrix of doubles that is cut into blocks of columns.
constexpr std::int64_t kLeastColumnsOfDoubles = 8;
// What the kernels compute at a time, so that a block is not cut across it.
constexpr std::int64_t kTile = 16;

// alpha * lhs @ rhs + beta * self, of matrices or of as many of them as `out` has.
struct Product {
  at::Tensor lhs;
  at::Tensor rhs;
  at::Tensor out;
  std::optional<at::Tensor> self;  // as large as `out`
  at::Scalar beta = 1;
  at::Scalar alpha = 1;

  bool is_batch() const { return out.dim() == 3; }
  // Of two numbers, in each element of the result.
  std::int64_t depth() const { return lhs.size(-1); }
  // What gives `length` rows, columns or matrices of the result.
  Product part(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  Product matrix(std::int64_t i) const;
  void write();
};

Product Product::part(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  Product part = *this;
  const auto narrow = [=](at::Tensor& tensor) { tensor = tensor.narrow(dim, start, length); };
  if (is_batch() || dim == 0) narrow(part.lhs);
  if (is_batch() || dim == 1) narrow(part.rhs);
  narrow(part.out);
  if (part.self.has_value()) narrow(*part.self);
  return part;
}

Product Product::matrix(std::int64_t i) const {
  Product matrix{lhs[i], rhs[i], out[i], std::nullopt, beta, alpha};
  if (self.has_value()) matrix.self = (*self)[i];
  return matrix;
}

void Product::write() {
  if (self.has_value()) {
    is_batch() ? at::baddbmm_out(out, *self, lhs, rhs, beta, alpha)
               : at::addmm_out(out, *self, lhs, rhs, beta, alpha);
  } else {
    is_batch() ? at::bmm_out(out, lhs, rhs) : at::mm_out(out, lhs, rhs);
  }
}

bool is_zero(const at::Scalar& factor) { return factor.toComplexDouble() == 0.0; }

// How many parts of a matrix's sums are worth a thread each. What alpha hides, though it be not
// finite, the kernel knows to leave out.
std::int64_t num_parts(const HostCall& call, const Product& product) {
  if (product.is_batch() || is_zero(product.alpha) ||
      !ops::is_of_long_sums(product.out.size(0), product.out.size(1), product.depth())) {
    return 1;
  }
  const auto num_threads = static_cast<std::int64_t>(call.num_threads());
  return std::min(num_threads, product.out.numel() * product.depth() / kProductsPerThread);
}

// The parts are added up in their order.
void write_parts(const HostCall& call, const Product& product, std::int64_t count) {
  at::Tensor out = product.out;
  const at::Tensor sums = at::empty({count, out.size(0), out.size(1)}, out.options());
  in_parallel(call, count, 1, [&](std::int64_t begin, std::int64_t end) {
    const OnThisThread on_this_thread;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t start = product.depth() * i / count;
      const std::int64_t length = product.depth() * (i + 1) / count - start;
      at::Tensor sum = sums[i];
      at::mm_out(sum, product.lhs.narrow(1, start, length), product.rhs.narrow(0, start, length));
    }
  });
  const OnThisThread on_this_thread;
  at::sum_out(out, sums, 0);
  if (!product.self.has_value()) return;
  out.mul_(product.alpha);
  if (!is_zero(product.beta)) out.add_(*product.self, product.beta);
}

void write_blocks(const HostCall& call, const Product& product) {
  if (const std::int64_t count = num_parts(call, product); count > 1) {
    return write_parts(call, product, count);
  }
  // Along the longer side: the less is repeated of what the kernel prepares of the other matrix.
  // Columns of doubles take up to 1.4 times as long as rows.
  const std::int64_t least = product.out.element_size() > 4 ? kLeastColumnsOfDoubles : 1;
  const bool by_columns = !product.is_batch() && product.out.size(1) > least * product.out.size(0);
  const std::int64_t dim = by_columns ? 1 : 0;
  const std::int64_t tile = product.is_batch() ? 1 : kTile;
  const std::int64_t size = product.out.size(dim);
  const std::int64_t products_per_tile = product.out.numel() / size * tile * product.depth();
  const std::int64_t grain = std::max<std::int64_t>(1, kProductsPerThread / products_per_tile);
  in_parallel(call, (size + tile - 1) / tile, grain, [&](std::int64_t begin, std::int64_t end) {
    const OnThisThread on_this_thread;
    const std::int64_t start = begin * tile;
    product.part(dim, start, std::min(end * tile, size) - start).write();
  });
}

// What the operator multiplies, or nothing where that would have to be copied first.
std::optional<Product> product_of(std::string_view name, const torch::jit::Stack& operands,
                                  const at::Tensor& out) {
  if (name == "mm" || name == "bmm") {
    return Product{operands[0].toTensor(), operands[1].toTensor(), out, std::nullopt};
  }
  if (name == "addmm" || name == "baddbmm") {
    return Product{operands[1].toTensor(),
                   operands[2].toTensor(),
                   out,
                   operands[0].toTensor().expand(out.sizes()),
                   operands[3].toScalar(),
                   operands[4].toScalar()};
  }
  if (name != "linear") return std::nullopt;
  const at::Tensor& input = operands[0].toTensor();
  const at::Tensor& weight = operands[1].toTensor();
  if (weight.dim() != 2 || (input.dim() != 2 && !input.is_contiguous())) return std::nullopt;
  Product product{input.view({-1, weight.size(1)}), weight.t(), out.view({-1, weight.size(0)}),
                  std::nullopt};
  if (!operands[2].isNone()) product.self = operands[2].toTensor().expand(product.out.sizes());
  return product;
}

}  // namespace

bool multiply_in_blocks(const HostCall& call, std::string_view name,
                        const torch::jit::Stack& operands) {
  if (!operands[0].isTensor() || call.num_outputs() != 1) return false;
  const at::Tensor out = result_over(call, 0);
  // Those of halves prepare both matrices for instructions of their own, at some cost.
  if (at::isReducedFloatingType(out.scalar_type())) return false;
  if (out.numel() == 0 || out.scalar_type() != operands[0].toTensor().scalar_type()) return false;
  const std::optional<Product> product = product_of(name, operands, out);
  if (!product.has_value()) return false;
  if (!product->is_batch() ||
      product->out.size(0) >= kMatricesPerThread * static_cast<std::int64_t>(call.num_threads())) {
    write_blocks(call, *product);
    return true;
  }
  for (std::int64_t i = 0; i < product->out.size(0); ++i) write_blocks(call, product->matrix(i));
  return true;
}

}  // namespace torch_xla::aten
