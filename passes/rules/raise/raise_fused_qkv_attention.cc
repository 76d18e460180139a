// Raises com.microsoft.Attention, which includes the projection of queries, keys and values, to
// ai.kvopt::Sdpa.
//
//   before   o, present = Attention<num_heads, …>(x, weights, bias, mask_index, past [2,B,H,P,D])
//   after    q, k, v = columns(MatMul(x, weights) + bias)
//            kAll = Concat<2>(past[0], heads(k))   vAll = Concat<2>(past[1], heads(v))
//            o = rows(ai.kvopt.Sdpa<…>(heads(q), kAll, vAll, mask))   present = stack(kAll, vAll)
//
// mask_filter_value is added to the scores of hidden keys. unidirectional is on only if it is 1.
#include "ir/attribute.h"
#include "passes/builders/contrib_mask.h"
#include "passes/pattern/rule.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

constexpr llvm::StringLiteral fusedQkvAttributes[] = {"num_heads", "scale", "unidirectional",
                                                      "mask_filter_value", "qkv_hidden_sizes"};

/// Numbers of columns in the projection.
struct Widths {
  int64_t key = 0; ///< queries and keys, all heads together
  int64_t value = 0;
};

class RaiseFusedQkvAttention final : public Rule {
  Var x{"input"}, weights{"weights"}, bias{"bias"}, maskIndex{"mask_index"}, past{"past"},
      attentionBias{"attention_bias"};
  Payload<Widths> layout;

public:
  llvm::StringRef name() const override { return "raise-fused-qkv-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    return op("com.microsoft::Attention",
              {x, weights, maybe(bias), maybe(maskIndex), maybe(past), maybe(attentionBias)});
  }

  void constraints(Constraints& c) const override {
    c.handles(fusedQkvAttributes, "only attributes that Sdpa can express");
    c.plan(layout, [this](const Match& m, Refusal& r) { return readLayout(m, r); });
    c.require(
        "operands of one floating-point type",
        [this](const Match& match) {
          // The type of x may be unknown after an operator that kvopt does not know.
          ElementType element = elementOf(match);
          ElementType given = match[x].type().elementType();
          if (given != ElementType::Undefined && given != element)
            return false;
          for (const Var* var : {&bias, &past, &attentionBias})
            if (const Value* value = match.find(*var))
              if (value->type().elementType() != element)
                return false;
          return element == ElementType::Float || element == ElementType::Float16 ||
                 element == ElementType::BFloat16;
        },
        ReasonCode::DtypeMix);
    c.check([this](const Match& m, Refusal& r) { return checkMasks(m, r); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& node = match.root();
    AttentionBuilder build(rewriter);
    int64_t heads = node.intAttr("num_heads", 0);
    const Widths& widths = match[layout];
    Value* projected = &build.node("MatMul", {match[x], match[weights]}, {}, "qkv");
    if (Value* added = match.find(bias))
      projected = &build.node("Add", {*projected, *added}, {}, "qkv");
    int64_t begin = 0;
    auto part = [&](int64_t columns) {
      Value& own = build.slice(*projected, 2, begin, begin + columns);
      begin += columns;
      return &build.splitHeads(own, heads, columns / heads);
    };
    AttentionBuilder::AttentionParts parts;
    parts.query = part(widths.key);
    parts.key = part(widths.key);
    parts.value = part(widths.value);
    if (Value* stacked = match.find(past)) {
      parts.key = &build.concat(half(*stacked, 0, build), *parts.key, 2);
      parts.value = &build.concat(half(*stacked, 1, build), *parts.value, 2);
    }
    setContribMask(parts,
                   {match.find(maskIndex), match.find(attentionBias),
                    static_cast<double>(node.floatAttr("mask_filter_value", -10000.0f)),
                    node.intAttr("unidirectional", 0) == 1},
                   elementOf(match), build);
    float scale = node.floatAttr("scale", 0.0f);
    parts.scale = scale != 0 ? static_cast<double>(scale) : defaultScale(widths.key / heads);
    Value& output = build.mergeHeads(build.sdpa(parts, match.nodes()));
    llvm::SmallVector<Rewriter::Replacement, 2> replacements{{&node.result(), &output}};
    if (node.results().size() > 1 && !node.result(1).isUnused())
      replacements.push_back({&node.result(1), &build.concat(build.unsqueeze(*parts.key, 0),
                                                             build.unsqueeze(*parts.value, 0), 0)});
    auto failure = rewriter.replace(replacements);
    if (failure)
      rewriter.discard();
    return failure;
  }

private:
  static unsigned rankOf(const Value& value) {
    return value.type().hasRank() ? value.type().rank() : 0;
  }

  ElementType elementOf(const Match& match) const { return match[weights].type().elementType(); }

  static Value& half(Value& stacked, int64_t index, AttentionBuilder& build) {
    return build.node("Gather", {stacked, int64Scalar(index)}, attrs({{"axis", 0}}));
  }

  std::optional<Widths> widthsOf(const Match& match) const {
    const Node& node = match.root();
    int64_t heads = node.intAttr("num_heads", 0);
    auto columns = match[weights].type().dim(1).value();
    if (heads <= 0 || !columns || *columns <= 0)
      return std::nullopt;
    Widths widths{*columns / 3, *columns / 3};
    if (auto sizes = node.intsAttr("qkv_hidden_sizes")) {
      if (sizes->size() != 3 || (*sizes)[0] != (*sizes)[1])
        return std::nullopt;
      widths = {(*sizes)[0], (*sizes)[2]};
    }
    if (widths.key <= 0 || widths.value <= 0 || widths.key > *columns || widths.value > *columns ||
        2 * widths.key + widths.value != *columns || widths.key % heads != 0 ||
        widths.value % heads != 0)
      return std::nullopt;
    return widths;
  }

  std::optional<Widths> readLayout(const Match& match, Refusal& refusal) const {
    auto refuse = [&](const Value& value, ReasonCode code, const char* expected) {
      refusal.because([&] {
        return MatchFailure{code, value.name().str(), expected, value.type().str(), ""};
      });
      return std::nullopt;
    };
    if (match[x].type().hasRank() && rankOf(match[x]) != 3)
      return refuse(match[x], ReasonCode::LayoutUnsupported, "rows [B,S,width]");
    std::optional<Widths> widths = rankOf(match[weights]) == 2 ? widthsOf(match) : std::nullopt;
    if (!widths)
      return refuse(match[weights], ReasonCode::HeadCountUnproven,
                    "weights whose columns divide into queries, keys and values of num_heads");
    const Value* stacked = match.find(past);
    if (stacked && (rankOf(*stacked) != 5 || widths->key != widths->value))
      return refuse(*stacked, ReasonCode::LayoutUnsupported,
                    "a past [2,B,H,P,D] of keys and values of one width");
    // The present is stacked, so it has one width, also without a past.
    auto results = match.root().results();
    if (results.size() > 1 && !results[1].isUnused() && widths->key != widths->value)
      return refuse(results[1], ReasonCode::LayoutUnsupported,
                    "a present of keys and values of one width");
    return widths;
  }

  Dim tokensOf(const Match& match) const {
    Dim rows = match[x].type().dim(1);
    const Value* stacked = match.find(past);
    return stacked ? stacked->type().dim(3) + rows : rows;
  }

  bool checkMasks(const Match& match, Refusal& refusal) const {
    Dim tokens = tokensOf(match);
    auto refuse = [&](const Value& mask, const char* expected) {
      return refusal.because([&] {
        return MatchFailure{ReasonCode::PatternMismatch, mask.name().str(), expected,
                            mask.type().str(), ""};
      });
    };
    auto isLong = [&](const Dim& columns) {
      return !columns.isKnownDifferent(tokens) &&
             (!columns.isKnownEqual(Dim::fixed(1)) || tokens.isKnownEqual(columns));
    };
    if (const Value* mask = match.find(maskIndex)) {
      bool lengths = rankOf(*mask) == 1 && mask->type().dim(0).isKnownEqual(match[x].type().dim(0));
      bool raw = (rankOf(*mask) == 2 || rankOf(*mask) == 3) && isLong(mask->type().dim(-1));
      if (!lengths && !raw)
        return refuse(*mask, "lengths [B], or a mask [B,T] or [B,S,T]");
    }
    if (const Value* mask = match.find(attentionBias))
      if (rankOf(*mask) != 4 || !isLong(mask->type().dim(3)))
        return refuse(*mask, "an attention bias [B,H,S,T]");
    return true;
  }
};

} // namespace

void register_raise_fused_qkv_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseFusedQkvAttention>());
}

} // namespace kvopt::rules
