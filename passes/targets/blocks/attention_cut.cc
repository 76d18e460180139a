// Stages of values, and the values that cross from one stage to another.
#include "passes/targets/blocks/attention_cut.h"

#include "ir/manifest/tile_names.h"
#include "ir/movement.h"
#include "ir/random.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace ir;

namespace {

/// Operands and results of ai.kvopt::AttentionTile.
enum TileOperand : unsigned { Query, Key, Values, Mask, Output, Maximum, Sum };

bool isTile(const Node* node) { return node && node->op() == OpName(kvoptDomain, "AttentionTile"); }

/// The next tile in the chain; null for the last.
const Node* nextTile(const Node& tile) {
  for (const Use& use : tile.result(0).uses())
    if (isTile(&use.user()) && use.operandIndex() == Output)
      return &use.user();
  return nullptr;
}

/// All values that a node reads, captures of subgraphs included.
llvm::SmallVector<const Value*, 8> readBy(const Node& node) {
  llvm::SmallVector<const Value*, 8> values;
  for (const Use& use : node.operands())
    if (use.value())
      values.push_back(use.value());
  for (const Value* captured : capturedValues(node))
    values.push_back(captured);
  return values;
}

/// Nodes that only move data between a graph input and `value`, last to first; nullopt if something
/// else computes it.
struct MovedInput {
  const Value* input;
  llvm::SmallVector<const Node*, 4> nodes;
};
std::optional<MovedInput> movedInput(const Value& value) {
  MovedInput moved{&value, {}};
  while (!moved.input->isGraphInput()) {
    const Node* producer = moved.input->producer();
    const Value* before = producer ? movedOperand(*producer) : nullptr;
    if (!before || producer->is("Concat"))
      return std::nullopt;
    moved.nodes.push_back(producer);
    moved.input = before;
  }
  return moved;
}

std::string typeText(const Value& value) {
  std::string text = dtypeName(value.type().elementType()).str();
  if (value.type().hasRank())
    for (const Dim& extent : value.type().shape())
      text += " " + extent.str();
  return text;
}

/// Text of the attribute; a text that differs from every other node's if the attribute has no text
/// form.
std::string attributeText(const Node& node, const NamedAttribute& attribute) {
  const Attribute& value = attribute.value;
  std::string text = attribute.name + "=";
  switch (value.kind()) {
  case AttributeKind::Int:
    return text + std::to_string(value.intValue());
  case AttributeKind::Float:
    return text + formatted("{}", value.floatValue());
  case AttributeKind::Ints:
    return text + joinedText(value.ints(), ",");
  default:
    return text + node.result(0).name().str();
  }
}

std::string nodeText(const Node& node) {
  std::string text = node.op().str();
  for (const NamedAttribute& attribute : node.attributes())
    text += " " + attributeText(node, attribute);
  for (const Use& use : node.operands()) {
    if (!use.value() || isMoved(use))
      continue;
    const auto numbers = use.value()->knownIntegers();
    text += " (";
    if (numbers)
      for (const Dim& number : *numbers)
        text += number.isUnknown() ? node.result(0).name().str() : number.str() + ",";
    else
      text += node.result(0).name().str();
    text += ")";
  }
  return text;
}

/// Key of a tile: tiles with the same key compute the same function of their operands.
std::string signatureOf(const Node& tile, bool takesBlocks) {
  std::string text;
  for (const NamedAttribute& attribute : tile.attributes())
    text += attributeText(tile, attribute) + ";";
  for (unsigned operand = 0; operand <= Sum; ++operand) {
    const auto moved = takesBlocks && (operand == Key || operand == Values)
                           ? movedInput(*tile.operand(operand))
                           : std::nullopt;
    if (moved)
      for (const Node* node : moved->nodes)
        text += nodeText(*node) + ";";
    text += typeText(moved ? *moved->input : *tile.operand(operand)) + ";";
  }
  // One cache may hold both keys and values.
  const auto keys = movedInput(*tile.operand(Key));
  const auto values = movedInput(*tile.operand(Values));
  const bool isShared = takesBlocks ? keys && values && keys->input == values->input
                                    : tile.operand(Key) == tile.operand(Values);
  return text + (isShared ? "shared" : "");
}

} // namespace

