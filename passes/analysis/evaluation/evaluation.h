// Evaluation: what a graph computes at one point, which is a choice of all extents and of all
// integer inputs, with the elements of its floating-point inputs left as they are.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/evaluation/extents.h"
#include "passes/analysis/evaluation/linear_form.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <vector>

namespace kvopt::analysis {

/// Numbers in row-major order. Integers and bools are held as numbers, too: they are exact up to
/// 2^53, and what would exceed that is not computed.
struct NumberTensor {
  Extents extents;
  std::vector<double> numbers;

  bool isSingle() const { return numbers.size() == 1; }
};

/// A point at which a graph is evaluated.
struct EvaluationPoint {
  /// By symbol.
  llvm::StringMap<int64_t> extents;
  /// Of inputs. Those that are not here are unknown, element by element.
  llvm::DenseMap<const ir::Value*, NumberTensor> inputs;
  /// Those of them that are ids of tokens: what a table of floating-point numbers has for an id is
  /// not looked at.
  llvm::SmallVector<const ir::Value*, 1> ids;
};

/// Evaluates values of one main graph and of the branches that are taken, on demand: what is not
/// asked for is not computed, and the numbers of large constants are not read but for elements that
/// are gathered.
///
/// A value is of *numbers* where it depends on constants, extents and the integer inputs of the
/// point alone. All others are of linear forms over the elements of *blocks*: inputs, and results
/// that are not linear in few elements of something else (embeddings of tokens, products of two
/// such values or with weights, norms, softmax, activations). Sums, products with numbers, and
/// whatever gathers, moves, scatters or chooses elements by numbers are followed.
///
/// Assumed: no element is NaN or infinite unless it is a constant, an index is in range, and
/// arithmetic on floating-point numbers is exact.
class Evaluation {
public:
  Evaluation(const ir::Graph& graph, EvaluationPoint at);
  /// At another point of the same inputs.
  Evaluation(const Evaluation& other, EvaluationPoint at);
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  const EvaluationPoint& point() const { return chosen; }

  /// Null where they are not known.
  const Extents* extents(const ir::Value& value);
  /// Null for a value that is not of numbers, is too large, or is computed by an operator that is
  /// not evaluated.
  const NumberTensor* numbers(const ir::Value& value);
  /// One of them; also of a large constant.
  std::optional<double> numberAt(const ir::Value& value, int64_t element);

  /// The forms of the elements at `indices`. False, with nothing to be used in `forms`, where too
  /// much work would have to be done.
  [[nodiscard]] bool trace(const ir::Value& value, llvm::ArrayRef<int64_t> indices,
                           std::vector<LinearForm>& forms);
  /// Of all elements.
  [[nodiscard]] bool traceAll(const ir::Value& value, std::vector<LinearForm>& forms);

  bool isData(const ir::Value& value) const;

  /// Which values are traced through from here on, nearest the asked one first; null: not noted.
  void noteVisited(std::vector<const ir::Value*>* list) { visited = list; }

  /// Constants that numbers were computed from so far, and single numbers that were computed; those
  /// of long lists are left out.
  const std::vector<double>& constantsRead() const { return integersRead; }

  /// The branch of an If that is taken; null where that is not known.
  const ir::Graph* takenBranch(const ir::Node& node);

private:
  class DataValues;
  std::optional<Extents> computeExtents(const ir::Value& value);
  std::unique_ptr<NumberTensor> computeNumbers(const ir::Value& value);
  std::unique_ptr<NumberTensor> selectNumbers(const ir::Value& value);
  bool traceNode(const ir::Value& value, llvm::ArrayRef<int64_t> indices,
                 std::vector<LinearForm>& forms);
  bool traceSelected(const ir::Value& value, llvm::ArrayRef<int64_t> indices,
                     std::vector<LinearForm>& forms, bool& followed);

  const ir::Graph& evaluated;
  EvaluationPoint chosen;
  std::shared_ptr<DataValues> data;
  llvm::DenseMap<const ir::Value*, std::unique_ptr<Extents>> extentsOf;
  llvm::DenseMap<const ir::Value*, std::unique_ptr<NumberTensor>> numbersOf;
  /// Of values that were traced as a whole, up to a number of elements in all.
  llvm::DenseMap<const ir::Value*, std::vector<LinearForm>> wholeForms;
  int64_t keptForms = 0;
  std::vector<const ir::Value*>* visited = nullptr;
  std::vector<double> integersRead;
  unsigned depth = 0;
  int64_t work = 0;
};

} // namespace kvopt::analysis
