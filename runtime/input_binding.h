// Checks of a run's inputs against the graph's declared types, and the values of its symbols.
#pragma once

#include "ir/graph.h"
#include "runtime/tensor_view.h"

#include "llvm/ADT/StringMap.h"

namespace kvopt {

/// Symbols of extents and what they are in one run.
using SymbolValues = llvm::StringMap<int64_t>;

/// Checks one view per graph input (null where the default contents are to be used) and collects
/// the symbols' values. An extent that is a symbol fixes its value; one that is an expression is
/// compared where all its symbols have values. Errors name the input.
llvm::Expected<SymbolValues> bindInputs(const Graph& graph,
                                        llvm::ArrayRef<const TensorView*> views);

/// `[2, 3, 4]`
std::string extentsText(llvm::ArrayRef<int64_t> shape);

} // namespace kvopt
