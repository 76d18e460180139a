// Moves the proved meaning of masks from operands of ai.kvopt::Sdpa to its attributes.
//
//   before   Sdpa(q, k, v, Where(And(j <= i + P, pad), 0, -inf))
//   after    Sdpa<causal = 1>(q, k, v, pad)
//
// If keys and values were appended at a length per batch row, P is the row's length, and attention
// gets it as an operand.
//
// The node's metadata records the facts, also if the operand remains.
//
// prove-masks{padding=none} assumes that no batch row is padded: padding that an input defines,
// element by element, then hides nothing. The context names these inputs.
#include "passes/analysis/mask/mask_predicate.h"
#include "passes/pass.h"
#include "passes/transforms/configured_passes.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* maskMetadataKey = "kvopt.mask";

void note(Node& node, const std::string& text) {
  Metadata metadata = node.metadata();
  auto entry =
      llvm::find_if(metadata, [](const auto& pair) { return pair.first == maskMetadataKey; });
  if (entry == metadata.end())
    metadata.emplace_back(maskMetadataKey, text);
  else if (entry->second == text)
    return;
  else
    entry->second = text;
  node.setMetadata(std::move(metadata));
}

/// Whether attributes and the remaining operand give every row the same probabilities. A hidden key
/// has none if it gets -inf or false. A finite number of at most `hidingThreshold` has the same
/// effect if the row sees a key: exp of a difference below -104 is 0 in f32, and scores would have
/// to differ by thousands to outweigh the number. A row that sees no key, however, averages over
/// all keys, hidden or not, and must continue to do so, unless `hiddenRowsUndefined` is set: if a
/// mask is causal except for padding, such a row is padding.
bool keepsEveryRow(const MaskFacts& facts) { return facts.isExact || facts.everyRowSeesAKey; }

/// Whether a causal mask hides nothing else if no batch row is padded. Every row then sees the key
/// of its own token.
bool isOnlyPadded(const MaskFacts& facts) {
  return facts.causal == Proof::Proved && facts.remaining == MaskFacts::Remaining::Padding &&
         llvm::all_of(facts.padding, [](const MaskFacts::Padding& padding) {
           const ElementType element =
               padding.shownBy ? padding.shownBy->type().elementType() : ElementType::Undefined;
           return isInteger(element) || element == ElementType::Bool;
         });
}

class ProveMasks final : public Pass {
public:
  explicit ProveMasks(MaskAssumptions assumptions)
      : hiddenRowsUndefined(assumptions.hiddenRowsUndefined), neverPadded(assumptions.neverPadded) {
  }

  llvm::Error run(Model& model, PassContext& context) override {
    MaskAnalysis analysis;
    unsigned edits = 0;
    forEachGraph(model.graph(), [&](Graph& graph) {
      for (Node& node : graph.nodes())
        if (node.op() == OpName("ai.kvopt::Sdpa"))
          edits += prove(node, analysis, context);
    });
    if (edits != 0)
      forEachGraph(model.graph(), [](Graph& graph) { graph.eraseDeadNodes(); });
    return llvm::Error::success();
  }

private:
  /// Lengths after which the rows of keys and of values were appended, if attention does not have
  /// them as an operand.
  static Value* appendedLengths(const Node& node) {
    Value* lengths[2] = {};
    for (unsigned i : {0u, 1u}) {
      const Node* append = node.operand(1 + i)->producer();
      if (append && append->op() == OpName(kvoptDomain, "AppendRows"))
        lengths[i] = append->operand(2);
    }
    return lengths[0] == lengths[1] && !node.operand(5) ? lengths[0] : nullptr;
  }

  /// Returns whether the node's operand was replaced.
  bool prove(Node& node, MaskAnalysis& analysis, PassContext& context) const {
    MaskAnalysis::Question question = maskQuestion(node);
    Value* lengths = question.mask ? appendedLengths(node) : nullptr;
    MaskFacts facts;
    if (lengths) {
      // A causal mask hides the rows after the new rows of each batch row, which attention with
      // lengths does not read.
      question = maskQuestion(node, *lengths);
      facts = analysis.facts(question);
      if (facts.causal != Proof::Proved || !facts.isExact ||
          facts.remaining == MaskFacts::Remaining::Other) {
        lengths = nullptr;
        question = maskQuestion(node);
      }
    }
    if (!lengths)
      facts = analysis.facts(question);
    note(node, facts.text);
    context.count("prove-masks", "causal-" + proofName(facts.causal).str());
    if (!question.mask || facts.remaining == MaskFacts::Remaining::Other)
      return false;
    const bool isUnpadded = neverPadded && isOnlyPadded(facts);
    const bool changesHiddenRows = !keepsEveryRow(facts) && !isUnpadded;
    if (changesHiddenRows && (!hiddenRowsUndefined || facts.causal != Proof::Proved))
      return false;
    Value* remaining = nullptr;
    if (isUnpadded) {
      for (const MaskFacts::Padding& padding : facts.padding)
        context.unpaddedMasks.insert(padding.shownBy->name().str());
    } else if (facts.remaining == MaskFacts::Remaining::Padding) {
      remaining = analysis.paddingValue(question);
      if (!remaining || remaining == question.mask)
        return false;
    }
    if (facts.causal == Proof::Proved)
      node.setAttribute("causal", Attribute::ofInt(1));
    if (facts.window > 0)
      node.setAttribute("window", Attribute::ofInt(facts.window));
    if (node.attribute("mask_boolean"))
      node.setAttribute("mask_boolean", Attribute::ofInt(remaining ? 1 : 0));
    llvm::SmallVector<Value*, 6> operands;
    for (const Use& use : node.operands())
      operands.push_back(use.operandIndex() == 3 ? remaining : use.value());
    if (lengths) {
      operands.resize(6);
      operands[5] = lengths;
    }
    while (!operands.back())
      operands.pop_back();
    node.setOperands(operands);
    context.hiddenRowsUndefined |= changesHiddenRows;
    context.count("prove-masks", remaining ? "reduced" : "dropped");
    return true;
  }

  bool hiddenRowsUndefined;
  bool neverPadded;
};

llvm::Expected<std::unique_ptr<Pass>> proveMasksOf(const PassOptions& options) {
  const auto given = options.find("hidden-rows");
  if (given != options.end() && given->second != "exact" && given->second != "undefined")
    return usageError("prove-masks: hidden-rows is exact or undefined, not '{}'", given->second);
  const auto padding = options.find("padding");
  if (padding != options.end() && padding->second != "any" && padding->second != "none")
    return usageError("prove-masks: padding is any or none, not '{}'", padding->second);
  return makeProveMasks({given != options.end() && given->second == "undefined",
                         padding != options.end() && padding->second == "none"});
}

} // namespace

std::unique_ptr<Pass> makeProveMasks(MaskAssumptions assumptions) {
  return std::make_unique<ProveMasks>(assumptions);
}

void register_prove_masks(PassRegistry& registry) {
  registry.add({"prove-masks",
                "Proves the meaning of masks; causal masks and windows become attributes.",
                {"hidden-rows", "padding"},
                proveMasksOf});
}

} // namespace kvopt::transforms
