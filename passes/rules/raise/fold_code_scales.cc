// Moves the scales of quantized caches from keys and values to the query and the result of
// attention.
//
//   before   K = DequantizeLinear(codes, ks)      V = DequantizeLinear(codes, vs)
//            o = ai.kvopt.Sdpa<scale>(q, K, V, …)
//   after    o = ai.kvopt.Sdpa<scale>(q * ks, Cast(codes), Cast(codes), …) * vs
//
// The codes are int8 rows that are appended to those of a cache. Scales are constants: one number,
// or one per head, per column, or per both. A single scale of the keys becomes a factor of `scale`.
// Cast(codes) * scales is treated like DequantizeLinear. Sums are multiplied instead of their
// terms:
//
//   sum_d q[d] (ks[d] k[j,d]) = sum_d (q[d] ks[d]) k[j,d]
#include "ir/movement.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/movement/axis_map.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/pattern/rule.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Keys or values that are computed from codes.
struct ScaledCodes {
  llvm::SmallVector<Value*, 4> moves; ///< movements to attention, last first
  Value* codes = nullptr;             ///< int8
  int64_t heads = 1;                  ///< heads with separate scales; 1: common to all
  int64_t columns = 1;                ///< columns with separate scales; 1: common to all
  std::vector<float> scales;          ///< [heads,columns]

  bool isOneNumber() const { return scales.size() == 1; }
  /// Scale of query head or output head `head` of `count`.
  float of(int64_t head, int64_t count, int64_t column) const {
    const int64_t row = heads == 1 ? 0 : head / (count / heads);
    return scales[static_cast<size_t>(row * columns + (columns == 1 ? 0 : column))];
  }
};

constexpr int64_t mostScales = int64_t{1} << 20;

std::optional<std::vector<float>> floatsOf(const Value* value) {
  const TensorData* data = value ? value->constant() : nullptr;
  if (!data || data->elementType() != ElementType::Float)
    return std::nullopt;
  auto numbers = floatValues(*data, mostScales);
  if (!numbers || !llvm::all_of(*numbers, [](double x) { return std::isfinite(x); }))
    return std::nullopt;
  return std::vector<float>(numbers->begin(), numbers->end());
}

/// Whether all zero points are 0, or there are none.
bool isSymmetric(const Node& dequantize) {
  const Value* zero = dequantize.operand(2);
  if (!zero)
    return true;
  const auto numbers =
      zero->constant() ? integerValues(*zero->constant(), mostScales) : std::nullopt;
  return numbers && llvm::all_of(*numbers, [](int64_t number) { return number == 0; });
}

/// Whether the rows belong to a cache with new rows.
bool areCached(const Value& codes) {
  const Value* value = &codes;
  while (const Node* node = value->producer()) {
    if (mayUpdateCache(*node))
      return true;
    const auto kind = movementKind(*node);
    if (!kind || !picksElements(*kind))
      return false;
    value = movedOperand(*node);
  }
  return false;
}

class FoldCodeScales final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"}, sinks{"sinks"}, pastLength{"past_length"};
  Payload<ScaledCodes> keys, values;

