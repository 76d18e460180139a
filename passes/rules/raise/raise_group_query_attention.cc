// Raises com.microsoft.GroupQueryAttention to ai.kvopt::Sdpa.
//
//   before   o, kAll, vAll = GroupQueryAttention<num_heads, kv_num_heads, …>(
//                q, k, v, past_k, past_v, seqlens_k, total_sequence_length, cos, sin, …)
//   after    length = Max(Cast(seqlens_k) + 1 - S, 0)
//            kAll = AppendRows(past_k, RotaryEmbedding(heads(k)), length)     (v without rotary)
//            o = rows(Sdpa<causal>(RotaryEmbedding(heads(q)), kAll, vAll, bias, sinks, length))
//
// If past and present are declared with one extent, they are one buffer, to whose rows new ones are
// written:
//
//            kAll = ScatterElements<2>(past_k, length + Range(S), RotaryEmbedding(heads(k)))
//
// If key and value have no rows, the past holds all rows, because another layer appended them:
// attention reads the past itself.
//
// seqlens_k holds each batch row's total length less one; in a first prompt, the padding rows on
// the right are subtracted, too. A window of w sees w keys, the row's own included, as in ONNX
// Runtime since 1.21. A cache of the last tokens only (sliding_window_cache) is treated as one that
// keeps all tokens, because no row sees the dropped ones. Norm weights are applied in separate
// nodes before the rotation. position_ids count up from their first number in a prompt. Any other
// past is assumed to have the length of the longest batch row, that is, to grow.
#include "ir/attribute.h"
#include "passes/analysis/cache/unpadded_length.h"
#include "passes/builders/grouped_operands.h"
#include "passes/pattern/rule.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

constexpr llvm::StringLiteral groupQueryAttributes[] = {
    "num_heads", "kv_num_heads",       "scale",          "softcap",      "local_window_size",
    "do_rotary", "rotary_interleaved", "smooth_softmax", "qk_output",    "sliding_window_cache",
    "causal",    "qk_norm_epsilon",    "k_quant_type",   "v_quant_type", "kv_cache_bit_width"};

