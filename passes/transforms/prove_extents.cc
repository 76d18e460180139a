// Proves that a decoder whose extents became symbols computes the same for any number of batch
// rows, tokens and earlier tokens as the exported decoder does for its fixed numbers, step by step.
//
// Batch rows must be independent. Everything outside attention must be a function of single tokens
// and of their positions, which the number of cache rows or the caller determines. Attention must
// be causal. In an export for one token, which sees all keys, it becomes causal:
//
//   before   o[B, H, 1, D] = ai.kvopt.Sdpa(q, present_key, present_value, padding)
//   after    o[B, H, S, D] = ai.kvopt.Sdpa<causal = 1>(q, present_key, present_value, padding)
#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/interface/input_readers.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/tokens/token_functions.h"
#include "passes/pass.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* proveExtentsName = "prove-extents";

/// Inputs from which values are computed, ignoring masks among tokens.
struct Sources {
  llvm::DenseSet<const Value*> inputs;
  llvm::DenseSet<const Value*> seen;

  void follow(const Value& value) {
    llvm::SmallVector<const Value*, 32> pending(1, &value);
    while (!pending.empty()) {
      const Value* next = pending.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      if (next->isGraphInput() && !next->constant())
        inputs.insert(next);
      const Node* node = next->producer();
      if (!node || node->is("Shape"))
        continue;
      for (const Use& use : node->operands())
        if (use.value() && !(node->op() == OpName("ai.kvopt::Sdpa") && use.operandIndex() > 2))
          pending.push_back(use.value());
    }
  }
};

class ExtentProof {
public:
  ExtentProof(Graph& proved, PassContext& passContext)
      : graph(proved), context(passContext), freed(*passContext.freed) {}

  llvm::Error run() {
    if (context.sites.empty())
      return refused(nullptr, "no attention of the model is recognized");
    for (const AttentionSite& site : context.sites)
      if (site.failure)
        return refused(nullptr, formatted("{} {}", site.id(), site.failure->str()));
    if (freed.hasBatch())
      if (auto mixing = findBatchMixing(graph, context.sites, freed.symbols.batch.str()))
        return refused(mixing->node, "batch rows: " + mixing->why);
    if (!freed.hasTokens() && !freed.hasPast())
      return llvm::Error::success();
    for (AttentionSite& site : context.sites)
      if (!site.isCross)
        if (llvm::Error error = seeEarlierTokens(site))
          return error;
    auto followed = findTokenFunctions(graph, context.sites, freed.symbols.tokens.str());
    if (const auto* mixing = std::get_if<TokenMixing>(&followed))
      return refused(mixing->node, "tokens: " + mixing->why);
    return checkPlaces(std::get<TokenFunctions>(followed));
  }

private:
  llvm::Error refused(const Node* node, const std::string& why) {
    const MatchFailure failure{ReasonCode::ExtentFixed, node ? node->name().str() : "",
                               "the same for any number of batch rows and tokens",
                               node ? formatted("{}: {}", node->describe(), why) : why, ""};
    context.sites.clear();
    return unsupported("{}", failure.str()).as<RefusedError>();
  }

  /// Makes queries see their own token and earlier ones.
  llvm::Error seeEarlierTokens(const AttentionSite& site) {
    Node& node = *site.node;
    if (!node.operand(0)->type().dim(2).isKnownEqual(freed.symbols.tokens))
      return refused(&node, formatted("it has {} queries", node.operand(0)->type().dim(2).str()));
    if (node.operand(3) && isToldByCaller(*node.operand(3)))
      return llvm::Error::success();
    // A condition on a key's position may be the remainder of a causal mask or of a window.
    const bool isTold = everyPadding(site, [](const MaskFacts::Padding& padding) {
      return padding.isOfElements && !padding.dependsOn.empty();
    });
    if (isTold && (node.intAttr("causal", 0) != 0 || site.mask->causal == Proof::Proved ||
                   site.mask->causalIf))
      return llvm::Error::success();
    const bool readsAllRows = site.update == CacheUpdate::Grows || site.update == CacheUpdate::None;
    const bool isShown = everyPadding(
        site, [](const MaskFacts::Padding& padding) { return padding.shownBy != nullptr; });
    if (freed.exported.tokens.value() != 1 || !isShown || !readsAllRows ||
        site.mask->remaining == MaskFacts::Remaining::Other ||
        site.mask->bias != MaskFacts::Bias::None || site.mask->window != 0)
      return refused(&node, formatted("attention is not provably causal: {}",
                                      site.mask ? site.mask->text : "no mask"));
    node.setAttribute("causal", Attribute::ofInt(1));
    context.count(proveExtentsName, "made_causal");
    return llvm::Error::success();
  }

