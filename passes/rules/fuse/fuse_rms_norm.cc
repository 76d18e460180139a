// Replaces a root mean square norm of the last axis by SimplifiedLayerNormalization.
//
//   before   d = Sqrt(Add(ReduceMean<axes = -1, keepdims = 1>(Pow(x, 2)), epsilon))
//            y = Mul(Div(x, d), w)      Mul(Mul(x, Reciprocal(d)), w)      Mul(Mul(x, Div(1, d)),
//            w)
//   after    y = SimplifiedLayerNormalization<epsilon>(x, w)
//
// The square may be Mul(x, x), and the weight may come first. Only float32: with other types, the
// primitive operators and the fused one round in different places.
#include "ir/movement.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class FuseRmsNorm final : public Rule {
  Var x{"x"}, weight{"weight"}, mean{"mean"}, epsilon{"epsilon"}, two{"two"}, one{"one"};

public:
  llvm::StringRef name() const override { return "fuse-rms-norm"; }
  RuleGroup group() const override { return RuleGroup::Fuse; }

  P pattern() const override {
    P square = oneOf("square", {{"power", inner(op("Pow", {x, constant(two)}))},
                                {"product", inner(op("Mul", {x, x}))}});
    P average = bind(mean, optional(inner(op("ReduceMean", {square})),
                                    inner(op("ReduceMean", {square, any()}))));
    P root = inner(op("Sqrt", {inner(commutative("Add", {average, constant(epsilon)}))}));
    P inverse = oneOf("inverse", {{"reciprocal", inner(op("Reciprocal", {root}))},
                                  {"quotient", inner(op("Div", {constant(one), root}))}});
    P normalized = oneOf("norm", {{"divided", inner(op("Div", {x, root}))},
                                  {"multiplied", inner(commutative("Mul", {x, inverse}))}});
    return commutative("Mul", {normalized, weight});
  }

  void constraints(Constraints& c) const override {
    c.require("float32 rows and a weight for each element of a row",
              [this](const Match& match) { return hasTypes(match); });
    c.require("the mean of the squares of a row",
              [this](const Match& match) { return isMeanOfRow(match); });
    c.require("a constant that is added", [this](const Match& match) {
      const auto added = scalarValue(*match[epsilon].constant());
      return added && *added >= 0 && *added < 1;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const auto added = static_cast<float>(*scalarValue(*match[epsilon].constant()));
    Node& norm = rewriter.create("SimplifiedLayerNormalization", {&match[x], &match[weight]},
                                 attrs({{"axis", -1}, {"epsilon", added}, {"stash_type", 1}}), 1,
                                 "normalized");
    return rewriter.replace(match.root().result(), norm.result());
  }

private:
  /// Values that have other readers stay alive.
  static P inner(P pattern) { return escaping(std::move(pattern)); }

  bool hasTypes(const Match& match) const {
    const TensorType& rows = match[x].type();
    const TensorType& scale = match[weight].type();
    return rows.elementType() == ElementType::Float && scale.elementType() == ElementType::Float &&
           rows.hasRank() && rows.rank() >= 2 && scale.hasRank() && scale.rank() == 1 &&
           rows.dim(rows.rank() - 1).isKnownEqual(scale.dim(0));
  }

  bool isMeanOfRow(const Match& match) const {
    const auto is = [](const Value* value, double number) {
      return !value || scalarValue(*value->constant()) == number;
    };
    const Node& reduced = *match[mean].producer();
    const auto axes = knownIntegersOf(reduced, 1, "axes");
    return is(match.find(two), 2) && is(match.find(one), 1) && axes && axes->size() == 1 &&
           (axes->front() == -1 ||
            axes->front() + 1 == static_cast<int64_t>(match[x].type().rank())) &&
           reduced.intAttr("keepdims", 1) == 1;
  }
};

} // namespace

void register_fuse_rms_norm(RuleRegistry& registry) {
  registry.add(std::make_unique<FuseRmsNorm>());
}

} // namespace kvopt::rules
