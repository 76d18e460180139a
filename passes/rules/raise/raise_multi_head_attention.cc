// Raises com.microsoft.MultiHeadAttention to ai.kvopt::Sdpa.
//
//   before   o, kAll, vAll = MultiHeadAttention<num_heads, …>(q, k, v, bias, key_padding_mask,
//                                attention_bias, past_k, past_v)
//   after    kAll = Concat<2>(past_k, heads(k + bias))   (v likewise)
//            o = rows(ai.kvopt.Sdpa<…>(heads(q + bias), kAll, vAll, attention_bias + padding))
//
// Operands are rows [B,S,H*D]; or keys and values [B,H,T,D]; or packed [B,T,H,2,D], [B,S,H,3,D].
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

constexpr llvm::StringLiteral multiHeadAttributes[] = {"num_heads", "scale", "unidirectional",
                                                       "mask_filter_value"};

struct MultiHeadFacts {
  Dim rows, newKeys, tokens, width, valueWidth;
};

class RaiseMultiHeadAttention final : public Rule {
  Var q{"query"}, k{"key"}, v{"value"}, bias{"bias"}, padding{"key_padding_mask"},
      attentionBias{"attention_bias"}, pastKey{"past_key"}, pastValue{"past_value"};
  Payload<MultiHeadFacts> extents;

public:
  llvm::StringRef name() const override { return "raise-multi-head-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    return op("com.microsoft::MultiHeadAttention",
              {q, maybe(k), maybe(v), maybe(bias), maybe(padding), maybe(attentionBias),
               maybe(pastKey), maybe(pastValue)});
  }

  void constraints(Constraints& c) const override {
    c.handles(multiHeadAttributes, "only attributes that Sdpa can express");
    c.plan(extents, [this](const Match& m, Refusal& r) { return readLayout(m, r); });
    c.require(
        "the scores are not read",
        [](const Match& match) {
          auto results = match.root().results();
          return results.size() < 4 || results[3].isAbsent() || results[3].isUnused();
        },
        ReasonCode::ValueEscapes);
    c.require(
        "operands of one floating-point type",
        [this](const Match& match) {
          ElementType element = match[q].type().elementType();
          for (const Var* var : {&k, &v, &bias, &attentionBias, &pastKey, &pastValue})
            if (const Value* value = match.find(*var))
              if (value->type().elementType() != element)
                return false;
          return element == ElementType::Float || element == ElementType::Float16 ||
                 element == ElementType::BFloat16;
        },
        ReasonCode::DtypeMix);
    c.check([this](const Match& m, Refusal& r) { return checkMasks(m, r); });
    c.require(
        "the same number of new keys as query rows, because later keys are hidden",
        [this](const Match& match) {
          const MultiHeadFacts& facts = match[extents];
          return match.root().intAttr("unidirectional", 0) != 1 ||
                 facts.rows.isKnownEqual(facts.newKeys);
        },
        ReasonCode::MaskUnprovenCausal);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& node = match.root();
    AttentionBuilder build(rewriter);
    const MultiHeadFacts& facts = match[extents];
    AttentionBuilder::AttentionParts parts;
    splitOperands(match, facts, build, parts);
    Value* fresh[] = {parts.key, parts.value};
    if (Value* past = match.find(pastKey)) {
      parts.key = &build.concat(*past, *parts.key, 2);
      parts.value = &build.concat(match[pastValue], *parts.value, 2);
    }
    setContribMask(parts,
                   {match.find(padding), match.find(attentionBias),
                    static_cast<double>(node.floatAttr("mask_filter_value", -10000.0f)),
                    node.intAttr("unidirectional", 0) == 1},
                   match[q].type().elementType(), build);
    float scale = node.floatAttr("scale", 0.0f);
    parts.scale = scale != 0 ? static_cast<double>(scale) : defaultScale(*facts.width.value());
    Value& output = build.mergeHeads(build.sdpa(parts, match.nodes()));
    return build.replace(node, output, {match.find(pastKey), fresh[0], parts.key},
                         {match.find(pastValue), fresh[1], parts.value});
  }

