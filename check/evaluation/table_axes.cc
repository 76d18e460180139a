// Axes of operands as those of results.
#include "check/evaluation/table_axes.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::check {
namespace {

/// What an operator does to axes.
enum class Spread {
  None,     ///< results do not have the operands' contents
  Aligned,  ///< axes broadcast to those of the result
  Same,     ///< an axis of any operand is that of the result
  First,    ///< the same for the first operand
  Reshaped, ///< axes of the first operand are split and joined
  Permuted,
  Gathered,
  Product, ///< of matrices
  Reduced,
  Mixed, ///< any element of a result may depend on any one of an operand
};

Spread spreadOf(const ir::Node& node) {
  if (!node.op().isOnnx())
    return node.is("com.microsoft::FusedMatMul") ? Spread::Product : Spread::Mixed;
  if (ir::elementFunction(node))
    return Spread::Aligned;
  return llvm::StringSwitch<Spread>(node.op().type())
      .Cases("Shape", "Size", "Range", "ConstantOfShape", "OneHot", Spread::None)
      .Cases("Identity", "Dropout", "Cast", "CastLike", "Expand", Spread::Aligned)
      .Cases("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
             Spread::Aligned)
      .Case("Concat", Spread::Same)
      .Cases("Tile", "Slice", "Split", "Trilu", "CumSum", "Pad", Spread::First)
      .Cases("Softmax", "LogSoftmax", Spread::First)
      .Cases("Reshape", "Flatten", "Squeeze", "Unsqueeze", Spread::Reshaped)
      .Case("Transpose", Spread::Permuted)
      .Case("Gather", Spread::Gathered)
      .Cases("MatMul", "Gemm", Spread::Product)
      .Cases("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2",
             "ReduceSumSquare", Spread::Reduced)
      .Default(Spread::Mixed);
}

uint32_t bitOf(int64_t axis) { return axis < 32 ? uint32_t(1) << axis : ~uint32_t(0); }

/// Whether integers may be the extents of a tensor, which are joined of constants and sizes.
bool isShape(const Tensor& tensor) {
  constexpr int64_t mostAxes = 8;
  return tensor.isInteger() && tensor.shape.back() <= mostAxes;
}

/// Axes of a tensor that have several elements.
uint32_t longAxes(const Tensor& tensor) {
  uint32_t axes = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    if (tensor.shape[i] > 1)
      axes |= bitOf(static_cast<int64_t>(i));
  return axes;
}

/// Axes of an operand as those of a result to which it broadcasts.
uint32_t alignedAxes(const Tensor& operand, int64_t rank) {
  const int64_t shift = rank - operand.rank();
  const uint32_t axes = operand.tableAxes & longAxes(operand);
  return shift < 0 || shift >= 32 ? (axes ? ~uint32_t(0) : 0) : axes << shift;
}

/// Axes of a result that has the same elements in another shape. Axes with one product of extents
/// belong together.
uint32_t reshapedAxes(const Tensor& from, const Tensor& to) {
  uint32_t axes = 0;
  size_t i = 0, j = 0;
  while (i < from.shape.size() || j < to.shape.size()) {
    int64_t left = 1, right = 1;
    uint32_t ofFrom = 0, ofTo = 0;
    do {
      if (i < from.shape.size() && (left <= right || j == to.shape.size())) {
        left *= from.shape[i];
        ofFrom |= bitOf(static_cast<int64_t>(i++));
      } else {
        right *= to.shape[j];
        ofTo |= bitOf(static_cast<int64_t>(j++));
      }
    } while (left != right && (i < from.shape.size() || j < to.shape.size()));
    if (from.tableAxes & ofFrom)
      axes |= ofTo;
  }
  return axes;
}

uint32_t permutedAxes(const Call& call, const Tensor& from) {
  const auto permutation = call.integers("perm");
  uint32_t axes = 0;
  for (int64_t i = 0; i < from.rank(); ++i) {
    const int64_t source = permutation ? (*permutation)[size_t(i)] : from.rank() - 1 - i;
    if (from.isTableAlong(static_cast<size_t>(source)))
      axes |= bitOf(i);
  }
  return axes;
}

/// The index's axes replace the axis along which it selects.
uint32_t gatheredAxes(const Call& call, const Tensor& data, const Tensor& places) {
  const unsigned axis = axisOf(call.integer("axis", 0), data.rank()).value_or(0);
  uint32_t axes = 0;
  for (int64_t i = 0; i < data.rank(); ++i)
    if (i != axis && data.isTableAlong(static_cast<size_t>(i)))
      axes |= bitOf(i < axis ? i : i + places.rank() - 1);
  for (int64_t i = 0; i < places.rank(); ++i)
    if (data.isTableAlong(axis) || places.isTableAlong(static_cast<size_t>(i)))
      axes |= bitOf(axis + i);
  return axes;
}

uint32_t productAxes(const Call& call, int64_t rank) {
  uint32_t axes = 0;
  for (unsigned operand : {0u, 1u}) {
    const Tensor& factor = *call.in(operand);
    if (factor.rank() < 2 || rank < 2)
      continue;
    const int64_t kept = 2 * factor.rank() - 3 - summedAxis(call, operand);
    if (factor.isTableAlong(static_cast<size_t>(kept)))
      axes |= bitOf(rank - (operand == 0 ? 2 : 1));
    Tensor outer;
    outer.shape.assign(factor.shape.begin(), factor.shape.end() - 2);
    outer.tableAxes = factor.tableAxes;
    axes |= alignedAxes(outer, rank - 2);
  }
  if (call.in(2))
    axes |= alignedAxes(*call.in(2), rank);
  return axes;
}

uint32_t reducedAxes(const Tensor& from, const Tensor& to) {
  return from.rank() == to.rank() ? from.tableAxes : from.tableAxes ? ~uint32_t(0) : 0;
}

uint32_t axesOf(const Call& call, const Tensor& result) {
  const Tensor* first = call.in(0).get();
  uint32_t axes = 0;
  switch (spreadOf(call.node)) {
  case Spread::None:
    break;
  case Spread::Aligned:
    for (const Ref& operand : call.operands)
      axes |= operand ? alignedAxes(*operand, result.rank()) : 0;
    break;
  case Spread::Same:
    for (const Ref& operand : call.operands)
      if (operand && !(operand->isFixed && isShape(result))) {
        axes |= operand->tableAxes;
        if (operand->isFixed || operand->tableAxes) // it differs from the others
          axes |= bitOf(axisOf(call.integer("axis", 0), result.rank()).value_or(0));
      }
    break;
  case Spread::First:
    axes = first->tableAxes;
    break;
  case Spread::Reshaped:
    axes = reshapedAxes(*first, result);
    break;
  case Spread::Permuted:
    axes = permutedAxes(call, *first);
    break;
  case Spread::Gathered:
    axes = call.in(1) ? gatheredAxes(call, *first, *call.in(1)) : 0;
    break;
  case Spread::Product:
    axes = productAxes(call, result.rank());
    break;
  case Spread::Reduced:
    axes = reducedAxes(*first, result);
    break;
  case Spread::Mixed:
    axes = ~uint32_t(0);
    break;
  }
  return axes & longAxes(result);
}

/// The result with these properties. Most results have no other owner.
Ref described(Ref result, bool isFixed, uint32_t axes) {
  if (result->isFixed == isFixed && result->tableAxes == axes)
    return result;
  auto own = std::make_shared<Tensor>(*result);
  own->isFixed = isFixed;
  own->tableAxes = axes;
  return own;
}

} // namespace

int64_t summedAxis(const Call& call, unsigned operand) {
  const bool isFlipped = call.integer(operand == 0 ? "transA" : "transB", 0) != 0;
  const int64_t rank = call.in(operand)->rank();
  return rank == 1 ? 0 : rank - (isFlipped == (operand == 0) ? 2 : 1);
}

void spreadTables(const Call& call, Results& results) {
  noteHidden(call);
  const bool isFixed =
      llvm::all_of(call.operands, [](const Ref& operand) { return !operand || operand->isFixed; });
  const bool hasTables =
      llvm::any_of(call.operands, [](const Ref& operand) { return operand && operand->tableAxes; });
  const bool joinsFixed = call.node.is("Concat");
  for (Ref& result : results)
    if (result && !result->isHollow)
      result = described(result, isFixed,
                         isFixed                   ? tableAxesOf(*result)
                         : hasTables || joinsFixed ? axesOf(call, *result)
                                                   : 0);
}

} // namespace kvopt::check
