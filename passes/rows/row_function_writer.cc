// Copies a function's body.
#include "passes/rows/row_function_writer.h"

#include "ir/attribute_list.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

RowFunctionWriter::RowFunctionWriter(const RowFunction& rowFunction, Value& rows, Rewriter& edits)
    : function(rowFunction), fresh(rows), rewriter(edits), build(edits) {
  const Graph& body = function.body->graph();
  const Value* input = body.inputs().front().get();
  made[input] = &fresh;
  changed.insert(input);
  for (const Node& node : body.nodes())
    if (llvm::any_of(node.operands(),
                     [&](const Use& use) { return use.value() && changed.contains(use.value()); }))
      for (const Value& result : node.results())
        changed.insert(&result);
}

RowFunctionWriter& RowFunctionWriter::after(Value& past, unsigned axis) {
  places.emplace(build, past, axis);
  return *this;
}

Value& RowFunctionWriter::write() { return valueOf(*function.body->graph().outputs().front()); }

Value& RowFunctionWriter::valueOf(const Value& value) {
  if (Value* known = made.lookup(&value))
    return *known;
  Value& result = make(value);
  made[&value] = &result;
  return result;
}

Value& RowFunctionWriter::make(const Value& value) {
  if (const auto extent = function.extents.find(&value); extent != function.extents.end())
    return build.value(build.extent(fresh, extent->second, value.type().rank() == 0));
  if (Value* origin = function.origins.lookup(&value); origin && !changed.contains(&value))
    return *origin;
  if (!value.producer())
    return rewriter.constant(value.name(), value.constantRef());
  const Node& node = *value.producer();
  PlacesAfter::Operands operands;
  for (const Use& use : node.operands())
    operands.push_back(use.value() ? &valueOf(*use.value()) : nullptr);
  if (llvm::is_contained(function.places, &node)) {
    assert(places && "a function that counts rows follows those of a past");
    operands = places->ofRange(std::move(operands));
  }
  if (node.results().size() == 1)
    return build.node(node.op(),
                      llvm::SmallVector<BuilderOperand, 5>(operands.begin(), operands.end()),
                      cloneAttributes(node));
  Node& copy = rewriter.create(node.op(), operands, cloneAttributes(node),
                               static_cast<unsigned>(node.results().size()));
  for (unsigned i = 0; i < node.results().size(); ++i)
    made[&node.result(i)] = &copy.result(i);
  return *made[&value];
}

} // namespace kvopt::rows
