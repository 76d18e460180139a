// Layouts, masks and attributes of ONNX's Attention.
#include "passes/targets/onnx/onnx_attention.h"

#include "passes/pattern/handled.h"
#include "passes/targets/support/cache_rows.h"

#include <cmath>
#include <limits>

namespace kvopt::targets {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// A mask whose elements are 0 or one other number: Where(condition, 0, hidden), or the reverse.
struct FilledMask {
  Value* condition = nullptr;
  bool hidesWhereTrue = false;
  double hidden = 0;
};

/// Only numbers that absorb every score, so that rows that see no key average over all keys.
constexpr double vanishing = -1e31;

std::optional<FilledMask> readFill(const Value& mask) {
  const Node* where = mask.producer();
  if (!where || !where->is("Where"))
    return std::nullopt;
  std::optional<double> values[2];
  for (unsigned i : {0u, 1u})
    if (const TensorData* data = where->operand(i + 1)->constant())
      values[i] = scalarValue(*data);
  for (unsigned i : {0u, 1u})
    if (values[i] == 0.0 && values[1 - i] && *values[1 - i] <= vanishing)
      return FilledMask{where->operand(0), i == 1, *values[1 - i]};
  return std::nullopt;
}

/// The lowest finite number of a type. Engines use it for the keys that they hide themselves. They
/// return zeros for rows whose scores are all at most this number, as if every key were hidden by
/// -inf.
double lowestNumber(ElementType element) {
  switch (element) {
  case ElementType::Float16:
    return -65504.0;
  case ElementType::BFloat16:
    return -0x1.fep127;
  default:
    return static_cast<double>(std::numeric_limits<float>::lowest());
  }
}

/// A mask with more bits than the query needs a conversion before it can be the node's operand.
bool isTooWide(const Value& mask, const Value& query) {
  return mask.type().elementType() == ElementType::Float &&
         query.type().elementType() != ElementType::Float;
}

class Writer {
public:
  Writer(const OnnxAttention& given, Rewriter& edits)
      : attention(given), rewriter(edits), build(edits) {}

  OnnxAttentionNode write() {
    llvm::SmallVector<Value*, 7> operands{
        &query(),          attention.key,       attention.value,       maskOperand(),
        attention.pastKey, attention.pastValue, attention.totalLengths};
    while (!operands.back())
      operands.pop_back();
    const unsigned results = attention.pastKey ? 3 : 1;
    Node& node = rewriter.create("Attention", operands, attributes(), results, "attention");
    return {&node, &output(node)};
  }

private:
  const Value& rows() const { return *attention.query; }
  BuilderOperand rowCount(bool scalar = false) { return build.extent(*attention.query, 2, scalar); }
  unsigned keyAxis() const { return attention.heads == 0 ? 2 : 1; }
  /// Number of keys that the node sees, the past's included.
  Dim keys() const {
    Dim count = attention.key->type().dim(keyAxis());
    return attention.pastKey ? attention.pastKey->type().dim(2) + count : count;
  }
  BuilderOperand keyTotal(bool scalar = false) {
    BuilderOperand fresh = build.extent(*attention.key, keyAxis(), scalar);
    if (!attention.pastKey)
      return fresh;
    if (auto known = keys().value())
      return scalar ? int64Scalar(*known) : ints({*known});
    return build.node("Add", {build.extent(*attention.pastKey, 2, scalar), fresh}, {}, "keys");
  }

  /// A factor that is not positive has no square root, which engines compute.
  bool isScaledBefore() const { return !(attention.scale > 0); }

  Value& query() {
    Value* value = attention.query;
    const ElementType element = value->type().elementType();
    if (seesAKey)
      value = &build.node("Where", {*seesAKey, *value, floatScalar(element, 0)}, {}, "query");
    if (isScaledBefore()) {
      value = &build.node("Mul", {*value, floatScalar(element, attention.scale)}, {}, "scaled");
    }
    if (attention.heads == 0)
      return *value;
    Value& tokens = transposed(*value, {0, 2, 1, 3}, rewriter);
    const auto heads = attention.query->type().dim(1).value();
    const auto width = attention.query->type().dim(3).value();
    const int64_t merged = heads && width ? *heads * *width : -1;
    return build.node("Reshape", {tokens, ints({0, 0, merged})}, {}, "merged_heads");
  }

