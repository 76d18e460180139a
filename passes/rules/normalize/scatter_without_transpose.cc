// Scatters rows into a tensor directly, instead of into its transpose.
//
//   before   y = Transpose<q>(ScatterND(Transpose<p>(x), positions[S,1], rows)), q the inverse of p
//   after    y = ScatterElements<axis = p[0]>(
//                x, Expand(Reshape(positions, [1,…,S,…,1]), …), Transpose<q>(rows))
//
// Exporters write an index_put along any axis but the first like this. They transpose a whole cache
// twice, although a step writes only a few rows.
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class ScatterWithoutTranspose final : public Rule {
  Var x{"x"}, positions{"positions"}, rows{"rows"}, there{"there"}, scattered{"scattered"};

public:
  llvm::StringRef name() const override { return "scatter-without-transpose"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return op(
        "Transpose",
        {bind(scattered, op("ScatterND", {bind(there, op("Transpose", {x})), positions, rows}))});
  }

  void constraints(Constraints& c) const override {
    c.require("a transposition and its inverse", [this](const Match& match) {
      const std::vector<int64_t> forth = order(*match[there].producer());
      const std::vector<int64_t> back = order(match.root());
      if (forth.empty() || forth.size() != back.size())
        return false;
      for (size_t axis = 0; axis < forth.size(); ++axis)
        if (forth[static_cast<size_t>(back[axis])] != static_cast<int64_t>(axis))
          return false;
      return true;
    });
    c.require("a position along one axis for each row", [this](const Match& match) {
      const TensorType& type = match[positions].type();
      return type.hasRank() && type.rank() == 2 && type.dim(1).value() == 1;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const std::vector<int64_t> forth = order(*match[there].producer());
    const std::vector<int64_t> back = order(match.root());
    const int64_t axis = forth.front();
    Value& updates =
        rewriter.create("Transpose", {&match[rows]}, attrs({{"perm", back}}), 1, "rows").result();
    // [S,1] has the length of the axis there and 1 elsewhere.
    std::vector<int64_t> extents(forth.size(), 1);
    extents[static_cast<size_t>(axis)] = -1;
    Value& column =
        rewriter
            .create("Reshape",
                    {&match[positions], &rewriter.constant("extents", int64Tensor(extents))}, {}, 1,
                    "positions")
            .result();
    Value& shape = rewriter.create("Shape", {&updates}, {}, 1, "extents").result();
    Value& index = rewriter.create("Expand", {&column, &shape}, {}, 1, "positions").result();
    AttributeList attributes = attrs({{"axis", axis}});
    const llvm::StringRef reduction = match[scattered].producer()->stringAttr("reduction", "none");
    if (reduction != "none")
      attributes.add("reduction", reduction.str());
    Value& y =
        rewriter.create("ScatterElements", {&match[x], &index, &updates}, attributes, 1, "written")
            .result();
    return rewriter.replace(match.root().result(), y);
  }

private:
  /// The permutation of a Transpose; empty if it is not written.
  static std::vector<int64_t> order(const Node& transpose) {
    const Attribute* perm = transpose.attribute("perm");
    return perm ? perm->ints().vec() : std::vector<int64_t>();
  }
};

} // namespace

void register_scatter_without_transpose(RuleRegistry& registry) {
  registry.add(std::make_unique<ScatterWithoutTranspose>());
}

} // namespace kvopt::rules