class RaiseGroupQueryAttention final : public Rule {
  Var q{"query"}, k{"key"}, v{"value"}, pastKey{"past_key"}, pastValue{"past_value"},
      lengths{"seqlens_k"}, total{"total_sequence_length"}, cosines{"cos_cache"},
      sines{"sin_cache"}, positions{"position_ids"}, bias{"attention_bias"}, sinks{"head_sink"},
      keyScale{"k_scale"}, valueScale{"v_scale"}, queryNorm{"q_norm_weight"},
      keyNorm{"k_norm_weight"};
  Payload<int64_t> headWidth;

public:
  llvm::StringRef name() const override { return "raise-group-query-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    return op("com.microsoft::GroupQueryAttention",
              {q, maybe(k), maybe(v), maybe(pastKey), maybe(pastValue), lengths, maybe(total),
               maybe(cosines), maybe(sines), maybe(positions), maybe(bias), maybe(sinks),
               maybe(keyScale), maybe(valueScale), maybe(queryNorm), maybe(keyNorm)});
  }

  void constraints(Constraints& c) const override {
    c.handles(groupQueryAttributes, "only attributes that Sdpa can express");
    c.require(
        "causal = 1", [](const Match& match) { return match.root().intAttr("causal", 1) == 1; },
        ReasonCode::MaskNoncausal);
    c.require(
        "a cache that is not quantized by k_quant_type and v_quant_type, without k_scale and "
        "v_scale",
        [this](const Match& match) {
          const Node& node = match.root();
          return !match.find(keyScale) && !match.find(valueScale) &&
                 node.stringAttr("k_quant_type", "NONE").equals_insensitive("NONE") &&
                 node.stringAttr("v_quant_type", "NONE").equals_insensitive("NONE") &&
                 node.intAttr("kv_cache_bit_width", 0) == 0;
        },
        ReasonCode::DtypeMix);
    c.require(
        "the scores are not read",
        [](const Match& match) {
          auto results = match.root().results();
          return results.size() < 4 || results[3].isAbsent() || results[3].isUnused();
        },
        ReasonCode::ValueEscapes);
    c.plan(headWidth, [this](const Match& m, Refusal& r) { return readLayout(m, r); });
    c.require(
        "query, past and bias of one floating-point type",
        [this](const Match& match) {
          ElementType element = match[q].type().elementType();
          for (const Var* var : {&k, &v, &pastKey, &pastValue, &bias, &queryNorm, &keyNorm})
            if (const Value* value = match.find(*var))
              if (value->type().elementType() != element)
                return false;
          return isFloat(element);
        },
        ReasonCode::DtypeMix);
    c.require(
        "a window of at least one key, or none (-1) and a cache of all tokens",
        [](const Match& match) {
          int64_t window = match.root().intAttr("local_window_size", -1);
          return window > 0 ||
                 (window == -1 && match.root().intAttr("sliding_window_cache", 0) == 0);
        },
        ReasonCode::WindowNotRepresentable);
    c.require(
        "a buffer of all tokens, which is not sliding_window_cache",
        [this](const Match& match) {
          return match.root().intAttr("sliding_window_cache", 0) == 0 || !isBuffer(match);
        },
        ReasonCode::WindowNotRepresentable);
    c.check([this](const Match& m, Refusal& r) { return checkRotary(m, r); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& node = match.root();
    AttentionBuilder build(rewriter);
    int64_t heads = node.intAttr("num_heads", 0);
    int64_t groups = node.intAttr("kv_num_heads", 0);
    int64_t width = match[headWidth];
    const GroupedRows given = groupedRows(node, width, build);
    Value* query = &build.splitHeads(*given.query, heads, width);
    Value* key = isShared(match) ? nullptr : &build.splitHeads(*given.key, groups, width);
    Value* value = isShared(match) ? nullptr : &build.splitHeads(*given.value, groups, width);

    if (match.find(queryNorm)) {
      query = &normalized(match, *query, queryNorm, build);
      if (!isShared(match))
        key = &normalized(match, *key, keyNorm, build);
    }
    Value* length = match.find(pastKey) ? &pastLength(match, build) : nullptr;
    if (isOn(node, "do_rotary")) {
      Value* rows = nullptr;
      if (match.find(positions))
        rows = &givenPositions(match, build);
      else
        rows = length ? &build.positions(*length, build.extent(match[q], 1, true))
                      : &build.value(ints({0}));
      query = &rotatedByNode(node, *query, heads, width, *rows, build);
      if (!isShared(match))
        key = &rotatedByNode(node, *key, groups, width, *rows, build);
    }
    Value* fresh[] = {key, value};
    if (isShared(match)) {
      key = &match[pastKey];
      value = &match[pastValue];
    } else if (length && isBuffer(match)) {
      key = &written(match[pastKey], *key, *length, build);
      value = &written(match[pastValue], *value, *length, build);
    } else if (length && followsAllRows(*length, match[pastKey], *key)) {
      key = &build.concat(match[pastKey], *key, 2);
      value = &build.concat(match[pastValue], *value, 2);
      length = nullptr;
    } else if (length) {
      key = &build.node("ai.kvopt::AppendRows", {match[pastKey], *key, *length}, {}, "present_key");
      value = &build.node("ai.kvopt::AppendRows", {match[pastValue], *value, *length}, {},
                          "present_value");
    }

    AttentionBuilder::AttentionParts attention;
    attention.query = query;
    attention.key = key;
    attention.value = value;
    attention.mask = match.find(bias);
    // The bias has a column for each valid row.
    if (attention.mask && isBuffer(match))
      attention.mask = &build.paddedMask(*attention.mask, build.extent(*key, 2));
    attention.sinks = sinksOf(match, build);
    attention.pastLength = length;
    float scale = node.floatAttr("scale", 0.0f);
    attention.scale = scale != 0 ? static_cast<double>(scale) : defaultScale(width);
    attention.causal = true;
    attention.window = std::max<int64_t>(node.intAttr("local_window_size", -1), 0);
    attention.softcap = std::max(node.floatAttr("softcap", 0.0f), 0.0f);
    Value& output = build.mergeHeads(build.sdpa(attention, match.nodes()));
    if (isShared(match)) {
      std::optional<MatchFailure> failure = rewriter.replace(node.result(0), output);
      if (failure)
        rewriter.discard();
      return failure;
    }
    return build.replace(node, output, {match.find(pastKey), fresh[0], key},
                         {match.find(pastValue), fresh[1], value});
  }

private:
  /// Flags are on only if they are 1; ONNX Runtime's optimizer writes -1 for "off".
  static bool isOn(const Node& node, llvm::StringRef flag) { return node.intAttr(flag, 0) == 1; }

  static bool isFloat(ElementType element) {
    return element == ElementType::Float || element == ElementType::Float16 ||
           element == ElementType::BFloat16;
  }

  /// Whether the past holds all rows already.
  bool isShared(const Match& match) const {
    const Value* key = match.find(k);
    return key && match.find(pastKey) && key->type().dim(1).value() == 0;
  }

  /// Whether the rows of every batch row follow all rows of the past, according to extents alone.
  static bool followsAllRows(const Value& length, const Value& past, const Value& rows) {
    const Dim earlier = past.type().dim(2);
    const auto counted = analysis::unpaddedLength(length, earlier, rows.type().dim(2));
    return counted && counted->masks.empty() && counted->length.isKnownEqual(earlier);
  }

  std::optional<int64_t> widthOf(const Match& match) const {
    const Node& node = match.root();
    int64_t heads = node.intAttr("num_heads", 0);
    int64_t groups = node.intAttr("kv_num_heads", 0);
    auto hidden = match[q].type().dim(2).value();
    int64_t parts = match.find(k) ? heads : heads + 2 * groups;
    if (hidden && *hidden > 0 && *hidden % parts == 0)
      return *hidden / parts;
    const Value* past = match.find(pastKey);
    auto width = past ? past->type().dim(3).value() : std::nullopt;
    return width && *width > 0 && !hidden ? width : std::nullopt;
  }

  /// Returns the width of a head.
  std::optional<int64_t> readLayout(const Match& match, Refusal& refusal) const {
    const Node& node = match.root();
    auto refuse = [&](ReasonCode code, const char* expected, std::string found) {
      refusal.because([&] {
        return MatchFailure{code, node.name().str(), expected, std::move(found), ""};
      });
      return std::nullopt;
    };
    int64_t heads = node.intAttr("num_heads", 0);
    int64_t groups = node.intAttr("kv_num_heads", 0);
    constexpr int64_t most = 1 << 20;
    if (heads <= 0 || groups <= 0 || heads > most || heads % groups != 0)
      return refuse(ReasonCode::HeadCountUnproven, "num_heads, a multiple of kv_num_heads",
                    formatted("{} and {}", heads, groups));
    const Value* key = match.find(k);
    if ((key != nullptr) != (match.find(v) != nullptr))
      return refuse(ReasonCode::PatternMismatch, "a key and a value, or neither", "one of them");
    for (const Var* var : {&q, &k, &v})
      if (const Value* value = match.find(*var))
        if (value->type().hasRank() && value->type().rank() != 3)
          return refuse(ReasonCode::LayoutUnsupported, "operands [B,S,heads*width]",
                        value->type().str());
    std::optional<int64_t> width = widthOf(match);
    if (!width)
      return refuse(ReasonCode::ShapeUnknown, "a head width that is a constant",
                    match[q].type().str());
    const auto results = node.results();
    const auto isUsed = [&](unsigned result) {
      return result < results.size() && !results[result].isAbsent() && !results[result].isUnused();
    };
    if (isShared(match) && (isUsed(1) || isUsed(2)))
      return refuse(ReasonCode::SharedReader, "a past of another layer that is not returned",
                    "a present that is used");
    if (key && !isShared(match) && key->type().dim(1).isKnownDifferent(match[q].type().dim(1)))
      return refuse(ReasonCode::CrossAttention, "the same number of keys as query rows",
                    key->type().str());
    if ((match.find(pastKey) != nullptr) != (match.find(pastValue) != nullptr))
      return refuse(ReasonCode::PatternMismatch, "a past of keys and of values, or none",
                    "one of them");
    if ((match.find(queryNorm) != nullptr) != (match.find(keyNorm) != nullptr))
      return refuse(ReasonCode::PatternMismatch, "q_norm_weight and k_norm_weight, or neither",
                    "one of them");
    for (const Var* var : {&queryNorm, &keyNorm})
      if (const Value* weights = match.find(*var))
        if (weights->type().hasRank() &&
            (weights->type().rank() != 1 ||
             weights->type().dim(0).isKnownDifferent(Dim::fixed(*width))))
          return refuse(ReasonCode::ShapeMismatch, "norm weights with the width of a head",
                        weights->type().str());
    if (node.graph().opsetVersion() < 13)
      return refuse(ReasonCode::PatternMismatch, "opset 13 or later",
                    formatted("opset {}", node.graph().opsetVersion()));
    return width;
  }

  bool checkRotary(const Match& match, Refusal& refusal) const {
    if (!isOn(match.root(), "do_rotary"))
      return true;
    const Value* table = match.find(cosines);
    auto half = table ? table->type().dim(1).value() : std::nullopt;
    if (match.find(positions) && !match.find(total))
      return refusal.because([&] {
        return MatchFailure{ReasonCode::PatternMismatch, match.root().name().str(),
                            "total_sequence_length where there are position_ids", "none", ""};
      });
    if (half && match.find(sines) && *half > 0 && *half <= match[headWidth] / 2)
      return true;
    return refusal.because([&] {
      return MatchFailure{ReasonCode::ShapeUnknown, match.root().name().str(),
                          "caches of cosines and sines with rows of known width",
                          table ? table->type().str() : "none", ""};
    });
  }

  /// Whether past and present are declared with one length.
  bool isBuffer(const Match& match) const {
    const Value* past = match.find(pastKey);
    auto results = match.root().results();
    return past && results.size() > 1 && !results[1].isAbsent() &&
           results[1].type().dim(2).isKnownEqual(past->type().dim(2));
  }

  /// The buffer [B,G,C,D] with rows [B,G,S,D] from lengths[b] on.
  static Value& written(Value& buffer, Value& rows, Value& lengths, AttentionBuilder& build) {
    Value& first = build.node("Reshape", {lengths, ints({-1, 1, 1, 1})});
    Value& offsets =
        build.node("Reshape", {build.range(build.extent(rows, 2, true)), ints({1, 1, -1, 1})});
    Value& slots = build.node("Add", {first, offsets}, {}, "slots");
    Value& index = build.node("Expand", {slots, build.node("Shape", {rows})}, {}, "slots");
    return build.node("ScatterElements", {buffer, index, rows}, attrs({{"axis", 2}}), "present");
  }

  Value& pastLength(const Match& match, AttentionBuilder& build) const {
    Value* totals = &match[lengths];
    if (!totals->type().hasRank() || totals->type().rank() != 1)
      totals = &build.node("Reshape", {*totals, ints({-1})});
    Value& whole = build.node("Add", {build.castTo(*totals, ElementType::Int64), ints({1})});
    Value& before = build.node("Sub", {whole, build.extent(match[q], 1)});
    return build.node("Max", {before, ints({0})}, {}, "past_length");
  }

  /// Heads [B,H,S,D] divided by the root mean square of each row, times the weights, in f32.
  Value& normalized(const Match& match, Value& heads, const Var& weights,
                    AttentionBuilder& build) const {
    const Node& node = match.root();
    Value& rows = build.castTo(heads, ElementType::Float);
    Value& squares = build.node("Mul", {rows, rows});
    Value& mean = node.graph().opsetVersion() >= 18
                      ? build.node("ReduceMean", {squares, ints({-1})})
                      : build.node("ReduceMean", {squares}, attrs({{"axes", {-1}}}));
    TensorRef epsilon = floatScalar(ElementType::Float,
                                    static_cast<double>(node.floatAttr("qk_norm_epsilon", 1e-6f)));
    Value& root = build.node("Sqrt", {build.node("Add", {mean, epsilon})});
    Value& scaled = build.node(
        "Mul", {build.node("Div", {rows, root}), build.castTo(match[weights], ElementType::Float)});
    return build.castTo(scaled, heads.type().elementType());
  }

  /// position_ids [B,S]; in a prompt, where total_sequence_length is S, the first number + s.
  Value& givenPositions(const Match& match, AttentionBuilder& build) const {
    BuilderOperand count = build.extent(match[q], 1, true);
    Value& given = match[positions];
    Value& flat = build.node("Reshape", {given, ints({-1})});
    Value& first = build.slice(flat, 0, 0, 1);
    Value& counted = build.unsqueeze(build.node("Add", {first, build.range(count)}), 0);
    Value& longest =
        build.node("Reshape", {build.castTo(match[total], ElementType::Int64), ints({1})});
    Value& isPrompt = build.node("Equal", {longest, build.extent(match[q], 1)});
    return build.node("Where", {isPrompt, counted, given}, {}, "positions");
  }

  /// A smooth softmax has one more logit per head, with the value 0.
  Value* sinksOf(const Match& match, AttentionBuilder& build) const {
    if (Value* logits = match.find(sinks))
      return &build.castTo(*logits, ElementType::Float);
    if (!isOn(match.root(), "smooth_softmax"))
      return nullptr;
    llvm::SmallVector<int64_t, 8> zeros(static_cast<size_t>(match.root().intAttr("num_heads", 0)),
                                        0);
    return &build.castTo(build.value(ints(zeros)), ElementType::Float);
  }
};

} // namespace

void register_raise_group_query_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseGroupQueryAttention>());
}

} // namespace kvopt::rules
