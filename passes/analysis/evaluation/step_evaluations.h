// StepEvaluations: one graph at steps of several sizes.
#pragma once

#include "passes/analysis/evaluation/step_points.h"

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace kvopt::analysis {

/// Evaluations of one graph at its step sizes. An edit of the graph makes them stale.
class StepEvaluations {
public:
  StepEvaluations(const ir::Graph& graph, const InterfaceFacts& facts);

  const ir::Graph& graph() const { return evaluated; }
  const StepPoints& points() const { return steps; }
  size_t count() const { return sizes.size(); }
  const StepSize& size(size_t index) const { return sizes[index]; }
  /// Made when it is first asked for.
  Evaluation& at(size_t index);
  /// A point at which one integer input differs from what it is at a size.
  struct Varied {
    std::unique_ptr<Evaluation> evaluation;
    const ir::Value* input = nullptr;
    bool isTorn = false; ///< its last element differs, and no other one does
  };
  /// Points that differ from the first or last size's in one integer input: masks hide, ids are
  /// others, positions and lengths are one more, for all elements or for one.
  llvm::ArrayRef<Varied> varied();
  /// At any other size.
  Evaluation& of(const StepSize& size);
  /// Points that differ from the first size's in the last element of one integer input, which is
  /// `number` or one more.
  llvm::ArrayRef<Varied> fedWith(int64_t number);
  /// A point other than the sizes at which facts are checked.
  struct CheckingPoint {
    Evaluation* evaluation;
    const ir::Value* torn = nullptr; ///< the input whose last element alone differs; null: none
  };
  /// The varied points, and those near integer constants that both of the first two sizes computed
  /// with so far (see areAlwaysEqual).
  std::vector<CheckingPoint> checkingPoints();
  /// The sizes and the checking points.
  std::vector<Evaluation*> allPoints();
  /// The most rows of a cache that are tried.
  static constexpr int64_t mostRowsTried = 8200;
  /// Adds sizes of about so many rows to the checking points, if they are not too many.
  void tryNear(int64_t rows);

private:
  const ir::Graph& evaluated;
  StepPoints steps;
  std::vector<StepSize> sizes;
  std::vector<std::unique_ptr<Evaluation>> made;
  std::vector<Varied> variations;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::unique_ptr<Evaluation>> large;
  std::map<int64_t, std::vector<Varied>> fed;
  std::set<int64_t> alsoTried;
};

/// Whether two values of the graph have the same extents and elements, or sums of products of the
/// same elements in their places, at all sizes, whatever the
/// integer inputs hold: also with masks that hide, other ids, and positions and lengths that are
/// one more, for all elements of an input or for one. Where integer constants are compared or
/// computed with on the way to either value, also at as many rows as each of them says, and at one
/// less and one more, with as many tokens and batch rows, and with ids that are the constant, for a
/// sample of the elements. Constants that the graph computes from others count as well. Where
/// `consecutive` is an input, its elements are taken to count on by one: no single one is changed.
bool areAlwaysEqual(const ir::Value& one, const ir::Value& other, StepEvaluations& evaluations,
                    const ir::Value* consecutive = nullptr);

} // namespace kvopt::analysis
