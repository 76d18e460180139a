// Walks back from keys or values through data movement and elementwise changes.
#include "passes/analysis/movement/head_broadcast.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

constexpr unsigned maxBroadcastNodes = 16;
constexpr unsigned broadcastAxis = 1;
constexpr unsigned headsRank = 4;

bool isIdentity(llvm::ArrayRef<unsigned> perm) {
  for (unsigned axis = 0; axis < perm.size(); ++axis)
    if (perm[axis] != axis)
      return false;
  return true;
}

} // namespace

Value* pointwiseOperand(const Node& node) {
  // Operators of other domains broadcast to some ranks only.
  if (!node.op().isOnnx() || !isElementwise(node))
    return nullptr;
  Value* changed = nullptr;
  for (const Use& use : node.operands()) {
    const TensorData* constant = use.value() ? use.value()->constant() : nullptr;
    const bool isNumber =
        constant && constant->elementCount() == 1 && constant->shape().size() <= headsRank;
    if (!use.value() || isNumber)
      continue;
    if (changed)
      return nullptr;
    changed = use.value();
  }
  return changed;
}

bool HeadSource::isDirect() const { return shape.perm && isIdentity(*shape.perm); }

std::vector<HeadSource> headSources(Value& heads, bool& interleaved) {
  std::vector<HeadSource> sources;
  const TensorType& type = heads.type();
  if (!type.hasRank() || type.rank() != headsRank)
    return sources;
  IndexMap map = IndexMap::identity(type.shape());
  llvm::SmallVector<Node*, 2> pointwise;
  Value* value = &heads;
  for (unsigned passed = 0; passed <= maxBroadcastNodes; ++passed) {
    if (auto found = map.repetition(broadcastAxis, IndexMap::Repeat::Entries)) {
      Dim groups = found->shape[broadcastAxis];
      sources.push_back({value, std::move(groups), std::move(*found), pointwise});
    } else {
      interleaved |= map.repetition(broadcastAxis, IndexMap::Repeat::Whole).has_value();
    }
    Node* node = value->producer();
    if (!node)
      break;
    if (map.through(*node, value->resultIndex())) {
      value = movedOperand(*node);
      continue;
    }
    Value* changed = pointwiseOperand(*node);
    if (!changed || !changed->type().hasRank() || changed->type().rank() != value->type().rank())
      break;
    pointwise.push_back(node);
    value = changed;
  }
  return sources;
}

const HeadSource* bestSource(llvm::ArrayRef<HeadSource> sources, const Dim& groups) {
  auto isWanted = [&](const HeadSource& source) { return source.groups.isKnownEqual(groups); };
  for (const HeadSource& source : llvm::reverse(sources))
    if (isWanted(source) && source.isDirect())
      return &source;
  for (const HeadSource& source : llvm::reverse(sources))
    if (isWanted(source) && source.shape.perm)
      return &source;
  for (const HeadSource& source : llvm::reverse(sources))
    if (isWanted(source))
      return &source;
  return nullptr;
}

Value* beforeRepetition(Value& value, const IndexMap::Repetition& shape, Rewriter& rewriter) {
  if (!shape.perm)
    return ShapeBuilder(rewriter).reshape(value, shape.shape, "grouped");
  if (isIdentity(*shape.perm))
    return &value;
  std::vector<int64_t> perm(shape.perm->begin(), shape.perm->end());
  return &rewriter.create("Transpose", {&value}, attrs({{"perm", perm}}), 1, "grouped").result();
}

Value* groupedHeads(const HeadSource& source, Rewriter& rewriter) {
  Value* value = beforeRepetition(*source.value, source.shape, rewriter);
  if (!value)
    return nullptr;
  for (Node* node : llvm::reverse(source.pointwise)) {
    llvm::SmallVector<Value*, 2> operands;
    for (const Use& use : node->operands())
      operands.push_back(use.value() == pointwiseOperand(*node) ? value : use.value());
    value = &rewriter.createLike(*node, operands, "grouped").result();
  }
  return value;
}

} // namespace kvopt::analysis
