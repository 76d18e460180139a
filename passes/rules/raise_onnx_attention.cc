// ONNX's own Attention (opset 23 and 24) on 4-D operands without caches → ai.kvopt::Sdpa.
//
//   before   o = Attention<scale, softcap>(q, k, v[, mask])
//   after    o = ai.kvopt.Sdpa<scale, softcap>(q, k, v[, mask])
//
// With is_causal and no past the operator's causal frontier is top-left, Sdpa's is bottom-right:
// the two are the same only where S = T, and everything else is refused.
#include "ir/attribute.h"
#include "passes/rule.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt {
namespace {

class RaiseOnnxAttention final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"};

public:
  llvm::StringRef name() const override { return "raise-onnx-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override { return op("Attention", {q, k, v, maybe(mask)}); }

  void constraints(Constraints& c) const override {
    c.shape(q, {"B", "H", "S", "D"});
    c.shape(k, {"B", "G", "T", "D"});
    c.shape(v, {"B", "G", "T", "Dv"});
    c.check([](const Match& match, Refusal& refusal) {
      static constexpr llvm::StringLiteral known[] = {"scale", "softcap", "is_causal",
                                                      "qk_matmul_output_mode", "softmax_precision"};
      for (const NamedAttribute& attribute : match.root().attributes())
        if (!llvm::is_contained(known, attribute.name))
          return refusal.because([&] {
            return MatchFailure{ReasonCode::PatternMismatch, match.root().name().str(),
                                "only attributes that Sdpa can express",
                                "attribute '" + attribute.name + "'", ""};
          });
      return true;
    });
    c.require("only the first result is read", [](const Match& match) {
      auto results = match.root().results();
      return std::all_of(results.begin() + 1, results.end(), [](const Value& result) {
        return result.isAbsent() || result.isUnused();
      });
    });
    c.require(
        "the number of heads is a multiple of the keys' heads",
        [](const Match& match) {
          auto heads = match.dim("H").value();
          auto groups = match.dim("G").value();
          return heads && groups && *groups > 0 && *heads % *groups == 0;
        },
        ReasonCode::HeadCountUnproven);
    c.require(
        "a causal attention has as many keys as query rows",
        [](const Match& match) {
          return match.root().intAttr("is_causal", 0) == 0 ||
                 match.dim("S").isKnownEqual(match.dim("T"));
        },
        ReasonCode::MaskUnprovenCausal);
    c.require(
        "the scale is written, or the head width is a constant",
        [](const Match& match) {
          return match.root().attribute("scale") || match.dim("D").value().value_or(0) > 0;
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
    c.check([this](const Match& match, Refusal& refusal) {
      // A mask shorter than the keys is padded with "masked", one of width 1 too; only a full one
      // is the same thing in Sdpa.
      const Value* present = match.find(mask);
      if (!present)
        return true;
      const TensorType& type = present->type();
      if (type.hasRank() && type.rank() >= 1 && (type.dim(-1).isKnownEqual(match.dim("T"))))
        return true;
      return refusal.because([&] {
        return MatchFailure{ReasonCode::ShapeUnknown, present->name().str(),
                            "a mask as long as the keys", type.str(), ""};
      });
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& attention = match.root();
    llvm::SmallVector<Value*, 4> operands{&match[q], &match[k], &match[v]};
    if (Value* present = match.find(mask))
      operands.push_back(present);
    std::vector<NamedAttribute> attributes;
    float scale =
        attention.attribute("scale")
            ? attention.floatAttr("scale", 1.0f)
            : static_cast<float>(1.0 / std::sqrt(static_cast<double>(*match.dim("D").value())));
    attributes.push_back({"scale", Attribute::ofFloat(scale)});
    if (float softcap = attention.floatAttr("softcap", 0.0f); softcap != 0.0f)
      attributes.push_back({"softcap", Attribute::ofFloat(softcap)});
    if (attention.intAttr("is_causal", 0) != 0)
      attributes.push_back({"causal", Attribute::ofInt(1)});
    Node& sdpa = rewriter.create("ai.kvopt::Sdpa", operands, std::move(attributes), 1, "attention");
    rewriter.recordSources(sdpa, match.nodes());
    return rewriter.replace(attention.result(), sdpa.result());
  }
};

} // namespace

void register_raise_onnx_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseOnnxAttention>());
}

} // namespace kvopt
