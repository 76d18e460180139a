// What the interface of a decoder says of extents where no operator does.
#pragma once

#include "passes/analysis/interface/extent_equations.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {

/// The symbols that occur in the type of one input only: names that a file may have given to each
/// input by itself.
llvm::StringSet<> symbolsOfOneInput(const ir::Graph& graph);

/// Equations that no operator demands, all of them assumptions:
///
/// - Rows are joined to several pasts: they are equally long, where the lengths of the others are
///   `ofOneInput`.
/// - A table of integers or booleans has as many columns as nothing else: it is a mask of keys, of
///   past and new rows together, with a row for each sequence. Pasts that keep all rows count
///   before those that keep the last ones only; if such pasts have several lengths, the table could
///   belong to any.
///
/// The types of values are those inferred.
std::vector<ExtentEquation> interfaceEquations(const ir::Graph& graph,
                                               const llvm::StringSet<>& ofOneInput);

} // namespace kvopt::analysis
