// Joins a sum and its root mean square norm.
//
//   before   s = Add(a, b)
//            y = SimplifiedLayerNormalization<epsilon>(s, w)      or RMSNormalization
//   after    y, , , s = com.microsoft.SkipSimplifiedLayerNormalization<epsilon>(a, b, w)
//
// The operands have the same shape [B,S,N].
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class FuseSkipRmsNorm final : public Rule {
  Var a{"a"}, b{"b"}, sum{"sum"}, weight{"weight"};

public:
  llvm::StringRef name() const override { return "fuse-skip-rms-norm"; }
  RuleGroup group() const override { return RuleGroup::Fuse; }

  P pattern() const override {
    P added = escaping(bind(sum, op("Add", {a, b})));
    return oneOf("norm", {{"contrib", op("SimplifiedLayerNormalization", {added, weight})},
                          {"onnx", op("RMSNormalization", {added, weight})}});
  }

  void constraints(Constraints& c) const override {
    c.require("float32 rows [B,S,N] of one shape, and a weight for each element of a row",
              [this](const Match& match) { return hasTypes(match); });
    c.require("a norm of the last axis, computed in float32", [](const Match& match) {
      const int64_t axis = match.root().intAttr("axis", -1);
      return (axis == -1 || axis == 2) && match.root().intAttr("stash_type", 1) == 1 &&
             llvm::all_of(match.root().results().drop_front(),
                          [](const Value& result) { return result.isUnused(); });
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Value& added = match[sum];
    const llvm::SmallVector<Value*, 3> operands{&match[a], &match[b], &match[weight]};
    const bool isAlone = added.hasOneUse();
    Node& both = rewriter.create("com.microsoft::SkipSimplifiedLayerNormalization", operands,
                                 attrs({{"epsilon", match.root().floatAttr("epsilon", 1e-5f)}}),
                                 isAlone ? 1 : 4, "normalized");
    if (isAlone)
      return rewriter.replace(match.root().result(), both.result(0));
    // The mean and the deviation are not computed.
    for (unsigned omitted : {1u, 2u})
      rewriter.graph().rename(both.result(omitted), "");
    return rewriter.replace({{&match.root().result(), &both.result(0)}, {&added, &both.result(3)}});
  }

private:
  bool hasTypes(const Match& match) const {
    const TensorType& rows = match[a].type();
    const TensorType& other = match[b].type();
    const TensorType& scale = match[weight].type();
    return rows.elementType() == ElementType::Float && other.elementType() == ElementType::Float &&
           scale.elementType() == ElementType::Float && rows.hasRank() && rows.rank() == 3 &&
           other.hasRank() && other.rank() == 3 && scale.hasRank() && scale.rank() == 1 &&
           llvm::all_of(
               llvm::seq(0u, 3u),
               [&](unsigned axis) { return rows.dim(axis).isKnownEqual(other.dim(axis)); }) &&
           rows.dim(2).isKnownEqual(scale.dim(0));
  }
};

} // namespace

void register_fuse_skip_rms_norm(RuleRegistry& registry) {
  registry.add(std::make_unique<FuseSkipRmsNorm>());
}

} // namespace kvopt::rules
