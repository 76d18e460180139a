// Raises com.microsoft.DecoderMaskedMultiHeadAttention to ai.kvopt::Sdpa.
//
//   before   o, kAll, vAll = DecoderMaskedMultiHeadAttention<num_heads, …>(
//                q, k, v, mask_index, attention_bias, past_k, past_v, past_sequence_length, ,,
//                bias)
//   after    kAll = Concat<2>(past_k, heads(k + bias))                       (v likewise)
//            o = rows(Sdpa<causal>(heads(q + bias), kAll, vAll, attention_bias + padding))
//   or, with past_present_share_buffer = 1
//            kAll = ScatterElements<2>(past_k, past_sequence_length, heads(k + bias))
//            o = rows(Sdpa<causal>(…, past_sequence_length))
//   or, if key and value are heads [B,H,L,D] of cross attention
//            o = rows(Sdpa(heads(q + bias), k, v, padding))
//
// The operator takes one token per batch row, which sees every row; causal has the same meaning.
// beam_width is used only with cache_indirection, which is refused.
#include "ir/attribute.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

constexpr llvm::StringLiteral decoderMaskedAttributes[] = {
    "num_heads", "scale", "mask_filter_value", "past_present_share_buffer", "output_qk"};

struct DecoderMaskedFacts {
  int64_t heads = 0, width = 0, valueWidth = 0;
  bool isCross = false;
  Dim keys; ///< unknown for a shared buffer
};

class RaiseDecoderMaskedAttention final : public Rule {
  Var q{"query"}, k{"key"}, v{"value"}, padding{"mask_index"}, attentionBias{"attention_bias"},
      pastKey{"past_key"}, pastValue{"past_value"}, length{"past_sequence_length"},
      beams{"beam_width"}, indirection{"cache_indirection"}, bias{"bias"};
  Payload<DecoderMaskedFacts> facts;

public:
  llvm::StringRef name() const override { return "raise-decoder-masked-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    return op("com.microsoft::DecoderMaskedMultiHeadAttention",
              {q, maybe(k), maybe(v), maybe(padding), maybe(attentionBias), maybe(pastKey),
               maybe(pastValue), maybe(length), maybe(beams), maybe(indirection), maybe(bias)});
  }

  void constraints(Constraints& c) const override {
    c.handles(decoderMaskedAttributes, "only attributes that Sdpa can express");
    c.require(
        "rows of a past that belong to their own batch row, without cache_indirection",
        [this](const Match& match) { return !match.find(indirection); },
        ReasonCode::CacheReordered);
    c.require(
        "the scores are not read",
        [](const Match& match) {
          auto results = match.root().results();
          return results.size() < 4 || results[3].isAbsent() || results[3].isUnused();
        },
        ReasonCode::ValueEscapes);
    c.plan(facts, [this](const Match& m, Refusal& r) { return readLayout(m, r); });
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
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& node = match.root();
    const DecoderMaskedFacts& read = match[facts];
    AttentionBuilder build(rewriter);
    AttentionBuilder::AttentionParts parts;
    splitOperands(match, build, parts);
    Value* fresh[] = {parts.key, parts.value};
    if (sharesBuffer(node)) {
      parts.pastLength = &pastLength(match, build);
      parts.key = &written(match[pastKey], *fresh[0], *parts.pastLength, build);
      parts.value = &written(match[pastValue], *fresh[1], *parts.pastLength, build);
    } else if (match.find(pastKey)) {
      parts.key = &build.concat(match[pastKey], *fresh[0], 2);
      parts.value = &build.concat(match[pastValue], *fresh[1], 2);
    }
    parts.mask = match.find(attentionBias);
    if (Value* kept = match.find(padding)) {
      Value& added = build.keptMask(*kept, match[q].type().elementType(),
                                    double{node.floatAttr("mask_filter_value", -10000.0f)});
      parts.mask = parts.mask ? &build.node("Add", {*parts.mask, added}, {}, "mask") : &added;
    }
    // The mask has a column for each valid row.
    if (parts.mask && sharesBuffer(node))
      parts.mask = &build.paddedMask(*parts.mask, build.extent(*parts.key, 2));
    const float scale = node.floatAttr("scale", 0.0f);
    parts.scale = scale != 0 ? double{scale} : defaultScale(read.width);
    parts.causal = !read.isCross;
    Value& output = build.mergeHeads(build.sdpa(parts, match.nodes()));
    return build.replace(node, output, {match.find(pastKey), fresh[0], parts.key},
                         {match.find(pastValue), fresh[1], parts.value});
  }