  Value& output(Node& node) {
    if (attention.heads == 0)
      return node.result();
    return build.splitHeads(node.result(), *attention.query->type().dim(1).value(), 0);
  }

  AttributeList attributes() const {
    AttributeList written = attrs({{"scale", isScaledBefore() ? 1.0 : attention.scale}});
    if (attention.causal)
      written.add("is_causal", 1);
    if (attention.softcap != 0)
      written.add("softcap", attention.softcap);
    if (attention.heads != 0) {
      written.add("q_num_heads", *attention.query->type().dim(1).value());
      written.add("kv_num_heads", attention.heads);
    }
    if (rows().type().elementType() != ElementType::Float)
      written.add("softmax_precision", static_cast<int64_t>(ElementType::Float));
    return written;
  }

  Value* maskOperand() {
    Value* mask = attention.mask ? &completeMask() : nullptr;
    Value* visible = visibilityMask(attention.hidden, rowCount(true), keyTotal(true), build);
    if (attention.visible)
      visible = &bothHold(visible, *attention.visible, build);
    return visible ? &withHiddenKeys(mask, *visible, build) : mask;
  }

  /// The mask with four axes, one row per query row and one column per key: engines differ in the
  /// other shapes that they accept.
  Value& completeMask() {
    Value* mask = attention.mask;
    if (isTooWide(*mask, rows()))
      mask = &booleanMask(*readFill(*mask));
    else if (mask->type().elementType() != ElementType::Bool)
      mask = &build.castTo(raisedMask(*mask), rows().type().elementType());
    while (mask->type().rank() < 4)
      mask = &build.unsqueeze(*mask, 0);
    if (!mask->type().dim(2).isKnownEqual(rows().type().dim(2)) ||
        !mask->type().dim(3).isKnownEqual(attention.maskColumns)) {
      Value& heads = build.value(ints({1, 1}));
      Value& size = build.concat(heads, build.value(rowCount()), 0);
      Value& shape = build.concat(size, build.value(attention.maskColumnCount), 0);
      mask = &build.node("Expand", {*mask, shape}, {}, "mask");
    }
    if (attention.maskColumns.isKnownEqual(keys()))
      return *mask;
    return build.paddedMask(*mask, keyTotal());
  }

  /// Raises the mask m above the lowest number of its type, for rows that see no key: those average
  /// their keys as m says. With h, half the lowest number, max(m, m / 2 + h / 2) is m down to h and
  /// rises more slowly below, up to 3/2 h: the order of numbers is preserved, -inf is preserved,
  /// and both absorb scores.
  Value& raisedMask(Value& mask) {
    const ElementType element = mask.type().elementType();
    // The lowest number of a narrower type is an ordinary number of the query's type.
    if (attention.everyRowSeesAKey || element != rows().type().elementType())
      return mask;
    const double half = lowestNumber(element) / 2;
    if (std::optional<FilledMask> fill = readFill(mask)) {
      if (std::isinf(fill->hidden) || fill->hidden >= half)
        return mask;
      const BuilderOperand seen = floatScalar(element, 0);
      const BuilderOperand hidden = floatScalar(element, half);
      return build.node("Where",
                        {*fill->condition, fill->hidesWhereTrue ? hidden : seen,
                         fill->hidesWhereTrue ? seen : hidden},
                        {}, "mask");
    }
    Value& flat = build.node("Mul", {mask, floatScalar(element, 0.5)});
    Value& slow = build.node("Add", {flat, floatScalar(element, half / 2)});
    return build.node("Max", {mask, slow}, {}, "mask");
  }

