// The shape that a reshape of fixed extents stands for, once some of them are symbols.
#pragma once

#include "ir/type.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::analysis {

/// What `to` is for data whose extents have become `from`: each symbol goes to the extent that had
/// its elements, in row-major order. `before` gives what an extent was. Where extents of one do not
/// tell, as many symbols as there are ones go to the first of them each, except those for which
/// `staysOne`, and what is left is joined with a neighbor: that is a guess, which has to be proved
/// by what the result is used for.
///
///   from [batch, tokens, 512], once [1, 1, 512], to [1, 1, 8, 64]: [batch, tokens, 8, 64]
///   from [batch, tokens, 8, 64], once [2, 3, 8, 64], to [6, 512]: [batch*tokens, 512]
///
/// nullopt where the elements do not line up.
std::optional<ir::Shape> alignedReshape(llvm::ArrayRef<ir::Dim> from, llvm::ArrayRef<ir::Dim> to,
                                        llvm::function_ref<ir::Dim(const ir::Dim&)> before,
                                        llvm::function_ref<bool(unsigned axis)> staysOne);

} // namespace kvopt::analysis
