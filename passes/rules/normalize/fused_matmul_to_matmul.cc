// Replaces com.microsoft::FusedMatMul of two computed matrices by Transpose, MatMul and a factor.
//
//   before   y = com.microsoft.FusedMatMul<alpha, transB = 1>(a, b)
//   after    y = Mul(MatMul(a, Transpose<0,1,3,2>(b)), alpha)
//
// ONNX Runtime's optimizer folds the transpose of the keys and the scale of the scores into this
// operator. A product with a constant is a linear layer and remains. transBatchA and transBatchB
// move the first axis to the position before the last, before transA and transB apply: [M,…,K]
// means [...,M,K].
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

#include <algorithm>
#include <numeric>

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class FusedMatmulToMatmul final : public Rule {
  Var a{"a"}, b{"b"};

public:
  llvm::StringRef name() const override { return "fused-matmul-to-matmul"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("com.microsoft::FusedMatMul", {a, b}); }

  void constraints(Constraints& c) const override {
    c.require("a product of two computed matrices",
              [this](const Match& match) { return !match[a].constant() && !match[b].constant(); });
    c.check([this](const Match& match, Refusal& refusal) {
      for (const Var* var : {&a, &b}) {
        const Value& factor = match[*var];
        if (!factor.type().hasRank() || factor.type().rank() < 2)
          return refusal.because([&] {
            return MatchFailure{ReasonCode::DynamicRank, factor.name().str(),
                                "matrices of known rank", factor.type().str(), ""};
          });
      }
      return true;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const Node& fused = match.root();
    Value& left = arranged(match[a], fused.intAttr("transBatchA", 0) != 0,
                           fused.intAttr("transA", 0) != 0, rewriter);
    Value& right = arranged(match[b], fused.intAttr("transBatchB", 0) != 0,
                            fused.intAttr("transB", 0) != 0, rewriter);
    Value* product = &rewriter.create("MatMul", {&left, &right}, {}, 1, "product").result();
    double alpha = fused.floatAttr("alpha", 1.0f);
    if (alpha != 1.0) {
      Value& factor = rewriter.constant("alpha", floatScalar(match[a].type().elementType(), alpha));
      product = &rewriter.create("Mul", {product, &factor}, {}, 1, "scaled").result();
    }
    return rewriter.replace(match.root().result(), *product);
  }

private:
  /// The factor in the layout of MatMul.
  static Value& arranged(Value& factor, bool movesFirstAxis, bool swapsLastAxes,
                         Rewriter& rewriter) {
    std::vector<int64_t> perm(factor.type().rank());
    std::iota(perm.begin(), perm.end(), 0);
    if (movesFirstAxis)
      std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
    if (swapsLastAxes)
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    if (std::is_sorted(perm.begin(), perm.end()))
      return factor;
    return AttentionBuilder(rewriter).transpose(factor, std::move(perm));
  }
};

} // namespace

void register_fused_matmul_to_matmul(RuleRegistry& registry) {
  registry.add(std::make_unique<FusedMatmulToMatmul>());
}

} // namespace kvopt::rules
