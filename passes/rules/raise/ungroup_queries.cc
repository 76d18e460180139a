// Unstacks the query heads of one group, which are rows under a mask that is repeated for them, for
// grouped Sdpa.
//
//   before   o = ai.kvopt::Sdpa(Reshape(q, [B,G,N*S,D]), k, v, mask repeated to [..,N*S,T])
//   after    o = Reshape(ai.kvopt::Sdpa(q, k, v, mask), [B,G,N*S,Dv])          q[B,G*N,S,D]
//
// Row n*S + s of group g is row s of head g*N + n. With one group the order may also be s*N + n,
// for q [B,S,N,D]. The mask must be the same for all n, according to its index map, or have rows
// for each.
#include "ir/elementwise.h"
#include "passes/analysis/movement/head_broadcast.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

using Repeat = IndexMap::Repeat;

/// Mapping from rows of the scores to rows of several heads.
struct Stacking {
  Value* query; ///< [B,G*N,S,D], or [B,S,N,D] if heads of a row are adjacent, or its reshape
  Dim heads, rows;
  /// Whole: row n*S + s. Entries: row s*N + n.
  Repeat order;
};

llvm::SmallVector<Stacking, 2> stackingsOf(Value& query) {
  llvm::SmallVector<Stacking, 2> found;
  const TensorType& type = query.type();
  if (!type.hasRank() || type.rank() != 4)
    return found;
  llvm::ArrayRef<Dim> own = type.shape();
  for (const MovementStop& stop : movementChain(query)) {
    llvm::ArrayRef<Dim> shape = stop.map.source();
    if (shape.size() == 3 && own[1].value() == 1 && shape[0].isKnownEqual(own[0])) {
      // A projection: each row holds the heads of a position.
      std::optional<Dim> together = shape[2].dividedBy(own[3]);
      if (together && together->value() != 1 && (*together * shape[1]).isKnownEqual(own[2]) &&
          stop.map.isReshape())
        found.push_back({stop.value, *together, shape[1], Repeat::Entries});
      continue;
    }
    if ((shape.size() != 4 && shape.size() != 5) || !shape[0].isKnownEqual(own[0]) ||
        !shape.back().isKnownEqual(own[3]) || !stop.map.isReshape())
      continue;
    Dim rows = shape[shape.size() - 2];
    Dim heads = shape.size() == 4 ? shape[1] : shape[1] * shape[2];
    std::optional<Dim> stacked = heads.dividedBy(own[1]);
    if (!stacked || stacked->value() == 1 || !(*stacked * rows).isKnownEqual(own[2]))
      continue;
    found.push_back({stop.value, heads, rows, Repeat::Whole});
    if (own[1].value() == 1 && shape.size() == 4 && rows.value() != 1)
      found.push_back({stop.value, rows, heads, Repeat::Entries});
  }
  return found;
}

/// Masks without the repetition over stacked heads. Without a rewriter it only checks whether such
/// a mask exists: null means no.
class Unstacking {
public:
  Unstacking(const Stacking& queryStacking, Rewriter* graphRewriter)
      : stacking(queryStacking), rewriter(graphRewriter) {}

  Value* mask(Value& value, const Dim& groups) {
    const TensorType& type = value.type();
    if (!type.hasRank() || type.rank() > 4)
      return nullptr;
    if (type.rank() < 4 || type.shape()[1].value() == 1)
      if (Value* once = rowsOfOneHead(value, 0))
        return once;
    // Separate rows for each head.
    if (type.rank() < 4 || stacking.order != Repeat::Whole ||
        !type.shape()[1].isKnownEqual(groups) ||
        !(type.shape()[1] * type.shape()[2]).isKnownEqual(stacking.heads * stacking.rows))
      return nullptr;
    if (!rewriter)
      return &value;
    return ShapeBuilder(*rewriter).reshape(
        value, {type.shape()[0], stacking.heads, stacking.rows, type.shape()[3]}, "mask");
  }

private:
  static constexpr unsigned maxDepth = 6;

