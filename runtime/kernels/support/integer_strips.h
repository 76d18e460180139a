// Products of 8-bit codes with constant weights in strips, with oneDNN.
#pragma once

#include "runtime/kernels/support/integer_product.h"

namespace kvopt::kernels {

/// Computes `product`, whose right operand has strips. `scratch` receives the working memory.
llvm::Error multiplyCodeStrips(runtime::KernelContext& context, const IntegerProduct& product,
                               IntegerScratch& scratch);

} // namespace kvopt::kernels