public:
  llvm::StringRef name() const override { return "fold-code-scales"; }
  RuleGroup group() const override { return RuleGroup::Strip; }

  P pattern() const override {
    return op("ai.kvopt::Sdpa", {q, k, v, maybe(mask), maybe(sinks), maybe(pastLength)});
  }

  void constraints(Constraints& c) const override {
    c.plan(keys, [this](const Match& m, Refusal& r) { return codesOf(m[k], r); });
    c.plan(values, [this](const Match& m, Refusal& r) { return codesOf(m[v], r); });
    c.require(
        "a query of float32 with a fixed number of heads",
        [this](const Match& match) {
          return match[q].type().elementType() == ElementType::Float &&
                 match[q].type().dim(1).value();
        },
        ReasonCode::DtypeMix);
    c.require(
        "heads that divide into those of the scales",
        [this](const Match& match) {
          const int64_t heads = *match[q].type().dim(1).value();
          return heads > 0 && heads % match[keys].heads == 0 && heads % match[values].heads == 0;
        },
        ReasonCode::HeadCountUnproven);
    c.require(
        "a factor of the scores that is finite",
        [this](const Match& match) {
          return !match[keys].isOneNumber() || std::isfinite(scoreScale(match));
        },
        ReasonCode::PatternMismatch);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    Value* query = &match[q];
    if (!match[keys].isOneNumber())
      query = &multiplied(*query, match[keys], query->type(), rewriter);
    llvm::SmallVector<Value*, 6> operands{query,
                                          &numbersOf(match[keys], rewriter),
                                          &numbersOf(match[values], rewriter),
                                          match.find(mask),
                                          match.find(sinks),
                                          match.find(pastLength)};
    while (!operands.back())
      operands.pop_back();
    Node& attention = rewriter.createLike(before, operands, "attention");
    attention.setMetadata(before.metadata());
    if (match[keys].isOneNumber())
      attention.setAttribute("scale", Attribute::ofFloat(scoreScale(match)));
    return rewriter.replace(before.result(),
                            multiplied(attention.result(), match[values], query->type(), rewriter));
  }