private:
  static unsigned rankOf(const Value* value) {
    return value && value->type().hasRank() ? value->type().rank() : 0;
  }

  MultiHeadFacts factsOf(const Match& match) const {
    Dim heads = Dim::fixed(match.root().intAttr("num_heads", 0));
    const TensorType& query = match[q].type();
    const Value* key = match.find(k);
    const Value* value = match.find(v);
    auto width = [&](const TensorType& type) {
      return type.rank() > 3 ? type.dim(-1) : type.dim(2).dividedBy(heads).value_or(Dim::unknown());
    };
    MultiHeadFacts facts;
    facts.rows = query.dim(1);
    facts.width = width(query);
    facts.newKeys = rankOf(key) == 4 ? key->type().dim(2) : key ? key->type().dim(1) : facts.rows;
    facts.valueWidth = value ? width(value->type()) : facts.width;
    facts.tokens = facts.newKeys;
    if (const Value* past = match.find(pastKey))
      facts.tokens = past->type().dim(2) + facts.newKeys;
    return facts;
  }

  std::optional<MultiHeadFacts> readLayout(const Match& match, Refusal& refusal) const {
    const Node& node = match.root();
    auto refuse = [&](ReasonCode code, const char* expected, std::string found) {
      refusal.because([&] {
        return MatchFailure{code, node.name().str(), expected, std::move(found), ""};
      });
      return std::nullopt;
    };
    if (node.intAttr("num_heads", 0) <= 0)
      return refuse(ReasonCode::HeadCountUnproven, "a positive num_heads", "none");
    unsigned ranks[] = {rankOf(&match[q]), rankOf(match.find(k)), rankOf(match.find(v))};
    bool rows = ranks[0] == 3 && ranks[1] == 3 && ranks[2] == 3;
    bool split = ranks[0] == 3 && ranks[1] == 4 && ranks[2] == 4;
    bool packedKv = ranks[0] == 3 && ranks[1] == 5 && !match.find(v);
    bool packed = ranks[0] == 5 && !match.find(k) && !match.find(v);
    if (!rows && !split && !packedKv && !packed)
      return refuse(ReasonCode::LayoutUnsupported,
                    "rows, or keys and values by heads, or one packed operand",
                    formatted("ranks {}, {} and {}", ranks[0], ranks[1], ranks[2]));
    // Engines differ in whether they add a bias to keys that are already split.
    if (!rows && match.find(bias) && !(split && isQueryBias(match)))
      return refuse(ReasonCode::BiasUnsupported, "a bias only with operands in rows",
                    "a bias with operands split by heads");
    if ((match.find(pastKey) != nullptr) != (match.find(pastValue) != nullptr))
      return refuse(ReasonCode::PatternMismatch, "a past of keys and of values, or none",
                    "one of them");
    MultiHeadFacts facts = factsOf(match);
    if (facts.width.value().value_or(0) <= 0 || facts.valueWidth.value().value_or(0) <= 0)
      return refuse(ReasonCode::ShapeUnknown, "head widths that are constants",
                    match[q].type().str());
    return facts;
  }

  /// Whether the bias is a constant that is zero for keys and values.
  bool isQueryBias(const Match& match) const {
    const TensorData* data = match[bias].constant();
    auto values = data ? floatValues(*data, 1 << 20) : std::nullopt;
    auto width = match[q].type().dim(2).value();
    if (!values || !width || *width < 0 || static_cast<size_t>(*width) > values->size())
      return false;
    return std::all_of(values->begin() + *width, values->end(),
                       [](double value) { return value == 0; });
  }

  bool checkMasks(const Match& match, Refusal& refusal) const {
    const MultiHeadFacts& facts = match[extents];
    auto refuse = [&](const Value& mask, const char* expected) {
      return refusal.because([&] {
        return MatchFailure{ReasonCode::PatternMismatch, mask.name().str(), expected,
                            mask.type().str(), ""};
      });
    };
    const Value* mask = match.find(padding);
    bool lengths =
        mask && rankOf(mask) == 1 && mask->type().dim(0).isKnownEqual(match[q].type().dim(0));
    if (mask && !lengths) {
      if (rankOf(mask) != 2 && rankOf(mask) != 3)
        return refuse(*mask, "a padding mask [B,T] or [B,S,T], or lengths [B]");
      Dim columns = mask->type().dim(-1);
      // A mask of the new keys only does not say which rows of a past are visible.
      bool partial = match.find(pastKey) && columns.isKnownEqual(facts.newKeys);
      if (columns.isKnownDifferent(facts.tokens) || partial)
        return refuse(*mask, "a padding mask with one column per key");
      if (columns.isKnownEqual(Dim::fixed(1)) && !facts.tokens.isKnownEqual(columns))
        return refuse(*mask, "a padding mask with one column per key");
    }
    if (const Value* added = match.find(attentionBias)) {
      if (rankOf(added) != 4)
        return refuse(*added, "an attention bias of four axes");
      Dim columns = added->type().dim(3);
      if (columns.isKnownDifferent(facts.tokens) ||
          (columns.isKnownEqual(Dim::fixed(1)) && !facts.tokens.isKnownEqual(columns)))
        return refuse(*added, "an attention bias with one column per key");
    }
    return true;
  }

  void splitOperands(const Match& match, const MultiHeadFacts& facts, AttentionBuilder& build,
                     AttentionBuilder::AttentionParts& parts) const {
    int64_t heads = match.root().intAttr("num_heads", 0);
    int64_t width = *facts.width.value();
    int64_t valueWidth = *facts.valueWidth.value();
    auto part = [&](Value& packed, int64_t index) {
      Value& rows = build.node("Gather", {packed, int64Scalar(index)}, attrs({{"axis", 3}}));
      return &build.transpose(rows, {0, 2, 1, 3});
    };
    if (rankOf(&match[q]) == 5) {
      parts.query = part(match[q], 0);
      parts.key = part(match[q], 1);
      parts.value = part(match[q], 2);
      return;
    }
    int64_t offset = 0;
    auto rows = [&](const Var& var, int64_t rowWidth) -> Value* {
      Value* tokens = &match[var];
      if (Value* added = match.find(bias)) {
        Value& own = build.slice(*added, 0, offset, offset + heads * rowWidth);
        tokens = &build.node("Add", {*tokens, own});
        offset += heads * rowWidth;
      }
      return &build.splitHeads(*tokens, heads, rowWidth);
    };
    parts.query = rows(q, width);
    switch (rankOf(match.find(k))) {
    case 5:
      parts.key = part(match[k], 0);
      parts.value = part(match[k], 1);
      return;
    case 4:
      parts.key = &match[k];
      parts.value = &match[v];
      return;
    default:
      parts.key = rows(k, width);
      parts.value = rows(v, valueWidth);
    }
  }
};

} // namespace

void register_raise_multi_head_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseMultiHeadAttention>());
}

} // namespace kvopt::rules
