// Raises ONNX's own Attention (since opset 23) to ai.kvopt::Sdpa.
//
//   before   o, kAll, vAll = Attention<…>(q, k, v, mask, past_k, past_v)
//            with operands [B,S,H*D] or [B,H,S,D]
//   after    kAll = Concat<2>(past_k, heads(k))   vAll = Concat<2>(past_v, heads(v))
//            o = rows(ai.kvopt.Sdpa<…>(heads(q), kAll, vAll, mask))
//
// Row i is at position p = i + offset. The offset is the past's length; without a past it is 0, and
// with lengths nonpad_kv_seqlen it is nonpad_kv_seqlen[b] - S, which may be negative. Windows
// (opset 25) keep the keys p - left_window_size ... p + right_window_size. Sdpa's frontier is
// bottom-right: the two agree if the number of new keys equals the number of rows; otherwise
// past_length is the offset. Windows that include later keys become part of the mask, as do offsets
// that past_length cannot express because it hides the keys after the rows, too.
#include "ir/attribute.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"
#include "passes/targets/support/key_visibility.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;
using namespace targets;

namespace {

constexpr llvm::StringLiteral onnxAttentionAttributes[] = {
    "scale",        "softcap",          "is_causal",         "qk_matmul_output_mode", "q_num_heads",
    "kv_num_heads", "left_window_size", "right_window_size", "softmax_precision"};

/// Keys that a row sees according to its position.
struct Frame {
  bool causal = false;
  int64_t window = 0; ///< number of keys up to its own; 0: all
  int64_t ahead = 0;  ///< number of later keys, if it is not causal; 0: all

  bool countsPositions() const { return causal || window != 0 || ahead != 0; }
};

Frame frameOf(const Node& node) {
  // Larger than any difference of positions, and small enough to add them.
  constexpr int64_t unbounded = INT64_MAX / 4;
  const int64_t left = node.intAttr("left_window_size", -1);
  const int64_t right = node.intAttr("right_window_size", -1);
  Frame frame;
  frame.causal = node.intAttr("is_causal", 0) != 0 || right == 0;
  frame.window = left >= 0 && left < unbounded ? left + 1 : 0;
  frame.ahead = !frame.causal && right > 0 && right < unbounded ? right : 0;
  return frame;
}

/// Facts from the node and its operands' types; extents may be unknown.
struct OnnxAttentionFacts {
  unsigned rank = 0;
  Dim heads, groups, rows, width, valueWidth;
  Dim newKeys, tokens; ///< without and with the past
  Frame frame;
  bool isInMask = false; ///< whether Sdpa's attributes cannot express the frame
};

class RaiseOnnxAttention final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"}, pastKey{"past_key"}, pastValue{"past_value"},
      lengths{"nonpad_kv_seqlen"};
  Payload<OnnxAttentionFacts> read;

public:
  llvm::StringRef name() const override { return "raise-onnx-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    return op("Attention",
              {q, k, v, maybe(mask), maybe(pastKey), maybe(pastValue), maybe(lengths)});
  }

  void constraints(Constraints& c) const override {
    c.handles(onnxAttentionAttributes, "only attributes that Sdpa can express");
    c.check([](const Match& m, Refusal& r) { return checkPrecision(m.root(), r); });
    c.require(
        "the scores are not read",
        [](const Match& match) {
          auto results = match.root().results();
          return results.size() < 4 || results[3].isAbsent() || results[3].isUnused();
        },
        ReasonCode::ValueEscapes);
    c.plan(read, [this](const Match& m, Refusal& r) { return readLayout(m, r); });
    c.require("a past of both keys and values, or none, and none with nonpad_kv_seqlen",
              [this](const Match& match) {
                bool past = match.find(pastKey);
                return past == (match.find(pastValue) != nullptr) && !(past && match.find(lengths));
              });
    c.require(
        "the scale is written, or the head width is a constant",
        [this](const Match& match) {
          return match.root().attribute("scale") || match[read].width.value().value_or(0) > 0;
        },
        ReasonCode::ScaleNotConstant);
    c.require(
        "the mask has the query's element type or is boolean",
        [this](const Match& match) {
          const Value* present = match.find(mask);
          return !present || present->type().elementType() == ElementType::Bool ||
                 present->type().elementType() == match[q].type().elementType();
        },
        ReasonCode::DtypeMix);
    c.check([this](const Match& m, Refusal& r) { return checkMask(m, r); });
    c.require(
        "window sizes of -1 or more",
        [](const Match& match) {
          return match.root().intAttr("left_window_size", -1) >= -1 &&
                 match.root().intAttr("right_window_size", -1) >= -1;
        },
        ReasonCode::WindowNotRepresentable);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& node = match.root();
    const OnnxAttentionFacts& facts = match[read];
    AttentionBuilder build(rewriter);
    auto heads = [&](const Var& var, const Dim& count, const Dim& width) {
      Value& value = match[var];
      return facts.rank == 4 ? &value
                             : &build.splitHeads(value, *count.value(), width.value().value_or(0));
    };
    AttentionBuilder::AttentionParts parts;
    parts.query = heads(q, facts.heads, facts.width);
    parts.key = heads(k, facts.groups, facts.width);
    parts.value = heads(v, facts.groups, facts.valueWidth);
    Value* fresh[] = {parts.key, parts.value};
    if (Value* past = match.find(pastKey)) {
      parts.key = &build.concat(*past, *parts.key, 2);
      parts.value = &build.concat(match[pastValue], *parts.value, 2);
    }
    if (Value* present = match.find(mask))
      parts.mask = present->type().dim(-1).isKnownEqual(facts.tokens)
                       ? present
                       : &build.paddedMask(*present, build.extent(*parts.key, 2));
    parts.scale = node.attribute("scale") ? static_cast<double>(node.floatAttr("scale", 1.0f))
                                          : defaultScale(*facts.width.value());
    parts.softcap = node.floatAttr("softcap", 0.0f);
    parts.pastLength = pastLength(match, facts, *parts.query, build);
    if (facts.isInMask) {
      parts.mask = &framedMask(parts, facts.frame, match.find(pastKey), build);
    } else {
      parts.causal = facts.frame.causal;
      parts.window = facts.frame.window;
    }
    Value* output = &build.sdpa(parts, match.nodes());
    if (facts.rank == 3)
      output = &build.mergeHeads(*output);
    return build.replace(node, *output, {match.find(pastKey), fresh[0], parts.key},
                         {match.find(pastValue), fresh[1], parts.value});
  }

