// Query heads of one group stacked as rows, under a mask repeated for them → grouped Sdpa.
//
//   before   o = ai.kvopt.Sdpa(Reshape(q, [B,G,N*S,D]), k, v, mask repeated to [..,N*S,T])
//   after    o = Reshape(ai.kvopt.Sdpa(q, k, v, mask), [B,G,N*S,Dv])          q[B,G*N,S,D]
//
// Row n*S + s of group g is row s of head g*N + n. The mask has to be the same for all n, which its
// index map shows, or to have rows for each of them.
#include "passes/analysis/head_broadcast.h"
#include "passes/analysis/score_region.h"
#include "passes/rule.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
namespace {

/// N heads a group, S rows each.
struct Stacking {
  Value* query; ///< [B,G*N,S,D] or of the same elements in that order
  Dim heads, rows;
};

std::optional<Stacking> stackingOf(Value& query) {
  const TensorType& type = query.type();
  if (!type.hasRank() || type.rank() != 4)
    return std::nullopt;
  llvm::ArrayRef<Dim> own = type.shape();
  for (const MovementStop& stop : movementChain(query)) {
    llvm::ArrayRef<Dim> shape = stop.map.source();
    if ((shape.size() != 4 && shape.size() != 5) || !shape[0].isKnownEqual(own[0]) ||
        !shape.back().isKnownEqual(own[3]) || !stop.map.isReshape())
      continue;
    Dim rows = shape[shape.size() - 2];
    Dim heads = shape.size() == 4 ? shape[1] : shape[1] * shape[2];
    std::optional<Dim> stacked = heads.dividedBy(own[1]);
    if (stacked && stacked->value() != 1 && (*stacked * rows).isKnownEqual(own[2]))
      return Stacking{stop.value, heads, rows};
  }
  return std::nullopt;
}

class UngroupQueries final : public Rule {
  static constexpr unsigned maxMaskDepth = 6;
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"};

  /// `value`, of which the axis before the last has N times `rows` entries, with one of the N equal
  /// parts; null if they are not equal for sure.
  static Value* firstRows(Value& value, const Dim& rows, Rewriter& rewriter, unsigned depth = 0) {
    const TensorType& type = value.type();
    if (!type.hasRank() || depth > maxMaskDepth)
      return nullptr;
    if (type.rank() < 2 || type.dim(-2).value() == 1)
      return &value;
    std::vector<MovementStop> stops = movementChain(value);
    for (const MovementStop& stop : llvm::reverse(stops)) {
      auto found = stop.map.repetition(type.rank() - 2, IndexMap::Repeat::Whole);
      if (found && found->shape[type.rank() - 2].isKnownEqual(rows))
        return beforeRepetition(*stop.value, *found, rewriter);
    }
    Node* node = value.producer();
    if (!node || !isElementwise(*node) || &node->graph() != &value.graph())
      return nullptr;
    llvm::SmallVector<Value*, 3> operands;
    for (const Use& use : node->operands()) {
      Value* part = use.value() ? firstRows(*use.value(), rows, rewriter, depth + 1) : nullptr;
      if (use.value() && !part)
        return nullptr;
      operands.push_back(part);
    }
    std::vector<NamedAttribute> attributes;
    for (const NamedAttribute& attribute : node->attributes())
      attributes.push_back({attribute.name, attribute.value.clone()});
    return &rewriter.create(node->op(), operands, std::move(attributes), 1, "mask").result();
  }

  static Value* maskOf(Value& value, const Dim& groups, const Stacking& stacking,
                       Rewriter& rewriter) {
    const TensorType& type = value.type();
    if (!type.hasRank() || type.rank() > 4)
      return nullptr;
    if (type.rank() < 4 || type.shape()[1].value() == 1)
      return firstRows(value, stacking.rows, rewriter);
    // Rows of its own for each head.
    if (!type.shape()[1].isKnownEqual(groups) ||
        !(type.shape()[1] * type.shape()[2]).isKnownEqual(stacking.heads * stacking.rows))
      return nullptr;
    return ShapeBuilder(rewriter).reshape(
        value, {type.shape()[0], stacking.heads, stacking.rows, type.shape()[3]}, "mask");
  }

public:
  llvm::StringRef name() const override { return "ungroup-queries"; }
  RuleGroup group() const override { return RuleGroup::Strip; }

  P pattern() const override { return op("ai.kvopt::Sdpa", {q, k, v, maybe(mask)}); }

  void constraints(Constraints& c) const override {
    c.require("queries that are several heads stacked as rows",
              [this](const Match& match) { return stackingOf(match[q]).has_value(); });
    c.require("no causal mask or window, whose rows would be others", [](const Match& match) {
      return match.root().intAttr("causal", 0) == 0 && match.root().intAttr("window", 0) == 0;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    Stacking stacking = *stackingOf(match[q]);
    llvm::ArrayRef<Dim> own = match[q].type().shape();
    ShapeBuilder shapes(rewriter);
    Value* query = shapes.reshape(*stacking.query, {own[0], stacking.heads, stacking.rows, own[3]},
                                  "query_heads");
    llvm::SmallVector<Value*, 4> operands{query, &match[k], &match[v]};
    if (Value* stacked = match.find(mask)) {
      operands.push_back(maskOf(*stacked, own[1], stacking, rewriter));
      if (!operands.back())
        return MatchFailure{ReasonCode::MaskUnprovenCausal, stacked->name().str(),
                            "a mask that is the same for every head of a group",
                            stacked->type().str(), ""};
    }
    std::vector<NamedAttribute> attributes;
    for (const NamedAttribute& attribute : before.attributes())
      attributes.push_back({attribute.name, attribute.value.clone()});
    Value* output = nullptr;
    if (query) {
      Node& grouped = rewriter.create(before.op(), operands, std::move(attributes), 1, "attention");
      grouped.setMetadata(before.metadata());
      output = shapes.reshape(grouped.result(), {own[0], own[1], own[2], match[v].type().dim(3)},
                              "stacked");
    }
    if (!output)
      return MatchFailure{ReasonCode::ShapeUnknown, match[q].name().str(),
                          "extents that graph inputs have", match[q].type().str(), ""};
    return rewriter.replace(before.result(), *output);
  }
};

} // namespace

void register_ungroup_queries(RuleRegistry& registry) {
  registry.add(std::make_unique<UngroupQueries>());
}

} // namespace kvopt