  /// The common part of all heads on the axis before the last.
  Value* rowsOfOneHead(Value& value, unsigned depth) {
    const TensorType& type = value.type();
    if (!type.hasRank() || depth > maxDepth)
      return nullptr;
    if (type.rank() < 2 || type.dim(-2).value() == 1)
      return &value;
    unsigned rowAxis = type.rank() - 2;
    std::vector<MovementStop> stops = movementChain(value);
    for (const MovementStop& stop : llvm::reverse(stops)) {
      auto found = stop.map.repetition(rowAxis, stacking.order);
      if (found && found->shape[rowAxis].isKnownEqual(stacking.rows))
        return rewriter ? beforeRepetition(*stop.value, *found, *rewriter) : stop.value;
    }
    Node* node = value.producer();
    if (!node || !isElementwise(*node) || (rewriter && &node->graph() != &rewriter->graph()))
      return nullptr;
    llvm::SmallVector<Value*, 3> operands;
    for (const Use& use : node->operands()) {
      Value* part = use.value() ? rowsOfOneHead(*use.value(), depth + 1) : nullptr;
      if (use.value() && !part)
        return nullptr;
      operands.push_back(part);
    }
    if (!rewriter)
      return &value;
    return &rewriter->createLike(*node, operands, "mask").result();
  }

  const Stacking& stacking;
  Rewriter* rewriter;
};

Value& swapHeadsAndRows(Value& value, Rewriter& rewriter) {
  return rewriter.create("Transpose", {&value}, attrs({{"perm", {0, 2, 1, 3}}}), 1, "heads")
      .result();
}

class UngroupQueries final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"};
  using Stackings = llvm::SmallVector<Stacking, 2>;
  Payload<Stackings> stackings;
  Payload<Stacking> chosen;

  /// The first stacking for which the mask can be split.
  std::optional<Stacking> stackingOf(const Match& match) const {
    for (const Stacking& stacking : match[stackings]) {
      Value* stacked = match.find(mask);
      if (!stacked || Unstacking(stacking, nullptr).mask(*stacked, match[q].type().dim(1)))
        return stacking;
    }
    return std::nullopt;
  }

public:
  llvm::StringRef name() const override { return "ungroup-queries"; }
  RuleGroup group() const override { return RuleGroup::Strip; }

  P pattern() const override { return op("ai.kvopt::Sdpa", {q, k, v, maybe(mask)}); }

  void constraints(Constraints& c) const override {
    c.plan(stackings, "queries that are several heads stacked as rows", [this](const Match& match) {
      Stackings found = stackingsOf(match[q]);
      return found.empty() ? std::nullopt : std::optional(std::move(found));
    });
    c.require("attention without a causal mask or window, which depend on the row",
              [](const Match& match) {
                return match.root().intAttr("causal", 0) == 0 &&
                       match.root().intAttr("window", 0) == 0;
              });
    c.plan(chosen, [this](const Match& match, Refusal& refusal) {
      std::optional<Stacking> stacking = stackingOf(match);
      if (!stacking)
        refusal.because([&] {
          return MatchFailure{ReasonCode::MaskUnprovenCausal, match[mask].name().str(),
                              "a mask that is the same for every head of a group",
                              match[mask].type().str(), ""};
        });
      return stacking;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    const Stacking& stacking = match[chosen];
    llvm::ArrayRef<Dim> own = match[q].type().shape();
    MatchFailure failure{ReasonCode::ShapeUnknown, match[q].name().str(),
                         "extents that graph inputs have", match[q].type().str(), ""};
    ShapeBuilder shapes(rewriter);
    bool standTogether = stacking.order == Repeat::Entries;
    const Dim& outer = standTogether ? stacking.rows : stacking.heads;
    const Dim& inner = standTogether ? stacking.heads : stacking.rows;
    Value* query = shapes.reshape(*stacking.query, {own[0], outer, inner, own[3]}, "query_heads");
    if (!query)
      return failure;
    if (standTogether)
      query = &swapHeadsAndRows(*query, rewriter);
    llvm::SmallVector<Value*, 4> operands{query, &match[k], &match[v]};
    if (Value* stacked = match.find(mask)) {
      operands.push_back(Unstacking(stacking, &rewriter).mask(*stacked, own[1]));
      if (!operands.back())
        return failure;
    }
    Node& grouped = rewriter.createLike(before, operands, "attention");
    grouped.setMetadata(before.metadata());
    Value& heads = standTogether ? swapHeadsAndRows(grouped.result(), rewriter) : grouped.result();
    Value* output =
        shapes.reshape(heads, {own[0], own[1], own[2], match[v].type().dim(3)}, "stacked");
    return output ? rewriter.replace(before.result(), *output) : failure;
  }
};

} // namespace

void register_ungroup_queries(RuleRegistry& registry) {
  registry.add(std::make_unique<UngroupQueries>());
}

} // namespace kvopt::rules
