// Matrix products, which several families of operators use.
#pragma once

#include "meaning/call.h"

namespace kvopt::meaning {

/// numpy's matmul: [..., M, K] x [..., K, N] with broadcasting of what is in front; an operand of
/// rank 1 is a row or a column.
Tensor matrixProduct(Call& call, Tensor a, Tensor b, ir::ElementType type);

/// [..., M, N] as [..., N, M].
Tensor lastTwoExchanged(const Tensor& matrix);

/// Codes without their zero point (an operand that may be absent): one number, one for each place
/// of an axis, or a tensor that broadcasts.
Tensor withoutZeroPoint(Call& call, const Tensor& codes, unsigned operand, int64_t axis);

} // namespace kvopt::meaning
