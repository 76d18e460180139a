// Comparison of interfaces and blocks.
#include "driver/diff/model_difference.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::driver {
using namespace ir;
using namespace pattern;

namespace {

/// An input or output on one side: name and type.
struct Slot {
  std::string name;
  std::string type;
};

std::vector<InterfaceChange> compare(llvm::ArrayRef<Slot> before, llvm::ArrayRef<Slot> after) {
  llvm::StringMap<const Slot*> old;
  llvm::StringMap<const Slot*> fresh;
  for (const Slot& slot : before)
    old.try_emplace(slot.name, &slot);
  for (const Slot& slot : after)
    fresh.try_emplace(slot.name, &slot);
  std::vector<InterfaceChange> changes;
  // Removed entries by type: the first of a type is paired with the first added one of that type.
  llvm::StringMap<std::vector<size_t>> gone;
  for (const Slot& slot : before) {
    const Slot* now = fresh.lookup(slot.name);
    if (now && now->type == slot.type)
      continue;
    if (!now)
      gone[slot.type].push_back(changes.size());
    changes.push_back({now ? Change::Changed : Change::Removed, slot.name, now ? slot.name : "",
                       slot.type, now ? now->type : ""});
  }
  for (auto& entry : gone)
    std::reverse(entry.second.begin(), entry.second.end());
  for (const Slot& slot : after) {
    if (old.count(slot.name))
      continue;
    auto found = gone.find(slot.type);
    if (found != gone.end() && !found->second.empty()) {
      InterfaceChange& change = changes[found->second.back()];
      found->second.pop_back();
      change.change = Change::Renamed;
      change.after = slot.name;
      change.typeAfter = slot.type;
      continue;
    }
    changes.push_back({Change::Added, "", slot.name, "", slot.type});
  }
  return changes;
}

std::vector<Slot> inputsOf(const Model& model) {
  std::vector<Slot> slots;
  for (const std::unique_ptr<Value>& input : model.graph().inputs())
    slots.push_back({input->name().str(), input->type().str()});
  return slots;
}

std::vector<Slot> outputsOf(const Model& model) {
  std::vector<Slot> slots;
  for (const Value* output : model.graph().outputs())
    slots.push_back({output->name().str(), output->type().str()});
  return slots;
}

bool sameBlock(const AttentionSubgraph& a, const AttentionSubgraph& b) {
  return a.pasts == b.pasts && a.presents == b.presents && a.oneBuffer == b.oneBuffer &&
         a.nodes.size() == b.nodes.size() && nodesKept(a, b).size() == a.nodes.size();
}

/// Pairs blocks that share a cache input, and otherwise blocks with the same layer number.
std::vector<BlockChange> pairs(const BlockedModel& before, const BlockedModel& after) {
  llvm::StringMap<size_t> byPast;
  llvm::DenseMap<unsigned, size_t> byLayer;
  std::vector<BlockChange> found;
  for (const AttentionSubgraph& block : before.blocks) {
    for (const std::string& past : block.pasts)
      byPast.try_emplace(past, found.size());
    byLayer.try_emplace(block.layer, found.size());
    found.push_back({Change::Removed, &block, nullptr});
  }
  auto pair = [&](const AttentionSubgraph& block, size_t place) {
    if (place >= before.blocks.size() || found[place].after)
      return false;
    found[place].after = &block;
    return true;
  };
  std::vector<const AttentionSubgraph*> left;
  for (const AttentionSubgraph& block : after.blocks) {
    auto known = llvm::find_if(block.pasts,
                               [&](const std::string& past) { return byPast.count(past) != 0; });
    if (known == block.pasts.end() || !pair(block, byPast.lookup(*known)))
      left.push_back(&block);
  }
  for (const AttentionSubgraph* block : left) {
    auto known = byLayer.find(block->layer);
    if (known == byLayer.end() || !pair(*block, known->second))
      found.push_back({Change::Added, nullptr, block});
  }
  return found;
}

std::vector<BlockChange> compareBlocks(const BlockedModel& before, const BlockedModel& after) {
  std::vector<BlockChange> changes = pairs(before, after);
  for (BlockChange& pair : changes)
    if (pair.before && pair.after)
      pair.change = sameBlock(*pair.before, *pair.after) ? Change::Same : Change::Changed;
  llvm::stable_sort(changes, [](const BlockChange& a, const BlockChange& b) {
    return a.either().layer < b.either().layer;
  });
  return changes;
}

std::string joinedNames(const Node& node) {
  std::string key = node.op().str() + "(";
  for (const Use& use : node.operands())
    key += (use.value() ? use.value()->name().str() : "") + ",";
  key += ")";
  for (const Value& result : node.results())
    key += result.name().str() + ",";
  return key;
}

} // namespace

bool isSameNode(const Node& a, const Node& b) { return joinedNames(a) == joinedNames(b); }

llvm::DenseSet<const Node*> nodesKept(const AttentionSubgraph& block,
                                      const AttentionSubgraph& other) {
  llvm::StringSet<> known;
  for (const Node* node : other.nodes)
    known.insert(joinedNames(*node));
  llvm::DenseSet<const Node*> kept;
  for (const Node* node : block.nodes)
    if (known.count(joinedNames(*node)))
      kept.insert(node);
  return kept;
}

bool ModelDifference::isEmpty() const {
  return opsetsBefore == opsetsAfter && irBefore == irAfter && opsBefore == opsAfter &&
         inputs.empty() && outputs.empty() && llvm::all_of(blocks, [](const BlockChange& block) {
           return block.change == Change::Same;
         });
}

const char* ModelDifference::name(Change change) {
  switch (change) {
  case Change::Same:
    return "same";
  case Change::Changed:
    return "changed";
  case Change::Renamed:
    return "renamed";
  case Change::Added:
    return "added";
  case Change::Removed:
    break;
  }
  return "removed";
}

ModelDifference differenceOf(const BlockedModel& before, const BlockedModel& after) {
  ModelDifference difference;
  difference.opsetsBefore = before.model->opsets;
  difference.opsetsAfter = after.model->opsets;
  difference.irBefore = before.model->irVersion;
  difference.irAfter = after.model->irVersion;
  difference.opsBefore = countOps(before.model->graph());
  difference.opsAfter = countOps(after.model->graph());
  difference.inputs = compare(inputsOf(*before.model), inputsOf(*after.model));
  difference.outputs = compare(outputsOf(*before.model), outputsOf(*after.model));
  difference.blocks = compareBlocks(before, after);
  return difference;
}

} // namespace kvopt::driver