private:
  static bool sharesBuffer(const Node& node) {
    return node.intAttr("past_present_share_buffer", 0) != 0;
  }

  static unsigned rankOf(const Value* value) {
    return value && value->type().hasRank() ? value->type().rank() : 0;
  }

  std::optional<DecoderMaskedFacts> readLayout(const Match& match, Refusal& refusal) const {
    const Node& node = match.root();
    auto refuse = [&](ReasonCode code, const char* expected, std::string found) {
      refusal.because([&] {
        return MatchFailure{code, node.name().str(), expected, std::move(found), ""};
      });
      return std::nullopt;
    };
    DecoderMaskedFacts read;
    read.heads = node.intAttr("num_heads", 0);
    if (read.heads <= 0)
      return refuse(ReasonCode::HeadCountUnproven, "a positive num_heads", "none");
    const Value* key = match.find(k);
    const Value* value = match.find(v);
    const unsigned ranks[] = {rankOf(&match[q]), rankOf(key), rankOf(value)};
    const bool isPacked = !key && !value;
    read.isCross = ranks[1] == 4 && ranks[2] == 4;
    if (ranks[0] != 3 || !(isPacked || read.isCross || (ranks[1] == 3 && ranks[2] == 3)))
      return refuse(ReasonCode::LayoutUnsupported,
                    "a query [B,1,H*D] with rows, or keys and values by heads, or alone",
                    formatted("ranks {}, {} and {}", ranks[0], ranks[1], ranks[2]));
    const TensorType& query = match[q].type();
    if (query.dim(1).isKnownDifferent(Dim::fixed(1)))
      return refuse(ReasonCode::ShapeMismatch, "one token per batch row", query.str());
    const bool hasPast = match.find(pastKey) != nullptr;
    if (hasPast != (match.find(pastValue) != nullptr))
      return refuse(ReasonCode::PatternMismatch, "a past of keys and of values, or none",
                    "one of them");
    const auto results = node.results();
    const bool hasPresents = llvm::any_of(results.drop_front(1).take_front(2), [](const Value& r) {
      return !r.isAbsent() && !r.isUnused();
    });
    if (read.isCross && (hasPast || hasPresents))
      return refuse(ReasonCode::PatternMismatch, "cross attention without a past and presents",
                    hasPast ? "a past" : "a present");
    if (sharesBuffer(node) && !read.isCross && (!hasPast || !match.find(length)))
      return refuse(ReasonCode::PatternMismatch,
                    "past_key, past_value and past_sequence_length of a shared buffer",
                    "one is absent");
    if (sharesBuffer(node) && node.graph().opsetVersion() < 13)
      return refuse(ReasonCode::PatternMismatch, "opset 13 or later",
                    formatted("opset {}", node.graph().opsetVersion()));
    auto widthOf = [&](const Dim& extent, int64_t parts) -> int64_t {
      auto known = extent.value();
      return known && *known > 0 && *known % (read.heads * parts) == 0
                 ? *known / (read.heads * parts)
                 : 0;
    };
    read.width = widthOf(query.dim(2), isPacked ? 3 : 1);
    read.valueWidth = isPacked       ? read.width
                      : read.isCross ? value->type().dim(3).value().value_or(0)
                                     : widthOf(value->type().dim(2), 1);
    if (read.width <= 0 || read.valueWidth <= 0)
      return refuse(ReasonCode::ShapeUnknown, "head widths that are constants", query.str());
    read.keys = read.isCross         ? key->type().dim(2)
                : sharesBuffer(node) ? Dim::unknown()
                : hasPast            ? match[pastKey].type().dim(2) + query.dim(1)
                                     : query.dim(1);
    return read;
  }

  bool checkMasks(const Match& match, Refusal& refusal) const {
    const Dim& keys = match[facts].keys;
    auto check = [&](const Var& var, unsigned rank, const char* expected) {
      const Value* mask = match.find(var);
      if (!mask)
        return true;
      const Dim columns = rankOf(mask) == rank ? mask->type().dim(-1) : Dim::fixed(-1);
      // A single column would apply to every key.
      const bool isOne = columns.isKnownEqual(Dim::fixed(1)) && !keys.isKnownEqual(columns);
      if (rankOf(mask) == rank && !columns.isKnownDifferent(keys) && !isOne)
        return true;
      return refusal.because([&] {
        return MatchFailure{ReasonCode::PatternMismatch, mask->name().str(), expected,
                            mask->type().str(), ""};
      });
    };
    return check(padding, 2, "a mask_index [B,T] with one column per key") &&
           check(attentionBias, 4, "an attention_bias [B,H,1,T] with one column per key");
  }

  void splitOperands(const Match& match, AttentionBuilder& build,
                     AttentionBuilder::AttentionParts& parts) const {
    const DecoderMaskedFacts& read = match[facts];
    const int64_t columns = read.heads * read.width;
    int64_t offset = 0;
    auto headsOf = [&](Value& tokens, int64_t width) -> Value* {
      Value* sum = &tokens;
      if (Value* added = match.find(bias))
        sum = &build.node("Add",
                          {tokens, build.slice(*added, 0, offset, offset + read.heads * width)});
      offset += read.heads * width;
      return &build.splitHeads(*sum, read.heads, width);
    };
    auto rowsOf = [&](const Var& var, int64_t part) -> Value& {
      return match.find(k) ? match[var]
                           : build.slice(match[q], 2, part * columns, (part + 1) * columns);
    };
    parts.query = headsOf(rowsOf(q, 0), read.width);
    if (read.isCross) {
      parts.key = &match[k];
      parts.value = &match[v];
      return;
    }
    parts.key = headsOf(rowsOf(k, 1), read.width);
    parts.value = headsOf(rowsOf(v, 2), read.valueWidth);
  }

  /// past_sequence_length as int64 [1].
  Value& pastLength(const Match& match, AttentionBuilder& build) const {
    Value& given = match[length];
    Value& list = rankOf(&given) == 1 ? given : build.node("Reshape", {given, ints({1})});
    return build.castTo(list, ElementType::Int64);
  }

  /// The buffer [B,H,C,W] with the new row [B,H,1,W] at `position`.
  static Value& written(Value& buffer, Value& row, Value& position, AttentionBuilder& build) {
    Value& slot = build.checkedSlot(position, buffer, 2);
    Value& column = build.node("Reshape", {slot, ints({1, 1, -1, 1})});
    Value& index = build.node("Expand", {column, build.node("Shape", {row})}, {}, "slot");
    return build.node("ScatterElements", {buffer, index, row}, attrs({{"axis", 2}}), "present");
  }
};

} // namespace

void register_raise_decoder_masked_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseDecoderMaskedAttention>());
}

} // namespace kvopt::rules
