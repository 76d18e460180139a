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
  /// Created on the first call.
  Evaluation& at(size_t index);
  /// A point at which one integer input differs from its value at one of the sizes.
  struct Varied {
    std::unique_ptr<Evaluation> evaluation;
    const ir::Value* input = nullptr;
    bool isTorn = false; ///< only its last element differs
  };
  /// Points that differ from the first or last size's in one integer input: masks hide keys, ids
  /// are others, positions and lengths are one more, for all elements or for one.
  llvm::ArrayRef<Varied> varied();
  /// The evaluation at any other size.
  Evaluation& of(const StepSize& size);
  /// Points that differ from the first size's in the last element of one integer input, which is
  /// `number` or `number` + 1.
  llvm::ArrayRef<Varied> fedWith(int64_t number);
  /// A point other than the sizes, at which facts are checked.
  struct CheckingPoint {
    Evaluation* evaluation;
    const ir::Value* torn = nullptr; ///< input whose last element alone differs; null: none
  };
  /// The varied points, and points near integer constants that both of the first two sizes have
  /// computed with so far (see areAlwaysEqual).
  std::vector<CheckingPoint> checkingPoints();
  /// The sizes and the checking points.
  std::vector<Evaluation*> allPoints();
  /// Maximum number of cache rows that is tried.
  static constexpr int64_t mostRowsTried = 8200;
  /// Adds sizes of about `rows` rows to the checking points, unless they are too large.
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

/// Whether two values of the graph have the same extents and the same elements, or sums of products
/// of the same elements, at all sizes and for all integer inputs. Tried inputs include masks that
/// hide keys, other ids, and positions and lengths that are one more, for all elements of an input
/// or for one. For integer constants that are compared or computed with on the way to either value,
/// also tries that number of rows, one less and one more, the same numbers of tokens and batch
/// rows, and ids equal to the constant, for a sample of the elements. Constants that the graph
/// computes from others count as well. If `consecutive` is an input, its elements are assumed to
/// count up by one: no single element is changed.
bool areAlwaysEqual(const ir::Value& one, const ir::Value& other, StepEvaluations& evaluations,
                    const ir::Value* consecutive = nullptr);

} // namespace kvopt::analysis
