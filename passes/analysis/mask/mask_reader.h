// Backward evaluation of a graph: the element of a tensor at an index.
#pragma once

#include "ir/graph.h"
#include "ir/movement.h"
#include "passes/analysis/mask/constant_table.h"
#include "passes/analysis/mask/mask_expression.h"

#include <map>

namespace kvopt::analysis {

inline bool isOne(const ir::Dim& extent) { return extent.value() == 1; }

/// Evaluates tensors of a graph at symbolic indices. Every answer holds for each index within the
/// tensor's extents in every execution that the graph's operators allow; unsupported values are
/// leaves. Answers are kept, so masks that share values share the work. Work and nesting are
/// bounded, and values beyond the bounds are leaves, too.
///
/// Extents that a Slice of a constant may clamp are assumed not to be clamped; `assumptionsHold`
/// says whether the graph would fail otherwise.
class MaskReader {
public:
  /// With `assuming` false, nothing is assumed about extents.
  explicit MaskReader(IndexSpace space, bool assuming = true)
      : made(std::move(space)), mayAssume(assuming) {}

  /// Restricts the reader to executions in which the symbol has that value; the space must have it,
  /// too. Must be called before anything is read.
  void fix(std::string symbol, ir::Dim value) {
    fixedSymbol = std::move(symbol);
    fixedValue = std::move(value);
  }

  /// Restricts the reader to executions in which each row of the graph input counts up: its element
  /// at index k of the last axis is `first` + k. Must be called before anything is read.
  void count(const ir::Value& input, ir::Dim first) {
    counting = &input;
    countingFrom = std::move(first);
  }

  /// Declares the elements of the tensor as the lengths of batch rows (IndexSpace::rowLength),
  /// where the element for a mask's own row is read. Must be called before anything is read.
  void measure(const ir::Value& lengths) { measured = &lengths; }

  /// Extents that were broadcast: in every execution `from` is 1 or `to`.
  struct Choice {
    ir::Dim from;
    ir::Dim to;
  };
  llvm::ArrayRef<Choice> broadcastChoices() const { return choices; }

  MaskExpressions& expressions() { return made; }
  const IndexSpace& space() const { return made.space(); }

  /// The element of a mask at [b,h,i,key]; the mask is broadcast to [B,H,S,T] from the right.
  /// `key` must be within [0, T).
  ExprRef readMask(const ir::Value& mask,
                   const ir::Dim& key = IndexSpace::variable(IndexVariable::Key));
  /// The element at `index`, which has one integer expression per axis.
  ExprRef read(const ir::Value& value, ExprList index);

  /// Whether every assumed extent has its assumed value in every execution.
  bool assumptionsHold() const;

private:
  struct Place; // a value, its producer and the requested index

  ExprRef compute(const Place& place);
  /// Whether the request is for a list's element of the mask's own batch row.
  bool isOwnRow(const Place& place);
  ExprRef readConstant(const Place& place, const ir::TensorData& data);
  ExprRef fromTable(const Place& place, const ConstantTable& table, ir::ElementType type);
  ExprRef known(const Place& place);
  ExprRef leaf(const Place& place);

  ExprRef elementwise(const Place& place);
  ExprRef unary(const Place& place, llvm::StringRef op);
  ExprRef binary(const Place& place, llvm::StringRef op);
  /// The operand's element that an elementwise operator reads for an element of its result.
  ExprRef operand(const Place& place, unsigned number);

  ExprRef moved(const Place& place);
  ExprRef converted(const Place& place, const ir::Movement& movement);
  ExprRef permuted(const Place& place, const ir::Movement& movement);
  ExprRef withoutAxes(const Place& place, const ir::Movement& movement);
  ExprRef withAxes(const Place& place, const ir::Movement& movement);
  ExprRef reshape(const Place& place, const ir::Value& data);
  ExprRef repeat(const Place& place, const ir::Movement& movement);
  ExprRef slice(const Place& place, const ir::Movement& movement);
  ExprRef gather(const Place& place, const ir::Movement& movement);
  ExprRef pointGather(const Place& place, const ir::Movement& movement);
  ExprRef concat(const Place& place, const ir::Movement& movement);
  bool countsUp(const ir::Value& indices, unsigned axis, unsigned rank);

  ExprRef generated(const Place& place);
  ExprRef pad(const Place& place);
  ExprRef scatterND(const Place& place);
  ExprRef scatterRows(const Place& place);
  ExprRef range(const Place& place);
  ExprRef triangle(const Place& place);
  ExprRef cumulative(const Place& place);

  /// IndexSpace::fromModel, restricted to the reader's executions.
  ir::Dim modelDim(const ir::Dim& dim) const;
  /// An axis of more than one element, or of unknown extent.
  struct LiveAxis {
    unsigned axis;
    ir::Dim extent;
  };
  llvm::SmallVector<LiveAxis, 4> liveAxes(const ir::TensorType& type) const;
  ExprRef readAt(const ir::Value* value, ExprList index);
  /// The integer at a constant position of a list, or of a scalar at position 0.
  std::optional<ir::Dim> integerAt(const ir::Value* value, int64_t position);
  std::optional<llvm::SmallVector<int64_t, 8>> constants(const ir::Value* value);
  ExprRef broadcast(ExprRef index, const ir::Dim& from, const ir::Dim& to);
  /// Converts an index that ONNX counts from the end if it is negative.
  ExprRef wrapped(ExprRef index, const ir::Dim& extent);
  void learnFrom(ExprRef index, const ir::Dim& extent);
  /// The extent of an axis, also if it follows from assumptions only.
  ir::Dim extentOf(const ir::Value& value, unsigned axis, unsigned depth = 0);
  /// The extent of a result of data movement; nullopt if the movement does not determine it.
  std::optional<ir::Dim> movedExtent(const ir::Value& value, unsigned axis, unsigned depth);
  ir::Dim slicedExtent(const ir::Movement& movement, const ir::Value& data, unsigned axis,
                       unsigned depth);
  struct Window {
    ir::Dim start;
    ir::Dim end;
    int64_t step = 1;
    bool isWhole = false; ///< the axis is not sliced
  };
  /// The part of an axis that a Slice takes; a step of 0 if that is unknown.
  Window windowOf(const ir::Movement& movement, const ir::Value& data, unsigned axis);
  std::optional<ir::Dim> numberOf(const ir::MovementNumber& number);
  bool isRepeatedOnce(const ir::Movement& movement, unsigned axis);

  MaskExpressions made;
  llvm::DenseMap<ExprRef, ExprRef> answers; ///< keyed by the leaf of value and index
  llvm::DenseMap<const ir::TensorData*, std::optional<ConstantTable>> tables;
  struct Bound {
    ir::Dim smaller;
    ir::Dim larger;
  };
  llvm::SmallVector<Bound, 4> assumed; ///< smaller <= larger
  llvm::SmallVector<Bound, 4> granted;
  llvm::SmallVector<Choice, 4> choices;
  std::string fixedSymbol;
  ir::Dim fixedValue;
  const ir::Value* counting = nullptr;
  ir::Dim countingFrom;
  const ir::Value* measured = nullptr;
  bool mayAssume = true;
  /// Greater than 0 if the index may be outside the tensor, or does not use all of b, h, i, j.
  unsigned shifts = 0;
  unsigned nesting = 0;
  unsigned work = 0;
};

struct MaskReader::Place {
  const ir::Value& value;
  const ir::Node* node; ///< the producer; null for inputs and initializers
  ExprList index;
};

} // namespace kvopt::analysis
