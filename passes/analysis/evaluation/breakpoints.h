// Breakpoints: places where numbers that a graph computes from its extents change from one affine
// function to another.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::analysis {

/// One of the cases that an operator distinguishes.
struct BreakpointSide {
  const char* name = nullptr; ///< completes "it is never …" or "it is …"
  /// Whether some step could be on this side.
  bool isPossible = true;
  /// Known polynomials in the extents that are at least 0 on this side.
  llvm::SmallVector<ir::Dim, 2> atLeastZero;
};

/// An operator that computes one affine function on each of its sides.
struct Breakpoint {
  const ir::Node* node = nullptr;
  /// Whether a side may remain untested. Positions from an input may in theory be outside the
  /// tensor, but a model never receives such positions. A small constant may exceed an unknown
  /// extent; the sizes next to it were tried.
  bool mayStayUnseen = false;
  llvm::SmallVector<BreakpointSide, 4> sides;
  /// The sides of the elements at one point: bit i is sides[i]. 0 if they are unknown.
  std::function<unsigned(Evaluation&)> seen;
};

/// A reason why an argument does not hold, and its node.
struct ArgumentBreak {
  const ir::Node* node = nullptr;
  std::string reason;
};

/// The first side that is possible and that no point covers. For an operator that is on one side at
/// each point, which is a choice by size, also the first of its sides that no point combines with a
/// side of another operator, although both are possible together. nullopt if everything is covered.
std::optional<ArgumentBreak> uncoveredSide(llvm::ArrayRef<Breakpoint> breakpoints,
                                           llvm::ArrayRef<Evaluation*> points);

} // namespace kvopt::analysis
