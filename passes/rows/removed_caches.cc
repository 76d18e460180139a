// Readers of removed caches.
#include "passes/rows/removed_caches.h"

#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace ir;
using namespace pattern;

namespace {

bool readExtentsOfInputs(llvm::ArrayRef<Value*> holders, Rewriter& rewriter) {
  ShapeBuilder shapes(rewriter);
  llvm::SmallVector<Rewriter::Replacement, 4> replacements;
  for (const Value* value : holders)
    for (Use& use : value->uses()) {
      if (!use.user().is("Shape") || use.user().result().isUnused())
        continue;
      const auto extents = use.user().result().knownIntegers();
      Value* list = extents ? shapes.vector(*extents) : nullptr;
      if (!list)
        return false;
      replacements.push_back({&use.user().result(), list});
    }
  return replacements.empty() || !rewriter.replace(replacements);
}

} // namespace

bool moveShapeReaders(llvm::ArrayRef<Value*> holders, Rewriter& rewriter) {
  // An input with an unknown shape offers no extents.
  llvm::SmallVector<std::pair<Value*, TensorType>, 2> hidden;
  for (Value* holder : holders)
    if (holder->isGraphInput()) {
      hidden.emplace_back(holder, holder->type());
      holder->setType(TensorType(holder->type().elementType()));
    }
  if (readExtentsOfInputs(holders, rewriter))
    return true;
  for (auto& [input, type] : hidden)
    input->setType(type);
  return false;
}

void removeCaches(llvm::ArrayRef<Value*> pasts, llvm::ArrayRef<Node*> outputs, Rewriter& rewriter) {
  llvm::SmallVector<Node*, 16> dead(rewriter.outdated().begin(), rewriter.outdated().end());
  for (Node* output : outputs)
    if (output)
      dead.push_back(output);
  eraseDeadChains(std::move(dead), [](Node&) {});
  Graph& graph = rewriter.graph();
  // The model may have had dead readers.
  if (llvm::any_of(pasts, [](const Value* past) { return past->hasUses(); }))
    graph.eraseDeadNodes();
  for (Value* past : pasts)
    graph.removeInput(*past);
}

} // namespace kvopt::rows
