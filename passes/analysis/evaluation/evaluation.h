// Evaluation: the values of a graph at one point. A point chooses all extents and all integer
// inputs; elements of floating-point inputs remain symbolic.
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

/// Numbers in row-major order. Integers and bools are stored as double, too: they are exact up to
/// 2^53, and larger results are not computed.
struct NumberTensor {
  Extents extents;
  std::vector<double> numbers;

  bool isSingle() const { return numbers.size() == 1; }
};

/// A point at which a graph is evaluated.
struct EvaluationPoint {
  /// By symbol.
  llvm::StringMap<int64_t> extents;
  /// Elements of inputs. Elements of inputs that are not listed are unknown.
  llvm::DenseMap<const ir::Value*, NumberTensor> inputs;
  /// Inputs that hold token ids. The entry of a floating-point table for an id is not read.
  llvm::SmallVector<const ir::Value*, 1> ids;
};

/// Evaluates values of one main graph and of the branches that are taken, on demand: only requested
/// values are computed, and large constants are read only where elements are gathered.
///
/// A value consists of *numbers* if it depends only on constants, extents and the integer inputs of
/// the point. All others consist of linear forms over the elements of *blocks*: inputs, and results
/// that are not linear in few elements of other values (embeddings of tokens, products of two such
/// values or with weights, norms, softmax, activations). Sums, products with numbers, and all
/// operators that gather, move, scatter or choose elements by numbers are followed.
///
/// Element types must be known, as after shape inference.
///
/// Assumptions: no element is NaN or infinite unless it is a constant, indices are in range,
/// floating-point arithmetic is exact, and integers that depend on unknown elements do not wrap.
class Evaluation {
public:
  Evaluation(const ir::Graph& graph, EvaluationPoint at);
  /// Evaluates the same inputs at another point.
  Evaluation(const Evaluation& other, EvaluationPoint at);
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  const EvaluationPoint& point() const { return chosen; }

  /// Null if they are unknown.
  const Extents* extents(const ir::Value& value);
  /// Null for a value that does not consist of numbers, is too large, or is computed by an operator
  /// that is not evaluated.
  const NumberTensor* numbers(const ir::Value& value);
  /// One of the numbers, also of a large constant.
  std::optional<double> numberAt(const ir::Value& value, int64_t element);

  /// The forms of the elements at `indices`. False if that takes too much work; `forms` is then
  /// invalid.
  [[nodiscard]] bool trace(const ir::Value& value, llvm::ArrayRef<int64_t> indices,
                           std::vector<LinearForm>& forms);
  /// The forms of all elements.
  [[nodiscard]] bool traceAll(const ir::Value& value, std::vector<LinearForm>& forms);

  bool isData(const ir::Value& value) const;

  /// Records the values that later traces pass through, nearest to the requested value first; null
  /// stops the recording.
  void noteVisited(std::vector<const ir::Value*>* list) { visited = list; }

  /// Constants that numbers were computed from so far, and single computed numbers; those of long
  /// lists are left out.
  const std::vector<double>& constantsRead() const { return integersRead; }

  /// The branch of an If that is taken; null if unknown.
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
  /// Forms of values that were traced as a whole, up to a total number of elements.
  llvm::DenseMap<const ir::Value*, std::vector<LinearForm>> wholeForms;
  int64_t keptForms = 0;
  std::vector<const ir::Value*>* visited = nullptr;
  std::vector<double> integersRead;
  unsigned depth = 0;
  int64_t work = 0;
};

} // namespace kvopt::analysis
