// Lengths computed from positions.
#include "passes/targets/support/read_rows.h"

namespace kvopt::targets {
using namespace analysis;
using namespace builders;
using namespace ir;

namespace {

/// Number of earlier rows, and whether it is valid.
struct FedLength {
  Value* count = nullptr;   ///< int64 [1]; for a length also [B]
  Value* isValid = nullptr; ///< bool scalar; null: always
};

/// The first of consecutive positions, [S] or [B,S]. All batch rows must have the same first
/// position, because the mask of one might depend on the positions of another.
FedLength firstOf(Value& positions, const BuilderOperand& rows, AttentionBuilder& build) {
  Value& given = build.castTo(positions, ElementType::Int64);
  const bool isByBatchRow = positions.type().rank() == 2;
  Value& batchRow = isByBatchRow ? build.slice(given, 0, 0, 1) : given;
  Value& first = build.slice(batchRow, isByBatchRow ? 1 : 0, 0, 1);
  Value& counted = build.node("Add", {first, build.range(rows)});
  Value& matches =
      build.castTo(build.node("Equal", {given, counted}, {}, "counts_on"), ElementType::Int64);
  Value& all = build.node("ReduceMin", {matches}, attrs({{"keepdims", 0}}), "all_count_on");
  return {&build.node("Reshape", {first, ints({-1})}, {}, "first_position"),
          &build.castTo(all, ElementType::Bool)};
}

/// An input with a length, common to all batch rows or one per row, that makes the mask causal.
Value* findLength(const AttentionSite& site) {
  MaskAnalysis analysis;
  const Dim& batch = site.node->operand(0)->type().dim(0);
  for (const auto& input : site.node->graph().inputs()) {
    const TensorType& type = input->type();
    if (type.elementType() != ElementType::Int64 || !type.hasRank() || type.rank() != 1 ||
        (type.dim(0).value() != 1 && !type.dim(0).isKnownEqual(batch)))
      continue;
    const MaskFacts facts = analysis.facts(maskQuestion(*site.node, *input));
    if (facts.causal == Proof::Proved)
      return input.get();
  }
  return nullptr;
}

/// Source of the length: positions, or a length.
struct LengthSource {
  Value* positions = nullptr;
  Value* length = nullptr;
};

LengthSource sourceOf(const AttentionSite& site) {
  const Node& sdpa = *site.node;
  if (!site.isOverwritten() || !site.mask || !sdpa.operand(3) || sdpa.operand(5) ||
      sdpa.intAttr("causal", 0) != 0 || sdpa.intAttr("window", 0) != 0 || sdpa.graph().parentNode())
    return {};
  // A row sees its own key unless it is padding.
  if (!site.mask->isExact && !site.mask->padding.empty())
    return {};
  if (const auto& counting = site.mask->causalIf; counting && counting->holdsForAnyFirst)
    return {const_cast<Value*>(counting->positions), nullptr};
  return {nullptr, findLength(site)};
}

} // namespace

bool provesEarlierRows(const AttentionSite& site) {
  const LengthSource source = sourceOf(site);
  return source.positions || source.length;
}

Value* provedEarlierRows(const AttentionSite& site, AttentionBuilder& build) {
  const LengthSource source = sourceOf(site);
  if (!source.positions && !source.length)
    return nullptr;
  Node& sdpa = *site.node;
  FedLength earlier{source.length, nullptr};
  if (source.positions)
    earlier = firstOf(*source.positions, build.extent(*sdpa.operand(0), 2, true), build);
  const BuilderOperand rows = build.extent(*sdpa.operand(0), 2);
  Value& most = build.node("Sub", {build.extent(*sdpa.operand(1), 2), rows}, {}, "most_earlier");
  Value* isValid = &build.node("And", {build.node("GreaterOrEqual", {*earlier.count, ints({0})}),
                                       build.node("LessOrEqual", {*earlier.count, most})});
  if (earlier.isValid)
    isValid = &build.node("And", {*isValid, *earlier.isValid}, {}, "is_length");
  return &build.node("Where", {*isValid, *earlier.count, most}, {}, "earlier_rows");
}

} // namespace kvopt::targets
