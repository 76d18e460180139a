// FormEvaluator: the elements of a value as functions of positions.
#pragma once

#include "ir/movement.h"
#include "passes/analysis/rotation/form_tensor.h"
#include "passes/analysis/rotation/position_flow.h"

#include "llvm/ADT/StringMap.h"

#include <map>
#include <memory>
#include <string>

namespace kvopt::analysis {

/// Computes values symbolically for one batch row, two new tokens, and a few earlier ones: each
/// element as a PositionForm. Values that do not depend on positions are raw elements, whatever
/// computes them. Integers that an input gives for each token count up from the first one's, as in
/// every session.
class FormEvaluator {
public:
  /// `sites` determine the symbols of the extents. All arguments must outlive the evaluator.
  FormEvaluator(const PositionFlow& positions, llvm::ArrayRef<AttentionSite> sites);

  /// Null if an operator is not supported; `obstacle` and `where` then hold the reason.
  const FormTensor* evaluate(const ir::Value& value);

  /// Frees the memory of all values that depend on tokens. Values that depend on positions alone
  /// are kept, because other layers read them, too.
  void forgetRows();

  /// Number of new tokens.
  static constexpr int64_t tokens = 2;

  const std::string& obstacle() const { return why; }
  const ir::Node* where() const { return place; }
  /// Whether the obstacle is an operator on rows that already depend on positions.
  bool mixesPositions() const { return isMixed; }

private:
  using Tensor = std::shared_ptr<FormTensor>;
  using Shape = llvm::SmallVector<int64_t, 4>;

  const FormTensor* fail(const ir::Node* node, std::string reason);
  Tensor failed(const ir::Node& node, std::string reason);
  Tensor compute(const ir::Value& value);
  Tensor constant(const ir::Value& value);
  Tensor rawElements(const ir::Value& value);
  Tensor rearranged(const ir::Value& value);
  Tensor positionsOf(const ir::Value& input);
  Tensor integersOf(const ir::Value& value, llvm::ArrayRef<ir::Dim> known);
  Tensor ofNode(const ir::Value& value, const ir::Node& node);
  Tensor opaque(const ir::Value& value, const ir::Node& node);
  Tensor moved(const ir::Value& value, const ir::Node& node);
  Tensor sliced(const ir::Value& value, const ir::Node& node, const ir::Movement& movement);
  Tensor gathered(const ir::Node& node, const ir::Movement& movement);
  Tensor gatheredElements(const ir::Node& node);
  Tensor concatenated(const ir::Node& node, const ir::Movement& movement);
  Tensor picked(const ir::Value& value, const FormTensor& data, Shape shape,
                llvm::ArrayRef<int64_t> indices);
  Tensor computed(const ir::Value& value, const ir::Node& node);
  Tensor range(const ir::Value& value, const ir::Node& node);
  Tensor counted(const ir::Value& value, const ir::Node& node);
  Tensor chosen(const ir::Node& node);
  Tensor rotated(const ir::Node& node);

  std::optional<Shape> shapeOf(const ir::Value& value) const;
  std::optional<int64_t> extent(const ir::Dim& dim) const;
  std::optional<PositionForm> formOf(const ir::Dim& dim);
  unsigned sourceOf(const void* owner, int64_t part);
  /// Entry `line` of the table along `axis`, in the column at `column` of its other axes.
  PositionForm entry(const FormTensor& table, unsigned axis, int64_t column,
                     const PositionForm::Line& line);

  const PositionFlow& flow;
  std::string pastSymbol;
  llvm::StringMap<int64_t> extents; ///< values of symbols
  llvm::DenseMap<const ir::Value*, Tensor> known;
  llvm::DenseMap<const ir::Value*, int64_t> firstAtoms;
  std::map<std::pair<const void*, int64_t>, unsigned> sources;
  /// For each table and axis, the first column that equals each column.
  std::map<std::pair<const FormTensor*, unsigned>, std::vector<int64_t>> firstColumns;
  int64_t atoms = 0;
  int64_t budget = int64_t{1} << 28; ///< number of elements that may still be computed
  unsigned depth = 0;
  std::string why;
  const ir::Node* place = nullptr;
  bool isMixed = false;
};

} // namespace kvopt::analysis
