// The reports of factorisations, also where LAPACK makes one and ours do not.
#include "aten/factor_checks.h"

#include <ATen/ops/_linalg_check_errors_native.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "aten/registration.h"
#include "runtime/capture.h"
#include "runtime/transfer.h"

namespace torch_xla::aten {
namespace {

void linalg_check_errors(const at::Tensor& info, c10::string_view api_name, bool is_matrix) {
  const runtime::ReadsForOperator reads;
  if (runtime::can_run()) at::native::_linalg_check_errors(info, api_name, is_matrix);
}

}  // namespace

at::Tensor info_of_results(CallArguments, CallArguments results) {
  return results.back().toTensor();
}

at::Tensor info_of_cholesky(CallArguments arguments, CallArguments) {
  return std::get<1>(at::linalg_cholesky_ex(arguments[0].toTensor(), arguments[1].toBool(),
                                            /*check_errors=*/false));
}

at::Tensor info_of_factor(CallArguments arguments, CallArguments) {
  const at::Tensor diagonal = arguments[0].toTensor().diagonal(0, -2, -1);
  const std::int64_t n = diagonal.size(-1);
  const at::TensorOptions options = diagonal.options().dtype(at::kInt);
  if (diagonal.numel() == 0)
    return at::zeros(diagonal.sizes().slice(0, diagonal.dim() - 1), options);
  const at::Tensor order = at::arange(1, n + 1, options);
  const at::Tensor first = at::where(at::eq(diagonal, 0), order, n + 1).amin(-1);
  return at::where(at::gt(first, n), 0, first).to(at::kInt);
}

bool take_check_errors(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  bool is_checked = runtime::can_run();
  const std::optional<int> position = schema.argumentIndexWithName("check_errors");
  if (!position.has_value()) return is_checked;
  c10::IValue& argument =
      torch::jit::peek(stack, static_cast<std::size_t>(*position), schema.arguments().size());
  is_checked = is_checked && argument.toBool();
  argument = false;
  return is_checked;
}

void check_factors(const FactorRule& rule, CallArguments arguments, CallArguments results) {
  const bool is_matrix = arguments[0].toTensor().dim() == 2;
  linalg_check_errors(rule.info(arguments, results), rule.api, is_matrix);
}

void register_factor_checks(torch::Library& m) {
  m.impl("_linalg_check_errors", linalg_check_errors);
}

}  // namespace torch_xla::aten