private:
  bool isInMask(const Match& match, const OnnxAttentionFacts& facts) const {
    const Frame& frame = facts.frame;
    if (!frame.countsPositions() || frame.ahead != 0)
      return frame.ahead != 0;
    if (match.find(lengths) || facts.rows.isKnownEqual(facts.newKeys))
      return false;
    return !(frame.causal && facts.rows.isKnownLessEqual(facts.newKeys));
  }

  /// The mask of `parts`, which may be null, with keys outside the frame hidden.
  static Value& framedMask(const AttentionBuilder::AttentionParts& parts, const Frame& frame,
                           Value* past, AttentionBuilder& build) {
    KeyVisibility hidden;
    hidden.hidesLaterKeys = frame.causal || frame.ahead != 0;
    hidden.ahead = frame.ahead;
    hidden.window = frame.window;
    hidden.firstPosition = parts.pastLength ? parts.pastLength
                           : past           ? &build.value(build.extent(*past, 2))
                                            : &build.value(ints({0}));
    Value& visible = *visibilityMask(hidden, build.extent(*parts.query, 2, true),
                                     build.extent(*parts.key, 2, true), build);
    return withHiddenKeys(parts.mask, visible, build);
  }

  OnnxAttentionFacts factsOf(const Match& match) const {
    const Node& node = match.root();
    const TensorType& query = match[q].type();
    const TensorType& key = match[k].type();
    const TensorType& value = match[v].type();
    OnnxAttentionFacts facts;
    facts.rank = query.hasRank() ? query.rank() : 0;
    if (facts.rank == 4) {
      facts.heads = query.dim(1);
      facts.groups = key.dim(1);
      facts.rows = query.dim(2);
      facts.newKeys = key.dim(2);
      facts.width = query.dim(3).value() ? query.dim(3) : key.dim(3);
      facts.valueWidth = value.dim(3);
    } else {
      facts.heads = Dim::fixed(node.intAttr("q_num_heads", 0));
      facts.groups = Dim::fixed(node.intAttr("kv_num_heads", 0));
      facts.rows = query.dim(1);
      facts.newKeys = key.dim(1);
      facts.width = query.dim(2).dividedBy(facts.heads).value_or(Dim::unknown());
      facts.valueWidth = value.dim(2).dividedBy(facts.groups).value_or(Dim::unknown());
    }
    facts.tokens = facts.newKeys;
    if (const Value* past = match.find(pastKey))
      facts.tokens = past->type().dim(2) + facts.newKeys;
    facts.frame = frameOf(node);
    facts.isInMask = isInMask(match, facts);
    return facts;
  }

  /// Sdpa computes in float, which is at least as precise as the narrower types require.
  static bool checkPrecision(const Node& node, Refusal& refusal) {
    auto precision = static_cast<ElementType>(
        node.intAttr("softmax_precision", static_cast<int64_t>(ElementType::Float)));
    if (precision == ElementType::Float || precision == ElementType::Float16 ||
        precision == ElementType::BFloat16)
      return true;
    return refusal.because([&] {
      return MatchFailure{
          ReasonCode::PatternMismatch, node.name().str(), "only attributes that Sdpa can express",
          formatted("a softmax in element type {}", static_cast<int64_t>(precision)), ""};
    });
  }

  std::optional<OnnxAttentionFacts> readLayout(const Match& match, Refusal& refusal) const {
    const Node& node = match.root();
    auto refuse = [&](ReasonCode code, const char* expected, std::string found) {
      refusal.because([&] {
        return MatchFailure{code, node.name().str(), expected, std::move(found), ""};
      });
      return std::nullopt;
    };
    for (const Var* var : {&q, &k, &v}) {
      const TensorType& type = match[*var].type();
      if (!type.hasRank())
        return refuse(ReasonCode::DynamicRank, "a known rank", match[*var].name().str());
      if ((type.rank() != 3 && type.rank() != 4) || type.rank() != match[q].type().rank())
        return refuse(ReasonCode::LayoutUnsupported, "query, key and value of rank 3 or 4",
                      type.str());
    }
    OnnxAttentionFacts facts = factsOf(match);
    auto heads = facts.heads.value();
    auto groups = facts.groups.value();
    if (facts.rank == 3 && (*heads <= 0 || *groups <= 0))
      return refuse(ReasonCode::HeadCountUnproven, "q_num_heads and kv_num_heads",
                    formatted("{} and {}", *heads, *groups));
    if (heads && groups && (*groups == 0 || *heads % *groups != 0))
      return refuse(ReasonCode::HeadCountUnproven,
                    "a number of heads that is a multiple of the keys' heads",
                    formatted("{} and {}", *heads, *groups));
    return facts;
  }

  /// A mask with fewer columns than keys is padded with "masked", even one with a single column.
  bool checkMask(const Match& match, Refusal& refusal) const {
    const Value* present = match.find(mask);
    if (!present)
      return true;
    const TensorType& type = present->type();
    if (type.hasRank() && type.rank() >= 1 && type.rank() <= 4)
      return true;
    return refusal.because([&] {
      return MatchFailure{ReasonCode::DynamicRank, present->name().str(),
                          "a mask of one to four axes", type.str(), ""};
    });
  }

  /// p if `total` is p + S and p is a list; null otherwise.
  static Value* withoutRows(Value& total, const Dim& rows) {
    const Node* sum = total.producer();
    if (!sum || !sum->is("Add"))
      return nullptr;
    for (unsigned i : {0u, 1u}) {
      Value* part = sum->operand(i);
      auto added = sum->operand(1 - i)->knownIntegers();
      if (added && added->size() == 1 && added->front().isKnownEqual(rows) &&
          part->type().elementType() == ElementType::Int64 && part->type().hasRank() &&
          part->type().rank() == 1)
        return part;
    }
    return nullptr;
  }

  /// Operand with the positions of the rows, or null if Sdpa assumes the same by default.
  Value* pastLength(const Match& match, const OnnxAttentionFacts& facts, Value& query,
                    AttentionBuilder& build) const {
    if (Value* total = match.find(lengths)) {
      if (Value* before = withoutRows(*total, facts.rows))
        return before;
      return &build.node("Sub", {*total, build.extent(query, 2)}, {}, "past_length");
    }
    if (!facts.frame.causal || facts.isInMask || facts.rows.isKnownEqual(facts.newKeys))
      return nullptr;
    if (Value* past = match.find(pastKey))
      return &build.value(build.extent(*past, 2));
    return &build.value(ints({0}));
  }
};

} // namespace

void register_raise_onnx_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseOnnxAttention>());
}

} // namespace kvopt::rules
