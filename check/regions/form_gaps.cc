// How gaps pass from operands to results.
#include "check/regions/form_gaps.h"

#include "check/arithmetic/constants.h"
#include "ir/elementwise.h"
#include "ir/graph.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

bool isOneOf(const ir::Node& node, llvm::ArrayRef<const char*> names) {
  return node.op().isOnnx() && llvm::is_contained(names, node.op().type());
}

/// Whether the shapes of a node's results depend on the shapes of its operands only.
bool shapesFollowShapes(const ir::Node& node) {
  return ir::elementFunction(node) || isOneOf(node, {"Identity",
                                                     "Cast",
                                                     "CastLike",
                                                     "MatMul",
                                                     "Gemm",
                                                     "Concat",
                                                     "Transpose",
                                                     "Gather",
                                                     "GatherElements",
                                                     "ScatterND",
                                                     "ScatterElements",
                                                     "TensorScatter",
                                                     "Softmax",
                                                     "Shape",
                                                     "Size",
                                                     "Trilu",
                                                     "CumSum",
                                                     "Flatten",
                                                     "LayerNormalization",
                                                     "RMSNormalization"});
}

/// Whether the shape of the results depends on the elements of an operand.
bool shapesFollowContents(const ir::Node& node, const ir::Value& operand) {
  if (shapesFollowShapes(node))
    return false;
  // The first operand is moved. It may be another operand, too.
  return !isOneOf(node, {"Reshape", "Squeeze", "Unsqueeze", "Expand", "Slice", "Split", "Tile"}) ||
         llvm::any_of(node.operands().drop_front(),
                      [&](const ir::Use& use) { return use.value() == &operand; });
}

/// The kind of a form's tensors: that of the first one.
std::optional<Kind> kindOf(const Form* form) {
  for (size_t i = 0; form && i < form->size(); ++i)
    if ((*form)[i])
      return (*form)[i]->kind;
  return std::nullopt;
}

/// Whether an element may be other than a number in a step.
bool hasSpecial(const Form* form) {
  return form && llvm::any_of(*form, [](const Ref& contents) {
           return contents && (contents->isSpecial || Constants::hasSpecial(*contents));
         });
}

bool hasZero(const Form* form) {
  return form && llvm::any_of(*form, [](const Ref& contents) {
           return contents && llvm::is_contained(contents->known, 0.0);
         });
}

/// Whether an element of the result is other than a number where one of the operands is.
bool keepsPattern(const ir::Node& node) {
  const auto function = ir::elementFunction(node);
  return function == ir::ElementFunction::Sum || function == ir::ElementFunction::Choice ||
         isOneOf(node, {"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Expand", "Slice",
                        "Split", "Unsqueeze", "Gather", "Tile", "Concat", "Cast"});
}

void take(const std::string*& gap, const std::string* other) {
  if (!gap)
    gap = other;
}

} // namespace

const FormGap& FormGaps::of(const ir::Value& value) const {
  static constexpr FormGap none;
  const auto found = known.find(&value);
  return found == known.end() ? none : found->second;
}

void FormGaps::addOperand(FormGap& gap, const ir::Node& node, const ir::Value& operand,
                          FormOf formOf, bool isSpecial) {
  const FormGap own = of(operand);
  if (!own.contents && !own.pattern)
    return; // the contents include the shape
  if (node.op().isOnnx() && (node.is("Shape") || node.is("Size"))) {
    take(gap.contents, own.shape);
    return;
  }
  take(gap.shape, own.shape);
  take(gap.contents, own.contents);
  const std::optional<Kind> kind = kindOf(formOf(operand));
  if (kind != Kind::Real && shapesFollowContents(node, operand))
    take(gap.shape, own.contents);
  if (kind == Kind::Real || (kind == Kind::Known && keepsPattern(node)))
    take(gap.pattern, kind == Kind::Known && isPlain(operand) ? nullptr : own.pattern);
  else if (kind == Kind::Known ? !isPlain(operand) || (isSpecial && hasZero(formOf(operand)))
                               : isSpecial || !node.op().isOnnx())
    take(gap.pattern, own.contents);
}

void FormGaps::add(const ir::Node& node, const OwnGaps& own, FormOf formOf) {
  FormGap gap;
  const bool isSpecial =
      llvm::any_of(node.results(),
                   [&](const ir::Value& result) { return hasSpecial(formOf(result)); }) ||
      llvm::any_of(node.operands(), [&](const ir::Use& use) {
        return use.value() && hasSpecial(formOf(*use.value()));
      });
  if (!own.compared.empty()) {
    gap.contents = &*texts.insert(own.compared).first;
    // Which of the elements it moves are numbers only matters if some are not.
    const bool areNumbers =
        !isSpecial && llvm::all_of(node.results(), [&](const ir::Value& result) {
          return kindOf(formOf(result)) == Kind::Real;
        });
    gap.pattern = areNumbers ? nullptr : gap.contents;
    if (!shapesFollowShapes(node))
      gap.shape = gap.contents;
  } else if (!own.unread.empty()) {
    // All entries are read for infinities.
    gap.contents = &*texts.insert(own.unread).first;
    if (!isPlain(node.result(0)))
      gap.pattern = gap.contents;
  }
  for (const ir::Use& use : node.operands())
    if (use.value())
      addOperand(gap, node, *use.value(), formOf, isSpecial);
  if (!node.subgraphs().empty())
    for (const ir::Value* captured : ir::capturedValues(node))
      addOperand(gap, node, *captured, formOf, isSpecial);
  take(gap.contents, gap.shape);
  if (gap.contents || gap.pattern)
    for (const ir::Value& result : node.results())
      known[&result] = gap;
}

} // namespace kvopt::check