llvm::Expected<AttentionCut> AttentionCut::create(const Model& model, const Manifest& manifest,
                                                  ElementType state) {
  AttentionCut cut(model.graph());
  cut.tiles.state = state;
  cut.findChains();
  cut.findStages();
  llvm::stable_sort(cut.chains, [&](const Chain& a, const Chain& b) {
    return cut.stageOf(a.back()->result(0)) < cut.stageOf(b.back()->result(0));
  });
  BlockPlaces blocks;
  for (const ManifestCache& cache : manifest.caches)
    for (size_t i = 0; i < cache.blocks().size(); ++i)
      blocks.try_emplace(cache.blocks()[i], &cache, i);
  for (const Chain& chain : cut.chains)
    if (llvm::Error error = cut.describeChain(chain, manifest, blocks))
      return error;
  if (llvm::Error error = cut.findParts())
    return error;
  cut.tiles.parts.resize(cut.parts.size());
  cut.tiles.tiles.resize(cut.kinds.size());
  return cut;
}

void AttentionCut::findChains() {
  for (const Node& node : graph.nodes()) {
    if (!isTile(&node) || isTile(node.operand(Output)->producer()))
      continue;
    Chain& chain = chains.emplace_back();
    for (const Node* tile = &node; tile; tile = nextTile(*tile))
      chain.push_back(tile);
    results.insert(&chain.back()->result(0));
  }
}

bool AttentionCut::isRecomputed(const Node& node) const {
  if (!node.subgraphs().empty() || isTile(&node) || isRandom(node.op()))
    return false;
  if (node.is("Shape"))
    return node.operand(0)->isGraphInput();
  return llvm::all_of(readBy(node), [&](const Value* value) {
    return (value->isInitializer() && !value->isGraphInput()) ||
           (value->producer() && recomputed.count(value->producer()));
  });
}

void AttentionCut::findStages() {
  for (const Node& node : graph.nodes()) {
    int64_t stage = 0;
    for (const Value* value : readBy(node))
      stage = std::max(stage, stageOf(*value));
    if (isRecomputed(node))
      recomputed.insert(&node);
    for (const Value& result : node.results())
      stages[&result] = stage + (results.count(&result) ? 1 : 0);
  }
}

int64_t AttentionCut::kindOf(const Node& tile, bool takesBlocks) {
  const std::string signature =
      (takesBlocks ? "blocks " : "rows ") + signatureOf(tile, takesBlocks);
  const auto [found, isNew] = kindNumbers.try_emplace(signature, kinds.size());
  if (isNew)
    kinds.push_back({&tile, takesBlocks});
  return static_cast<int64_t>(found->second);
}

llvm::Error AttentionCut::describeChain(const Chain& chain, const Manifest& manifest,
                                        const BlockPlaces& blocks) {
  const Node& first = *chain.front();
  const Node& last = *chain.back();
  const auto broken = [&] {
    return invalid(
               "the tiles of an attention do not read the blocks of its caches one after another")
        .node(first.name(), first.op().str());
  };
  if (chain.size() < 2)
    return broken();
  ManifestTiledAttention attention;
  attention.afterPart = stageOf(last.result(0)) - 1;
  const std::pair<TileOperand, std::string*> values[] = {{Query, &attention.query},
                                                         {Mask, &attention.mask},
                                                         {Output, &attention.output},
                                                         {Maximum, &attention.maximum},
                                                         {Sum, &attention.sum}};
  for (const auto& [operand, name] : values)
    *name = first.operand(operand)->name().str();
  attention.key = last.operand(Key)->name().str();
  attention.value = last.operand(Values)->name().str();
  attention.result = last.result(0).name().str();
  // The masks of tiles are slices of one mask.
  const Node* slice = first.operand(Mask)->producer();
  if (!slice || !slice->is("Slice"))
    return broken();
  attention.mask = slice->operand(0)->name().str();
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    for (const auto& [operand, past] :
         {std::pair(Key, &attention.keyCache), std::pair(Values, &attention.valueCache)}) {
      const auto moved = movedInput(*chain[i]->operand(operand));
      const auto found = moved ? blocks.find(moved->input->name()) : blocks.end();
      if (found == blocks.end())
        return broken();
      const auto& [cache, place] = found->second;
      if (place != i || (i != 0 && cache->past != *past) ||
          cache->blocks().size() + 1 != chain.size())
        return broken();
      *past = cache->past;
    }
    const bool isTail =
        i + 2 == chain.size() && manifest.capacityValue.value_or(0) % manifest.blockSize != 0;
    const int64_t kind = kindOf(*chain[i], true);
    if (isTail)
      attention.tailTile = kind;
    else if (i == 0)
      attention.blockTile = kind;
    else if (kind != attention.blockTile)
      return broken();
  }
  attention.lastTile = kindOf(last, false);
  tiles.attentions.push_back(std::move(attention));
  return llvm::Error::success();
}