private:
  float scoreScale(const Match& match) const {
    return match.root().floatAttr("scale", 1.0f) * match[keys].scales.front();
  }

  /// nullopt, with a reason if they are computed from codes in another way.
  std::optional<ScaledCodes> codesOf(Value& operand, Refusal& refusal) const {
    ScaledCodes found;
    std::optional<AxisMap> map = AxisMap::ofAttentionOperand(operand.type());
    Value* value = &operand;
    const auto refuse = [&](ReasonCode code, const char* expected, const std::string& what) {
      refusal.because([&] { return MatchFailure{code, value->name().str(), expected, what, ""}; });
      return std::nullopt;
    };
    while (Node* node = value->producer()) {
      const auto kind = movementKind(*node);
      if (!kind || !picksElements(*kind))
        break;
      found.moves.push_back(value);
      map = map ? mapBefore(*value, *map) : std::nullopt;
      value = movedOperand(*node);
    }
    Node* scaled = value->producer();
    const Value* scales = scaled ? scalesOf(*scaled, found) : nullptr;
    if (!scales)
      return refuse(ReasonCode::PatternMismatch, "keys and values computed from codes",
                    operand.type().str());
    if (found.codes->type().elementType() != ElementType::Int8 ||
        (scaled->is("DequantizeLinear") && !isSymmetric(*scaled)))
      return refuse(ReasonCode::DtypeMix, "codes of int8 around zero", found.codes->type().str());
    if (!areCached(*found.codes))
      return refuse(ReasonCode::PatternMismatch, "codes of a cache", found.codes->type().str());
    auto numbers = floatsOf(scales);
    if (!numbers || scaled->intAttr("block_size", 0) != 0)
      return refuse(ReasonCode::ScaleNotConstant, "scales that are constants of float32",
                    scales->type().str());
    found.scales = std::move(*numbers);
    if (!placeScales(*scaled, *scales, map, found) ||
        (found.columns != 1 && operand.type().dim(3).value() != found.columns))
      return refuse(ReasonCode::LayoutUnsupported,
                    "one scale, or one for each head or column of the cache", scales->type().str());
    return found;
  }

  /// Scales of a node that dequantizes codes, and the codes; null for other nodes.
  static const Value* scalesOf(Node& node, ScaledCodes& found) {
    if (node.is("DequantizeLinear")) {
      found.codes = node.operand(0);
      return node.operand(1);
    }
    if (!node.is("Mul") || !node.result().type().hasRank())
      return nullptr;
    for (unsigned i : {0u, 1u}) {
      const Node* cast = node.operand(i) ? node.operand(i)->producer() : nullptr;
      const Value* scales = node.operand(1 - i);
      if (!cast || !cast->is("Cast") || !scales || !scales->constant() ||
          !isInteger(cast->operand(0)->type().elementType()) ||
          scales->type().rank() > node.result().type().rank())
        continue;
      found.codes = cast->operand(0);
      return scales;
    }
    return nullptr;
  }

  static bool isInteger(ElementType element) {
    return element == ElementType::Int8 || element == ElementType::UInt8;
  }

  /// Sets the numbers of heads and columns of the scales; false if the scales have other axes.
  static bool placeScales(const Node& scaled, const Value& scales,
                          const std::optional<AxisMap>& map, ScaledCodes& found) {
    if (found.isOneNumber())
      return true;
    const TensorType& rows = scaled.result().type();
    if (!map || !rows.hasRank() || !scales.type().hasRank() || map->repeats().value() != 1)
      return false;
    const CacheLayout layout = map->layout();
    const unsigned rank = rows.rank();
    const std::optional<unsigned> head = layout.axisOf('H'), column = layout.axisOf('D');
    // Axis of the rows that corresponds to axis `i` of the scales.
    int64_t shift = static_cast<int64_t>(rank) - static_cast<int64_t>(scales.type().rank());
    if (scaled.is("DequantizeLinear")) {
      const int64_t axis = scaled.intAttr("axis", 1);
      if (scales.type().rank() != 1)
        return false;
      shift = axis < 0 ? axis + rank : axis;
    }
    for (unsigned i = 0; i < scales.type().rank(); ++i) {
      const std::optional<int64_t> extent = scales.type().dim(i).value();
      const int64_t axis = shift + i;
      if (!extent || axis < 0 || axis >= rank)
        return false;
      if (*extent == 1)
        continue;
      if (head == static_cast<unsigned>(axis))
        found.heads = *extent;
      else if (column == static_cast<unsigned>(axis))
        found.columns = *extent;
      else
        return false;
    }
    // The numbers are in the order of the axes.
    const bool isOrdered = found.heads == 1 || found.columns == 1 || *head < *column;
    return isOrdered && static_cast<size_t>(found.heads * found.columns) == found.scales.size();
  }

  /// The codes as numbers, moved to attention.
  static Value& numbersOf(const ScaledCodes& codes, Rewriter& rewriter) {
    AttributeList toFloat = attrs({{"to", static_cast<int64_t>(ElementType::Float)}});
    Value* value = &rewriter.create("Cast", {codes.codes}, toFloat, 1, "codes").result();
    for (Value* moved : llvm::reverse(codes.moves)) {
      Node& move = *moved->producer();
      value = &rewriter.createLike(move, operandsMoving(move, *value), "codes")
                   .result(moved->resultIndex());
    }
    return *value;
  }

  /// `heads` [B,H,S,W] times the scales of its heads and columns.
  static Value& multiplied(Value& heads, const ScaledCodes& codes, const TensorType& query,
                           Rewriter& rewriter) {
    const int64_t count = codes.heads == 1 ? 1 : *query.dim(1).value();
    std::vector<float> factors;
    for (int64_t head = 0; head < count; ++head)
      for (int64_t column = 0; column < codes.columns; ++column)
        factors.push_back(codes.of(head, count, column));
    std::vector<std::byte> bytes(factors.size() * sizeof(float));
    std::memcpy(bytes.data(), factors.data(), bytes.size());
    Value& scales = rewriter.constant(
        "code_scales", llvm::cantFail(makeTensor(ElementType::Float, {1, count, 1, codes.columns},
                                                 std::move(bytes))));
    return rewriter.create("Mul", {&heads, &scales}, {}, 1, "scaled").result();
  }
};

} // namespace

void register_fold_code_scales(RuleRegistry& registry) {
  registry.add(std::make_unique<FoldCodeScales>());
}

} // namespace kvopt::rules
