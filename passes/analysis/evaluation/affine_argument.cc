// Walk from a value back to the elements that it holds.
#include "passes/analysis/evaluation/affine_argument.h"

#include "ir/movement.h"
#include "passes/analysis/evaluation/affine_movements.h"
#include "passes/analysis/evaluation/selection.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr size_t mostWalked = 4096;

/// Walks the operators whose elements are followed, up to the sources.
class DataWalk {
public:
  DataWalk(llvm::ArrayRef<const Value*> sources, StepEvaluations& at)
      : evaluations(at), numbers(at.at(0)) {
    for (const Value* source : sources)
      if (source) {
        walked.insert(source);
        numbers.endAt(*source);
      }
  }

  void walk(const Value& value) {
    pending.push_back(&value);
    while (!pending.empty() && !numbers.ended()) {
      const Value& next = *pending.back();
      pending.pop_back();
      if (!walked.insert(&next).second)
        continue;
      if (walked.size() > mostWalked)
        numbers.breakAt(next.producer(), "too many operators");
      else if (!evaluations.at(0).isData(next))
        numbers.walk(next);
      else if (next.producer() && !isBlock(next))
        step(next);
    }
  }

  AffineNumbers& numbersWalk() { return numbers; }

private:
  /// Whether the elements are not combined from elements of other values.
  bool isBlock(const Value& value) {
    std::vector<LinearForm> forms;
    return evaluations.at(0).traceAll(value, forms) &&
           llvm::all_of(forms, [&](const LinearForm& form) {
             return form.asElement() && form.asElement()->block == &value;
           });
  }

  void step(const Value& value) {
    const Node& node = *value.producer();
    if (value.graph().parentNode() || !node.subgraphs().empty()) {
      numbers.breakAt(&node, "branches and loops are not followed");
      return;
    }
    if (movementKind(node)) {
      walkMovement(value, numbers);
      if (movementKind(node) == MovementKind::Concat)
        addOperands(node);
      else
        pending.push_back(movedOperand(node));
      return;
    }
    if (isSelecting(node)) {
      select(node);
      return;
    }
    // Sums and products with numbers: each element has a weight, and the weights are walked.
    if (node.is("Div") && !numbers.walk(*node.operand(1)).isFixed)
      numbers.breakAt(&node, "it divides by a number that depends on lengths or inputs");
    addOperands(node);
  }

  void select(const Node& node) {
    if (node.is("Where"))
      numbers.chooseBy(node, *node.operand(0));
    if (node.is("ScatterElements") || node.is("ScatterND") || node.is("GatherElements"))
      numbers.indexBy(node, *node.operand(1));
    if (node.is("Pad") && node.operand(1) && numbers.walk(*node.operand(1)).low < 0) {
      if (numbers.dependsOnInputs(*node.operand(1)))
        numbers.gapAt(&node, "it may cut off elements");
      else
        numbers.breakAt(&node, "it may cut off elements");
    }
    addOperands(node);
  }

  void addOperands(const Node& node) {
    for (const Use& use : node.operands())
      if (use.value())
        pending.push_back(use.value());
  }

  StepEvaluations& evaluations;
  AffineNumbers numbers;
  llvm::DenseSet<const Value*> walked;
  std::vector<const Value*> pending;
};

} // namespace

AffineArgument affineArgument(const Value& value, llvm::ArrayRef<const Value*> sources,
                              StepEvaluations& evaluations) {
  AffineArgument argument;
  if (evaluations.count() == 0) {
    return {ArgumentBreak{value.producer(), "no step of the graph can be evaluated"}, true};
  }
  DataWalk walk(sources, evaluations);
  // The constants that this trace reads determine the checking points.
  for (size_t i = 0; i < std::min<size_t>(evaluations.count(), 2); ++i) {
    std::vector<LinearForm> forms;
    if (!evaluations.at(i).traceAll(value, forms))
      return {ArgumentBreak{value.producer(), "it has too many elements"}, true};
  }
  walk.walk(value);
  // No other size is close to the largest ones.
  for (int64_t rows : llvm::reverse(walk.numbersWalk().namedRows()))
    evaluations.tryNear(rows);
  const llvm::ArrayRef<Breakpoint> all = walk.numbersWalk().breakpoints();
  std::vector<Breakpoint> ofSizes;
  llvm::copy_if(all, std::back_inserter(ofSizes),
                [](const Breakpoint& breakpoint) { return !breakpoint.mayStayUnseen; });
  argument.broken = walk.numbersWalk().ended();
  if (!argument.broken)
    argument.broken = uncoveredSide(ofSizes, evaluations.allPoints());
  argument.maySwitch = argument.broken.has_value();
  if (!argument.broken && ofSizes.size() < all.size())
    argument.broken = uncoveredSide(all, evaluations.allPoints());
  if (!argument.broken)
    argument.broken = walk.numbersWalk().gap();
  return argument;
}

} // namespace kvopt::analysis