/// Adds the inputs of the part's outputs that other parts or attentions compute.
void AttentionCut::collectInputs(size_t part) {
  llvm::SmallVector<const Value*, 32> pending(parts[part].outputs.begin(),
                                              parts[part].outputs.end());
  llvm::DenseSet<const Value*> seen(pending.begin(), pending.end());
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    const Node* producer = value->producer();
    if (!producer)
      continue;
    if (results.count(value) ||
        (!recomputed.count(producer) && stageOf(*value) < static_cast<int64_t>(part))) {
      parts[part].inputs.insert(value);
      continue;
    }
    for (const Value* read : readBy(*producer))
      if (seen.insert(read).second)
        pending.push_back(read);
  }
}

llvm::Error AttentionCut::findParts() {
  int64_t last = 0;
  for (const Chain& chain : chains)
    last = std::max(last, stageOf(chain.back()->result(0)));
  parts.resize(static_cast<size_t>(last) + 1);
  const auto give = [&](const Value& value) {
    if (!results.count(&value))
      parts[static_cast<size_t>(stageOf(value))].outputs.insert(&value);
  };
  for (const Value* output : graph.outputs()) {
    if (results.count(output))
      return unsupported(
                 "attention whose result is an output of the model does not belong to a part")
          .value(output->name());
    tiles.outputs.push_back(output->name().str());
    give(*output);
  }
  for (const ManifestTiledAttention& attention : tiles.attentions)
    for (const std::string* name :
         {&attention.query, &attention.key, &attention.value, &attention.mask, &attention.output,
          &attention.maximum, &attention.sum})
      give(*graph.findValue(*name));
  for (size_t part = parts.size(); part-- > 0;) {
    collectInputs(part);
    for (const Value* value : parts[part].inputs)
      give(*value);
  }
  for (const Part& part : parts)
    if (part.outputs.empty())
      return unsupported(
          "attention reads only the result of another attention, so there is no part between them");
  return llvm::Error::success();
}

SubmodelBoundary AttentionCut::part(size_t index) const {
  SubmodelBoundary boundary;
  for (const Value* value : parts[index].inputs)
    boundary.inputs.push_back({value, value->name().str()});
  for (const Value* value : parts[index].outputs)
    boundary.outputs.push_back({value, value->name().str()});
  return boundary;
}

SubmodelBoundary AttentionCut::tile(size_t index) const {
  const Kind& kind = kinds[index];
  SubmodelBoundary boundary;
  for (unsigned operand = 0; operand <= Sum; ++operand) {
    const Value* value = kind.tile->operand(operand);
    if (kind.takesBlocks && (operand == Key || operand == Values))
      value = movedInput(*value)->input;
    if (llvm::none_of(boundary.inputs,
                      [&](const BoundaryValue& input) { return input.value == value; }))
      boundary.inputs.push_back({value, tileInputNames[operand]});
  }
  for (unsigned i = 0; i < 3; ++i)
    boundary.outputs.push_back({&kind.tile->result(i), tileOutputNames[i]});
  return boundary;
}

} // namespace kvopt::targets
