// The operators that StableHLO cannot express, with the types of their results where PyTorch has no
// compiled Meta kernel: programs call PyTorch's own kernels for them (aten_call.h).
#include "ops/aten_call.h"
#include "ops/linear_algebra.h"
#include "ops/matrix_batch.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

using Shapes = std::vector<Shape>;

void check_numbers(const Value& value, const char* op) {
  base::check(!base::is_integral(value.dtype()), op,
              ": Expected a floating point or complex tensor as input. Got ",
              base::dtype_info(value.dtype()).name);
}

void check_precision(const Value& value, const char* op) {
  check_numbers(value, op);
  base::check(accumulate_dtype(value.dtype()) == value.dtype(), op,
              ": Low precision dtypes not supported. Got ", base::dtype_info(value.dtype()).name);
}

Shapes eig(const Value& self) {
  check_square(self, "linalg.eig", "A");
  check_precision(self, "linalg.eig");
  const DType dtype = base::complex_dtype(self.dtype());
  return {{dtype, with_batch(batch_dims(self), {self.dim(self.rank() - 1)})}, {dtype, self.dims()}};
}

// Right-hand sides that are vectors have a dimension less than the matrices.
bool are_vectors(const Value& a, const Value& b) {
  const Dims rows = leading_dims(a.dims(), 1);
  return b.rank() == 1 || (a.rank() - 1 == b.rank() && b.dims() == rows);
}

Shapes lstsq(const Value& a, const Value& b, const std::string& driver) {
  check_matrices(a, "torch.linalg.lstsq", "input");
  base::check(b.rank() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  check_precision(a, "torch.linalg.lstsq");
  const std::int64_t m = a.dim(a.rank() - 2);
  const std::int64_t n = a.dim(a.rank() - 1);
  const bool is_vector = are_vectors(a, b);
  const Dims wide = is_vector ? with_batch(b.dims(), {1}) : b.dims();
  base::check(wide[wide.size() - 2] == m, "torch.linalg.lstsq: input.size(-2) should match other.",
              is_vector ? "size(-1)" : "size(-2)");
  base::check(a.dtype() == b.dtype(), "torch.linalg.lstsq: Expected input and other to have the ",
              "same dtype, but got input's dtype ", base::dtype_info(a.dtype()).name,
              " and other's dtype ", base::dtype_info(b.dtype()).name);
  const bool has_residuals = m > n && driver != "gelsy";
  if (has_residuals && driver != "gels") {
    base::fail(base::ErrorKind::kUnimplemented, "the data decide whether there are residuals");
  }
  const Dims batch = broadcast_dims(batch_dims(a), leading_dims(wide, 2));
  const std::int64_t columns = wide.back();
  Dims solution = with_batch(batch, {n});
  Dims residuals = has_residuals ? batch : Dims{0};
  if (!is_vector) solution.push_back(columns);
  if (has_residuals) residuals.push_back(columns);
  const bool has_values = driver == "gelsd" || driver == "gelss";
  return {
      {a.dtype(), solution},
      {base::real_dtype(a.dtype()), residuals},
      {DType::kInt64, driver == "gels" ? Dims{0} : batch},
      {base::real_dtype(a.dtype()), has_values ? with_batch(batch, {std::min(m, n)}) : Dims{0}}};
}

Shape pinv(const Value& self) {
  check_matrices(self, "linalg.pinv", "A");
  check_precision(self, "linalg.pinv");
  Dims dims = self.dims();
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return {self.dtype(), dims};
}

void register_matrix_calls(Registry& m) {
  m.host("_linalg_svd");
  m.host("_linalg_eigh");
  m.host("linalg_matrix_sqrth");
  m.host("linalg_polar");
  m.host("linalg_ldl_factor_ex");
  m.host("linalg_ldl_solve");
  m.host("linalg_eig", eig);
  m.host("_linalg_eigvals", [](Value self) { return Shapes{eig(self)[0]}; });
  m.host("linalg_lstsq",
         [](Value self, Value b, std::optional<double>, std::optional<std::string> driver) {
           return lstsq(self, b, driver.value_or("gelsy"));
         });
  m.host("linalg_pinv.atol_rtol_tensor",
         [](Value self, std::optional<Value>, std::optional<Value>, bool) { return pinv(self); });
  m.host("linalg_matrix_exp",
         [](Value self) {
           check_square(self, "linalg.matrix_exp", "A");
           check_numbers(self, "linalg.matrix_exp");
           return self.type();
         },
         {.takes_half = true});
  m.host("ormqr", [](Value self, Value tau, Value other, bool left, bool) {
    base::check(self.rank() >= 2, "torch.ormqr: input must have at least 2 dimensions.");
    base::check(other.rank() >= 2, "torch.ormqr: other must have at least 2 dimensions.");
    const std::int64_t side = other.dim(other.rank() - (left ? 2 : 1));
    base::check(side == self.dim(self.rank() - 2), "torch.ormqr: other.shape[", left ? -2 : -1,
                "] must be equal to input.shape[-2]");
    base::check(tau.rank() == self.rank() - 1, "torch.ormqr: Expected tau to have one dimension ",
                "less than input, but got tau.ndim equal to ", tau.rank(),
                " and input.ndim is equal to ", self.rank());
    base::check(tau.dim(tau.rank() - 1) ==
                    std::min(other.dim(other.rank() - (left ? 2 : 1)), self.dim(self.rank() - 1)),
                "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[", left ? -2 : -1,
                "], input.shape[-1])");
    return other.type();
  });
}

Shape counts(const Value& self, const Dims& bins) {
  base::check(base::is_floating(self.dtype()), "\"histogramdd\" not implemented for '",
              base::dtype_info(self.dtype()).name, "'");
  return {self.dtype(), bins};
}

void register_histograms(Registry& m) {
  using Range = std::optional<std::vector<double>>;
  m.host("histogram.bin_ct", [](Value self, std::int64_t bins, Range, std::optional<Value>, bool) {
    base::check(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins);
    return Shapes{counts(self, {bins}), counts(self, {bins + 1})};
  });
  m.host("histogram.bins_tensor", [](Value self, Value bins, std::optional<Value>, bool) {
    return Shapes{counts(self, {bins.num_elements() - 1}), counts(self, bins.dims())};
  });
  m.host("_histogramdd_bin_edges", [](Value self, Dims bins, Range, std::optional<Value>, bool) {
    base::check(self.rank() >= 2,
                "torch.histogramdd: input tensor should have at least 2 "
                "dimensions, but got ",
                self.rank());
    base::check(std::ssize(bins) == self.dim(self.rank() - 1),
                "histogramdd: The size of bins must be equal to the innermost dimension of the "
                "input.");
    Shapes edges;
    for (const std::int64_t count : bins) edges.push_back(counts(self, {count + 1}));
    return edges;
  });
  m.host("_histogramdd_from_bin_cts", [](Value self, Dims bins, Range, std::optional<Value>, bool) {
    return counts(self, bins);
  });
  m.host("_histogramdd_from_bin_tensors",
         [](Value self, std::vector<Value> bins, std::optional<Value>, bool) {
           Dims dims;
           for (const Value& edges : bins) dims.push_back(edges.num_elements() - 1);
           return counts(self, dims);
         });
}

}  // namespace

void register_inexpressible(Registry& m) {
  register_matrix_calls(m);
  register_histograms(m);
  m.host("_standard_gamma_grad", [](Value self, Value) { return self.type(); });
  m.host("_dirichlet_grad", [](Value x, Value alpha, Value total) {
    return Shape{x.dtype(), broadcast_dims({x, alpha, total})};
  });
}

}  // namespace torch_xla::ops
