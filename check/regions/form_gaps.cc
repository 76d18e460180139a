// How gaps pass from operands to results.
#include "check/regions/form_gaps.h"

#include "check/arithmetic/constants.h"
#include "ir/graph.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

/// Whether a set has one of the places of a value among the operands.
bool isOperandIn(const ir::Node& node, const ir::Value& value, meaning::OperandSet set) {
  for (unsigned i = 0; i < node.operands().size(); ++i)
    if (node.operand(i) == &value && meaning::NodeFacts::isIn(set, i))
      return true;
  return false;
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
  const meaning::NodeFacts& facts = operators.of(node);
  // Captured values are operands of nodes in subgraphs, of which nothing is known.
  const bool isCaptured = !node.subgraphs().empty();
  if (kind != Kind::Real && (isCaptured || isOperandIn(node, operand, facts.shaping)))
    take(gap.shape, own.contents);
  // Where an element of the operand is other than a number, that of the result is, too.
  const bool keepsPattern =
      facts.making <= meaning::Making::Summed && isOperandIn(node, operand, facts.made);
  if (kind == Kind::Real || (kind == Kind::Known && keepsPattern))
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
    if (operators.of(node).shaping != 0)
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
