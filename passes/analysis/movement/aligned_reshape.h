// The symbolic shape of a reshape with fixed extents, once some extents are symbols.
#pragma once

#include "ir/type.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::analysis {

/// `to` for data whose extents have become `from`: each symbol goes to the extent that had its
/// elements, in row-major order. `before` returns the former number of an extent. Extents of 1 are
/// ambiguous: one symbol each goes to the first of them, except those for which `staysOne`, and the
/// remaining symbols are joined with a neighbor. That is a guess, which the use of the result must
/// prove.
///
///   from [batch, tokens, 512], once [1, 1, 512], to [1, 1, 8, 64]: [batch, tokens, 8, 64]
///   from [batch, tokens, 8, 64], once [2, 3, 8, 64], to [6, 512]: [batch*tokens, 512]
///
/// nullopt if the elements do not line up.
std::optional<ir::Shape> alignedReshape(llvm::ArrayRef<ir::Dim> from, llvm::ArrayRef<ir::Dim> to,
                                        llvm::function_ref<ir::Dim(const ir::Dim&)> before,
                                        llvm::function_ref<bool(unsigned axis)> staysOne);

} // namespace kvopt::analysis
