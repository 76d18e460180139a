// Computes the shape of a concatenated cache from its parts, so that no operand of a fused
// attention depends on the present that it produces.
//
//   before   p = Concat<axis>(a, b)   s = Shape(p)
//   after    s = Shape(a) + Shape(b) * onehot(axis)
//            (p keeps its other readers; Shape's start and end are kept on both parts)
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class ShapeOfConcat final : public Rule {
  Var a{"a"}, b{"b"}, whole{"whole"};
  Payload<unsigned> joinedAxis;

public:
  llvm::StringRef name() const override { return "shape-of-concat"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Shape", {bind(whole, escaping(op("Concat", {a, b})))}); }

  void constraints(Constraints& c) const override {
    c.check([this](const Match& match, Refusal& refusal) {
      if (match[whole].type().hasRank())
        return true;
      return refusal.because([&] {
        return MatchFailure{ReasonCode::DynamicRank, match[whole].name().str(), "a known rank",
                            "none", ""};
      });
    });
    c.plan(
        joinedAxis, "the concatenation's axis is within its rank",
        [this](const Match& match) { return axisOf(match); }, ReasonCode::AxisUnproven);
    c.require(
        "the concatenation is a graph output",
        [this](const Match& match) { return match[whole].isGraphOutput(); },
        ReasonCode::PresentNotOutput);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& shape = match.root();
    auto rank = static_cast<int64_t>(match[whole].type().rank());
    auto clamp = [&](int64_t position) {
      int64_t normalized = position < 0 ? position + rank : position;
      return std::clamp<int64_t>(normalized, 0, rank);
    };
    int64_t start = clamp(shape.intAttr("start", 0));
    int64_t end = std::max(start, clamp(shape.intAttr("end", rank)));
    auto axis = static_cast<int64_t>(match[joinedAxis]);
    llvm::SmallVector<int64_t, 4> onehot;
    for (int64_t position = start; position < end; ++position)
      onehot.push_back(position == axis ? 1 : 0);

    auto shapeOf = [&](Value& part) -> Value& {
      AttributeList attributes;
      if (start != 0)
        attributes.add("start", start);
      if (end != rank)
        attributes.add("end", end);
      return rewriter.create("Shape", {&part}, attributes, 1, "shape_part").result();
    };
    Value& rows = shapeOf(match[b]);
    Value& mask = rewriter.constant("sequence_axis", int64Tensor(onehot));
    Value& grown = rewriter.create("Mul", {&rows, &mask}, {}, 1, "new_rows").result();
    Value& sum =
        rewriter.create("Add", {&shapeOf(match[a]), &grown}, {}, 1, "present_shape").result();
    return rewriter.replace(shape.result(), sum);
  }

private:
  std::optional<unsigned> axisOf(const Match& match) const {
    const Value& concatenation = match[whole];
    const Attribute* written = concatenation.producer()->attribute("axis");
    if (!written || written->isReference() || written->kind() != AttributeKind::Int)
      return std::nullopt;
    return normalizedAxis(written->intValue(), concatenation.type().rank());
  }
};

} // namespace

void register_shape_of_concat(RuleRegistry& registry) {
  registry.add(std::make_unique<ShapeOfConcat>());
}

} // namespace kvopt::rules
