// Use lists, constants and replacement of values.
#include "ir/value.h"

#include "ir/graph.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

void Use::link(Value* newTarget) {
  unlink();
  target = newTarget;
  if (!target)
    return;
  next = target->firstUse;
  if (next)
    next->previousNext = &next;
  previousNext = &target->firstUse;
  target->firstUse = this;
}

void Use::unlink() {
  if (!target)
    return;
  *previousNext = next;
  if (next)
    next->previousNext = previousNext;
  target = nullptr;
  next = nullptr;
  previousNext = nullptr;
}

UseIterator& UseIterator::operator++() {
  current->target->graph().context().noteVisits(1);
  current = current->next;
  return *this;
}

Value::~Value() {
  // A graph is destroyed as a whole, with readers and values in any order.
  while (firstUse)
    firstUse->unlink();
}

bool Value::hasOneUse() const { return firstUse && !firstUse->next && outputSlots == 0; }

TensorRef Value::constantRef() const { return kind == Kind::Input ? nullptr : initializerData; }

const TensorData* Value::constant() const {
  return kind == Kind::Input ? nullptr : initializerData.get();
}

std::optional<llvm::SmallVector<Dim, 4>> Value::knownIntegers() const {
  if (inferredIntegers)
    return inferredIntegers;
  const TensorData* data = constant();
  if (!data || data->shape().size() > 1)
    return std::nullopt;
  constexpr int64_t longestShape = 64;
  auto integers = integerValues(*data, longestShape);
  if (!integers)
    return std::nullopt;
  llvm::SmallVector<Dim, 4> elements;
  for (int64_t element : *integers)
    elements.push_back(Dim::fixed(element));
  return elements;
}

void Value::replaceAllUsesWith(Value& replacement) {
  assert(&replacement != this);
  parent->context().noteEdit();
  for (Use& use : llvm::make_early_inc_range(uses()))
    use.link(&replacement);
  unsigned ownSlots = static_cast<unsigned>(llvm::count(parent->outputList, this));
  if (outputSlots != ownSlots)
    replaceSubgraphOutputs(replacement);
  if (ownSlots != 0)
    replaceOwnOutputs(replacement);
}

void Value::replaceSubgraphOutputs(Value& replacement) {
  if (!parent->hasSubgraphs())
    return;
  auto replaceIn = [&](Graph& graph) {
    for (unsigned slot = 0; slot < graph.outputList.size(); ++slot) {
      if (graph.outputList[slot] != this)
        continue;
      // A value can be only one output, because outputs are identified by name.
      bool isTaken = llvm::is_contained(graph.outputList, &replacement);
      Value* output =
          isTaken ? &graph.createFresh("Identity", {&replacement}, 1).result() : &replacement;
      if (isTaken)
        output->setType(replacement.type());
      graph.setOutput(slot, *output);
    }
  };
  for (Node& node : parent->nodeList)
    for (Graph* nested : node.subgraphs())
      forEachGraph(*nested, replaceIn);
}

void Value::replaceOwnOutputs(Value& replacement) {
  // An output keeps its name, which is the name of its value.
  Value* output = &replacement;
  bool canTakeName = replacement.parent == parent && replacement.kind != Kind::Input &&
                     !llvm::is_contained(parent->outputList, &replacement);
  if (!canTakeName)
    output = &parent->createFresh("Identity", {&replacement}, 1).result();
  output->setType(replacement.type());
  for (Value*& slot : parent->outputList)
    if (slot == this) {
      slot = output;
      --outputSlots;
      ++output->outputSlots;
    }
  std::string outputName = name().str();
  parent->rename(*this, parent->freshName(outputName + "_replaced"));
  parent->rename(*output, outputName);
  std::swap(output->sourceMessage, sourceMessage);
}

} // namespace kvopt::ir
