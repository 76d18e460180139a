// Breakpoints: where numbers that a graph computes from its extents change from one affine function
// to another.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::analysis {

/// One of the cases that an operator tells apart.
struct BreakpointSide {
  const char* name = nullptr; ///< completes "it is never …" or "it is …"
  /// Whether some step could be on this side.
  bool isPossible = true;
  /// Polynomials in the extents that are at least 0 on this side, as far as they are known.
  llvm::SmallVector<ir::Dim, 2> atLeastZero;
};

/// An operator that computes one affine function on each of its sides.
struct Breakpoint {
  const ir::Node* node = nullptr;
  /// Whether a side may stay unseen. Places from an input may lie outside of the tensor in theory,
  /// but a model is not fed such places. A small constant may exceed an extent that is not known;
  /// the sizes next to it were tried.
  bool mayStayUnseen = false;
  llvm::SmallVector<BreakpointSide, 4> sides;
  /// The sides of the elements at one point: bit i is sides[i]. 0 where they are not known.
  std::function<unsigned(Evaluation&)> seen;
};

/// Why an argument does not hold, and at which node.
struct ArgumentBreak {
  const ir::Node* node = nullptr;
  std::string reason;
};

/// The first side that may exist and that no point is on. Where an operator is on one side at each
/// point, which is a choice by size, also the first of its sides that no point has together with
/// one of another operator, although both may exist. nullopt where everything is covered.
std::optional<ArgumentBreak> uncoveredSide(llvm::ArrayRef<Breakpoint> breakpoints,
                                           llvm::ArrayRef<Evaluation*> points);

} // namespace kvopt::analysis
