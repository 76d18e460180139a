// Relations between extents that follow from a decoder's interface and from no operator.
#pragma once

#include "passes/analysis/interface/extent_equations.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {

/// Symbols that occur in the type of one input only: names that a file may have given to each input
/// separately.
llvm::StringSet<> symbolsOfOneInput(const ir::Graph& graph);

/// Equations that no operator requires; all of them are assumptions:
///
/// - Pasts that rows are joined to have equal lengths, if the lengths of all but one are
///   `ofOneInput`.
/// - A table of integers or booleans whose number of columns occurs nowhere else is a mask of keys,
///   of past and new rows together, with one row per sequence. Pasts that keep all rows take
///   precedence over those that keep the last ones only; if such pasts have several lengths, the
///   table could belong to any.
///
/// The types of values are the inferred ones.
std::vector<ExtentEquation> interfaceEquations(const ir::Graph& graph,
                                               const llvm::StringSet<>& ofOneInput);

} // namespace kvopt::analysis
