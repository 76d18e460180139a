// Attention over blocks of codes: checks of its operands, and the same without rounding.
#include "passes/unrounding/quantized_blocks.h"

#include "ir/ops/kvopt/cache_operator.h"
#include "ir/required_values.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::unrounding {
using namespace ir;

namespace {

/// Operands of one side: 0 for keys or latent rows, 1 for values.
struct SideOperands {
  const Node& node;
  unsigned side;
  CacheOperator op = *CacheOperator::of(node);

  /// Number of blocks in each list; 0 if the lists have different lengths.
  unsigned each() const {
    const auto count = static_cast<unsigned>(node.operands().size());
    const unsigned first = op.firstBlock(), lists = op.blockLists();
    return count > first && (count - first) % lists == 0 ? (count - first) / lists : 0;
  }
  Value* newCodes() const { return node.operand(CacheOperator::fresh(side)); }
  Value* newScales() const { return node.operand(op.freshScale(side)); }
  Value* codes(unsigned block) const { return node.operand(op.block(side, each()) + block); }
  Value* scales(unsigned block) const { return node.operand(op.scaleBlock(side, each()) + block); }

  /// The ai.kvopt::QuantizeRows that computes the new codes, or null.
  Node* rounding() const {
    Node* made = newCodes()->producer();
    return made && made->definition() && made->is("ai.kvopt::QuantizeRows") &&
                   newCodes() == &made->result(0)
               ? made
               : nullptr;
  }
  bool hasItsScales() const { return rounding() && newScales() == &rounding()->result(1); }
};

/// Whether the node returns the rows of its operand.
bool handsOn(const Node& node) { return node.is("Identity") || node.is("Transpose"); }

/// The output that returns the rows in the layout of caches, or null.
Value* handedOut(const Value& rows) {
  for (const Use& use : rows.uses())
    if (handsOn(use.user()) && use.user().result().isGraphOutput())
      return &use.user().result();
  return nullptr;
}

const ManifestCache* cacheOf(const Manifest& manifest, const Value& firstBlock) {
  const auto found = llvm::find_if(manifest.caches, [&](const ManifestCache& cache) {
    return !cache.blocks().empty() && cache.blocks().front() == firstBlock.name();
  });
  return found == manifest.caches.end() ? nullptr : &*found;
}

/// Whether codes and scales have the same layout as outputs.
bool areLaidOutAlike(const Value* codes, const Value* scales) {
  return codes && scales && codes->producer()->op() == scales->producer()->op() &&
         codes->producer()->intsAttr("perm") == scales->producer()->intsAttr("perm");
}

/// Whether the cache has exactly the blocks that `blockAt` returns, and the output is its new rows.
bool isCache(const ManifestCache& cache, unsigned blocks, const Value* output,
             llvm::function_ref<const Value*(unsigned)> blockAt) {
  if (cache.blocks().size() != blocks || !output || output->name() != cache.present)
    return false;
  for (unsigned i = 0; i < blocks; ++i)
    if (cache.blocks()[i] != blockAt(i)->name())
      return false;
  return true;
}

void setRowElement(Value& value, ElementType element) {
  TensorType type = value.type();
  type.setElementType(element);
  value.setType(std::move(type));
}

} // namespace

bool isBlockAttention(const Node& node) {
  const auto op = CacheOperator::of(node);
  return op && op->isInBlocks() && op->hasCodes();
}

std::string miswiredBlocks(const Node& node, const Manifest& manifest) {
  for (unsigned side = 0; side < CacheOperator::of(node)->sides(); ++side) {
    const SideOperands operands{node, side};
    if (operands.each() == 0)
      return formatted("{} has no blocks", node.describe());
    const ManifestCache* codes = cacheOf(manifest, *operands.codes(0));
    const ManifestCache* scales = cacheOf(manifest, *operands.scales(0));
    if (!operands.hasItsScales() || !codes || !scales || codes->layer != scales->layer ||
        scales->role != scaleRole(codes->role) ||
        !areLaidOutAlike(handedOut(*operands.newCodes()), handedOut(*operands.newScales())) ||
        !isCache(*codes, operands.each(), handedOut(*operands.newCodes()),
                 [&](unsigned i) { return operands.codes(i); }) ||
        !isCache(*scales, operands.each(), handedOut(*operands.newScales()),
                 [&](unsigned i) { return operands.scales(i); }))
      return formatted("attention reads the blocks of '{}' with the scales of '{}', whose new "
                       "rows are not the model's",
                       operands.codes(0)->name(), operands.scales(0)->name());
  }
  return "";
}

llvm::Error unquantizeBlocks(Node& node, Manifest& manifest, RemovedScales& removed) {
  Graph& graph = node.graph();
  auto query = requiredOperand(node, 0);
  if (!query)
    return query.takeError();
  const CacheOperator op = *CacheOperator::of(node);
  llvm::SmallVector<Value*, 16> inputs{*query};
  llvm::SmallVector<Node*, 2> roundings;
  for (unsigned side = 0; side < op.sides(); ++side) {
    if (SideOperands{node, side}.each() == 0)
      return invalid("{} has no blocks", node.describe());
    Node* rounding = SideOperands{node, side}.rounding();
    if (!rounding)
      return invalid("{}: nothing rounds the new rows", node.describe());
    roundings.push_back(rounding);
    inputs.push_back(rounding->operand(0));
  }
  inputs.push_back(node.operand(op.mask()));
  inputs.push_back(node.operand(op.sinks()));
  for (unsigned side = 0; side < op.sides(); ++side) {
    const SideOperands operands{node, side};
    const ElementType element = roundings[side]->operand(0)->type().elementType();
    for (unsigned i = 0; i < operands.each(); ++i) {
      setRowElement(*operands.codes(i), element);
      inputs.push_back(operands.codes(i));
      removed.note(operands.scales(i));
    }
    for (ManifestCache& cache : manifest.caches)
      if (&cache == cacheOf(manifest, *operands.codes(0)))
        cache.dtype = element;
  }
  Node& plain = graph.createFresh(op.unquantized().name(), inputs, 1, &node, "attention");
  for (const NamedAttribute& attribute : node.attributes())
    plain.setAttribute(attribute.name, attribute.value.clone());
  plain.result().setType(node.result().type());
  node.result().replaceAllUsesWith(plain.result());
  graph.erase(node);
  for (Node* rounding : roundings) {
    Value& rows = *rounding->operand(0);
    for (const Use& use : rounding->result(0).uses()) {
      if (!handsOn(use.user()))
        return invalid("codes of new rows are read by {}", use.user().describe());
      setRowElement(use.user().result(), rows.type().elementType());
    }
    if (Value* scales = handedOut(rounding->result(1)))
      removeOutputOf(*scales);
    rounding->result(0).replaceAllUsesWith(rows);
  }
  return llvm::Error::success();
}

std::string newValueScales(const Node& node) {
  const unsigned values = CacheOperator::of(node)->sides() - 1;
  const Value* output = handedOut(*SideOperands{node, values}.newScales());
  return output ? output->name().str() : "";
}

} // namespace kvopt::unrounding
