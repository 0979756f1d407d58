// Matrix products and matrix masks as emission, for the families linear algebra, attention and
// convolution.
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

// A contraction of float16 or bfloat16 stays in float32, the dtype in which it is accumulated;
// other dtypes stay as they are. Convert the result when all is added up.
Value contract(Value lhs, Value rhs, const hlo::DotDimensionNumbers& dimension_numbers);

// The product of matrices [..., n, k] and [..., k, m] of equal leading sizes, in the operands'
// dtype.
Value matrix_product(Value lhs, Value rhs);

void check_product_dtypes(Value m1, Value m2);

// The last two dimensions swapped; `adjoint` also conjugates complex elements.
Value matrix_transpose(Value value);
Value adjoint(Value value);

// Bool[rows, columns]: where row and column number are in the relation.
Value row_compared_to_column(hlo::Builder& builder, std::int64_t rows, std::int64_t columns,
                             hlo::ComparisonDirection direction);
// Elements outside the lower (column <= row), or upper, triangle made zero.
Value lower_triangle(Value matrices);
Value upper_triangle(Value matrices);
// The identity in every matrix of a shape [..., n, m].
Value identity(hlo::Builder& builder, const Shape& shape);

// The families' parts in files of their own.
void register_fft(Registry& m);
void register_matrix_factors(Registry& m);
void register_grouped_products(Registry& m);

}  // namespace torch_xla::ops