  /// A filled mask as a boolean one. A row that hides every key with a finite number averages over
  /// all of them: it sees all keys, and its query becomes 0.
  Value& booleanMask(const FilledMask& fill) {
    Value* visible = fill.hidesWhereTrue ? &build.node("Not", {*fill.condition}) : fill.condition;
    if (std::isinf(fill.hidden))
      return *visible;
    Value& counted = build.castTo(*visible, ElementType::Int32);
    Value& most = build.node("ReduceMax", {counted, ints({-1})}, {}, "sees_a_key");
    seesAKey = &build.castTo(most, ElementType::Bool);
    return build.node("Or", {*visible, build.node("Not", {*seesAKey})}, {}, "mask");
  }

  const OnnxAttention& attention;
  Rewriter& rewriter;
  AttentionBuilder build;
  /// bool, with the query's four axes: rows whose query is kept; null: all rows.
  Value* seesAKey = nullptr;
};

} // namespace

OnnxAttentionNode writeOnnxAttention(const OnnxAttention& attention, Rewriter& rewriter) {
  assert(attention.query && attention.key && attention.value);
  assert(!(attention.pastKey && attention.totalLengths));
  return Writer(attention, rewriter).write();
}

std::optional<MatchFailure> onnxAttentionObstacle(const Node& sdpa) {
  auto refuse = [&](ReasonCode code, const char* expected, std::string found, const char* hint) {
    return MatchFailure{code, sdpa.name().str(), expected, std::move(found), hint};
  };
  const ElementType element = sdpa.operand(0)->type().elementType();
  if (!isFloatingPoint(element) || element == ElementType::Double)
    return refuse(ReasonCode::DtypeMix, "a query of 16 or 32 bits", onnxName(element).str(), "");
  for (unsigned operand : {1u, 2u})
    if (sdpa.operand(operand)->type().elementType() != element)
      return refuse(ReasonCode::DtypeMix, "keys and values of the query's element type",
                    onnxName(sdpa.operand(operand)->type().elementType()).str(),
                    "ai.kvopt widens what it reads: --to kvopt");
  static constexpr llvm::StringLiteral attributes[] = {"scale", "causal", "window", "softcap",
                                                       "mask_boolean"};
  static constexpr llvm::StringLiteral operands[] = {"query", "key", "value", "mask",
                                                     "past_length"};
  if (std::optional<MatchFailure> failure = unhandled(sdpa, {attributes, operands})) {
    if (failure->code == ReasonCode::SinkUnsupported)
      return refuse(ReasonCode::SinkUnsupported, "attention without sinks",
                    "ONNX's Attention has no operand for them",
                    "--to ort-gqa and --to kvopt support sinks");
    return failure;
  }
  const Value* mask = sdpa.operand(3);
  if (!mask)
    return std::nullopt;
  if (!mask->type().hasRank() || mask->type().rank() == 0)
    return refuse(ReasonCode::DynamicRank, "a mask of one to four axes", mask->type().str(), "");
  const ElementType added = mask->type().elementType();
  const bool isWidened = element == ElementType::Float &&
                         (added == ElementType::Float16 || added == ElementType::BFloat16);
  const bool isFilled = isTooWide(*mask, *sdpa.operand(0)) && readFill(*mask);
  if (added != ElementType::Bool && added != element && !isWidened && !isFilled)
    return refuse(ReasonCode::DtypeMix, "a mask of the query's element type, or boolean",
                  onnxName(added).str(), "--to kvopt adds wider masks");
  return std::nullopt;
}

Value& lengthsPerRow(Value& lengths, Value& like, AttentionBuilder& build) {
  const Dim& batch = like.type().dim(0);
  if (lengths.type().hasRank() && lengths.type().rank() == 1 &&
      lengths.type().dim(0).isKnownEqual(batch))
    return lengths;
  return build.node("Expand", {lengths, build.extent(like, 0)}, {}, "lengths");
}

} // namespace kvopt::targets