  static bool everyPadding(const AttentionSite& site,
                           llvm::function_ref<bool(const MaskFacts::Padding&)> holds) {
    return site.mask && llvm::all_of(site.mask->padding, holds);
  }

  /// Whether an input defines the visible keys of each token, and nothing else in the mask depends
  /// on the position of a key.
  bool isToldByCaller(const Value& mask) const {
    bool isTold = false;
    llvm::SmallVector<const Value*, 16> pending(1, &mask);
    llvm::DenseSet<const Value*> seen;
    while (!pending.empty()) {
      const Value* value = pending.pop_back_val();
      if (!seen.insert(value).second || uniformValue(*value))
        continue;
      const Node* node = value->producer();
      if (!node && (!value->isGraphInput() || value->constant()))
        return false;
      if (!node) {
        isTold |= hasTokensAndKeys(value->type());
      } else if (elementFunction(*node)) {
        for (const Use& use : node->operands())
          pending.push_back(use.value());
      } else if (movementKind(*node) && !node->is("Concat")) {
        pending.push_back(movedOperand(*node));
      } else {
        return false;
      }
    }
    return isTold;
  }

  bool hasTokensAndKeys(const TensorType& type) const {
    return type.hasRank() && type.rank() > 2 && type.dim(-2).isKnownEqual(freed.symbols.tokens) &&
           type.dim(-1).isKnownEqual(freed.symbols.keys());
  }

  /// An export for one token may contain its position as a constant. Only if an input or the number
  /// of cache rows determines the position is that excluded.
  llvm::Error checkPlaces(const TokenFunctions& functions) {
    Sources sources;
    for (const Value* output : graph.outputs())
      sources.follow(*output);
    llvm::DenseSet<const Value*> caches;
    for (const AttentionSite& site : context.sites)
      for (const auto* cache : {&site.key, &site.value})
        if (*cache)
          caches.insert((*cache)->past);
    bool isTold = false;
    Tables tables;
    for (const Value* input : sources.inputs) {
      if (caches.contains(input))
        continue;
      const bool hasTokens =
          input->type().hasRank() && llvm::any_of(input->type().shape(), [&](const Dim& extent) {
            return extent.isKnownEqual(freed.symbols.tokens);
          });
      if (!hasTokens)
        return refused(nullptr, formatted("'{}', {}, does not have an element for each token",
                                          input->name(), input->type().str()));
      isTold |= notePlaces(*input, tables);
    }
    if (!isTold && tables.size() < 2 && functions.positions.empty() && functions.tables.empty())
      return refused(nullptr, "no input determines the positions of tokens, which the export may "
                              "have stored as constants");
    return llvm::Error::success();
  }

  /// Rows and elements of tables from which token ids and positions select one entry each.
  using Tables = std::set<std::pair<int64_t, int64_t>>;

  /// Whether an input becomes angles. Records the tables with an entry for every position of the
  /// export from which it selects; embedded tokens come from a table that is not in this graph.
  bool notePlaces(const Value& input, Tables& tables) const {
    if (isFloatingPoint(input.type().elementType())) {
      tables.insert({0, 0});
      return false;
    }
    size_t budget = 4096;
    const InputReaders readers = readersOf(input, budget);
    const int64_t keys = freed.exported.keys().value().value_or(0);
    for (const InputReaders::Table& table : readers.tables)
      if (table.rows < 0 || table.rows >= keys)
        tables.insert({table.rows, table.elements});
    return readers.isAngle;
  }

  Graph& graph;
  PassContext& context;
  const FreedExtents& freed;
};

class ProveExtents final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    if (!context.freed)
      return usageError("prove-extents: no extents were replaced by symbols before")
          .hint("run free-extents and the recovery of attention first");
    if (llvm::Error error = ExtentProof(model.graph(), context).run())
      return error;
    model.markEdited();
    return llvm::Error::success();
  }
};

} // namespace

void register_prove_extents(PassRegistry& registry) {
  registry.add({proveExtentsName,
                "Proves that extents that became symbols may have any value.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<ProveExtents>());
                }});
}

} // namespace kvopt::transforms
