// Entries of tables that other operands of an operator hide.
#include "check/evaluation/table_axes.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::check {
namespace {

bool isTable(const Ref& operand) {
  return operand && operand->tableAxes != 0 && !operand->isHollow;
}

bool mayHide(const Ref& operand) { return operand && !operand->isFixed && !operand->isHollow; }

/// The places along an axis of an operand where it does not hide all elements of another one.
std::vector<int64_t> visibleEntries(const Tensor& operand, int64_t axis,
                                    llvm::function_ref<bool(size_t at)> hides) {
  std::vector<bool> isVisible(static_cast<size_t>(operand.shape[static_cast<size_t>(axis)]));
  size_t at = 0;
  forEachPlace(operand.shape, [&](llvm::ArrayRef<int64_t> place) {
    if (!hides(at++))
      isVisible[static_cast<size_t>(place[static_cast<size_t>(axis)])] = true;
  });
  std::vector<int64_t> visible;
  for (size_t i = 0; i < isVisible.size(); ++i)
    if (isVisible[i])
      visible.push_back(static_cast<int64_t>(i));
  return visible;
}

bool isZeroAt(const Tensor& tensor, size_t at) {
  return tensor.isInteger() ? tensor.integers[at] == 0
         : tensor.isReal()  ? tensor.reals[at].isZero()
                            : tensor.known[at] == 0;
}

/// Whether an element is an infinity or a fill, which its sum with any number is, too.
bool isEndlessAt(const Tensor& tensor, size_t at) {
  constexpr double fill = 1e4;
  return tensor.isReal()      ? !tensor.reals[at].isNumber()
         : tensor.isInteger() ? false
                              : !(std::abs(tensor.known[at]) < fill);
}

/// Whether an element of `other` hides the element of another operand at the same place. A bound of
/// reals is an unknown function of both.
bool hidesAt(const ir::Node& node, unsigned operand, const Tensor& other, size_t at) {
  using ir::ElementFunction;
  switch (*ir::elementFunction(node)) {
  case ElementFunction::Sum:
    return isEndlessAt(other, at);
  case ElementFunction::Product:
    return isZeroAt(other, at);
  case ElementFunction::Quotient:
    return isZeroAt(other, at) || isEndlessAt(other, at);
  case ElementFunction::Choice:
    return isZeroAt(other, at) == (operand == 1);
  case ElementFunction::Logic:
  case ElementFunction::Bits:
    return (node.is("And") || node.is("BitwiseAnd")) == isZeroAt(other, at) && !node.is("Xor");
  case ElementFunction::Bound:
    return !other.isReal() || isEndlessAt(other, at);
  default:
    return false;
  }
}

/// What `other` leaves of an operand of an elementwise operator.
void noteHiddenBy(const Call& call, unsigned operand, const Ref& other) {
  const Tensor& table = *call.in(operand);
  for (int64_t axis = 0; axis < table.rank(); ++axis) {
    const int64_t extent = table.shape[static_cast<size_t>(axis)];
    const int64_t same = axis + other->rank() - table.rank();
    if (extent > 1 && table.isTableAlong(static_cast<size_t>(axis)) && same >= 0 &&
        other->shape[static_cast<size_t>(same)] == extent)
      call.noteRead(
          operand, static_cast<unsigned>(axis),
          visibleEntries(*other, same,
                         [&](size_t at) { return hidesAt(call.node, operand, *other, at); }),
          other);
  }
}

void noteHiddenElements(const Call& call) {
  const bool isChoice = ir::elementFunction(call.node) == ir::ElementFunction::Choice;
  for (unsigned i = isChoice ? 1 : 0; i < call.operands.size(); ++i)
    for (unsigned j = 0; isTable(call.in(i)) && j < (isChoice ? 1 : call.operands.size()); ++j)
      if (i != j && mayHide(call.in(j)))
        noteHiddenBy(call, i, call.in(j));
}

/// Rows of a matrix that zeros of the other one leave out of a product.
void noteLeftOut(const Call& call) {
  for (unsigned i : {0u, 1u}) {
    const Ref other = call.in(1 - i);
    if (!isTable(call.in(i)) || !mayHide(other) || other->rank() == 0)
      continue;
    call.noteRead(i, static_cast<unsigned>(summedAxis(call, i)),
                  visibleEntries(*other, summedAxis(call, 1 - i),
                                 [&](size_t at) { return isZeroAt(*other, at); }),
                  other);
  }
}

bool hasZero(const Ref& operand) {
  for (size_t i = 0; mayHide(operand) && i < static_cast<size_t>(operand->count()); ++i)
    if (isZeroAt(*operand, i))
      return true;
  return false;
}

/// An operator may leave out any entries of an operand, along all axes from `first` on.
void noteUnknown(const Call& call, unsigned operand, int64_t first) {
  for (int64_t axis = first; isTable(call.in(operand)) && axis < call.in(operand)->rank(); ++axis)
    if (call.in(operand)->shape[static_cast<size_t>(axis)] > 1)
      call.noteRead(operand, static_cast<unsigned>(axis), {}, call.operands);
}

} // namespace

void noteHidden(const Call& call) {
  if (llvm::none_of(call.operands, isTable))
    return;
  const ir::Node& node = call.node;
  if (ir::elementFunction(node)) {
    noteHiddenElements(call);
  } else if (node.is("MatMul") || node.is("Gemm") || node.is("com.microsoft::FusedMatMul")) {
    noteLeftOut(call);
  } else if ((node.is("ReduceMax") || node.is("ReduceMin")) && !call.in(0)->isReal()) {
    noteUnknown(call, 0, 0);
  } else if (node.is("Einsum") && llvm::any_of(call.operands, hasZero)) {
    for (unsigned operand = 0; operand < call.operands.size(); ++operand)
      noteUnknown(call, operand, 0);
  } else if (node.is("Attention") || node.is("com.microsoft::GroupQueryAttention") ||
             node.is("com.microsoft::MultiHeadAttention")) {
    for (unsigned operand : {1u, 2u}) // keys and values that are the same in all steps
      if (call.in(operand) && call.in(operand)->isFixed)
        noteUnknown(call, operand, 1);
  }
}

} // namespace kvopt::check
