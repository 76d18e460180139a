// Traversal of views in both directions.
#include "ir/views.h"

#include "ir/node.h"
#include "ir/op.h"

namespace kvopt::ir {
namespace {

/// The operand that the value is a view of; null if it is not a view.
const Value* viewedOperand(const Value& value) {
  const Node* producer = value.producer();
  if (!producer || !producer->definition())
    return nullptr;
  for (const Alias& alias : producer->definition()->aliases)
    if (alias.kind == Alias::Kind::View && alias.result == value.resultIndex())
      return producer->operand(alias.operand);
  return nullptr;
}

} // namespace

const Value& bufferOf(const Value& value) {
  constexpr int mostViews = 16;
  const Value* buffer = &value;
  for (int i = 0; i < mostViews; ++i) {
    const Value* viewed = viewedOperand(*buffer);
    if (!viewed)
      break;
    buffer = viewed;
  }
  return *buffer;
}

llvm::SmallVector<const Value*, 4> viewsOf(const Value& value) {
  llvm::SmallVector<const Value*, 4> views{&value};
  for (size_t i = 0; i < views.size(); ++i)
    for (const Use& use : views[i]->uses())
      if (const OpDef* definition = use.user().definition())
        for (const Alias& alias : definition->aliases)
          if (alias.kind == Alias::Kind::View && alias.operand == use.operandIndex() &&
              alias.result < use.user().results().size())
            views.push_back(&use.user().results()[alias.result]);
  return views;
}

} // namespace kvopt::ir
