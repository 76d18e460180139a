// Conversions between heads and tokens, omitted where they cancel each other.
#include "passes/targets/support/token_rows.h"

namespace kvopt::targets {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

bool isHeadTranspose(const Node& node) {
  auto order = node.intsAttr("perm");
  return node.op() == "Transpose" && order && *order == llvm::ArrayRef<int64_t>{0, 2, 1, 3};
}

/// Whether `tokens` is provably `rows` [B,S,H,D] as [B,S,H*D].
bool isMerged(const Value& tokens, const Value& rows) {
  const TensorType& merged = tokens.type();
  const TensorType& split = rows.type();
  return merged.hasRank() && merged.rank() == 3 && split.hasRank() && split.rank() == 4 &&
         merged.dim(0).isKnownEqual(split.dim(0)) && merged.dim(1).isKnownEqual(split.dim(1)) &&
         merged.dim(2).isKnownEqual(split.dim(2) * split.dim(3));
}

} // namespace

Value& tokenRows(Value& heads, AttentionBuilder& build) {
  Node* split = heads.producer();
  if (!split || !isHeadTranspose(*split))
    return build.mergeHeads(heads);
  return mergedRows(*split->operand(0), build);
}

Value& mergedRows(Value& rows, AttentionBuilder& build) {
  Node* reshape = rows.producer();
  if (reshape && reshape->op() == "Reshape" && isMerged(*reshape->operand(0), rows))
    return *reshape->operand(0);
  auto count = rows.type().dim(2).value();
  auto width = rows.type().dim(3).value();
  return build.node("Reshape", {rows, ints({0, 0, *count * *width})}, {}, "merged_heads");
}

void handOutTokenRows(Node& fused, Value& rows, Rewriter& rewriter) {
  Value& heads = fused.result(0);
  AttentionBuilder build(rewriter);
  const TensorType& type = heads.type();
  llvm::SmallVector<Rewriter::Replacement, 4> replacements;
  bool others = heads.isGraphOutput();
  for (const Use& use : heads.uses()) {
    Node& reader = use.user();
    if (&reader.graph() != &fused.graph() || !isHeadTranspose(reader)) {
      others = true;
      continue;
    }
    Value& perToken = reader.result();
    bool otherForms = perToken.isGraphOutput();
    for (const Use& next : perToken.uses()) {
      Node& merging = next.user();
      if (&merging.graph() == &fused.graph() && merging.is("Reshape") && next.operandIndex() == 0 &&
          isMerged(merging.result(), perToken))
        replacements.push_back({&merging.result(), &rows});
      else
        otherForms = true;
    }
    if (otherForms)
      replacements.push_back(
          {&perToken, &build.node("Reshape", {rows, ints({0, 0, *type.dim(1).value(),
                                                          *type.dim(3).value()})})});
  }
  if (others)
    replacements.push_back(
        {&heads, &build.splitHeads(rows, *type.dim(1).value(), *type.dim(3).value())});
  // The new values depend only on the attention's own operands.
  std::optional<MatchFailure> failure = rewriter.replace(replacements);
  assert(!failure && "readers of attention are not what it reads");
  (void)failure;
}

} // namespace kvopt::targets
