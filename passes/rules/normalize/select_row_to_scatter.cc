// Scatters a row into a cache, instead of selecting it by comparing slots with its position.
//
//   before   present = Where(Equal(0 … C-1, position), row, past)
//   after    present = ScatterElements<axis>(past, Expand(position), row)
//
// past is an input of the model and present an output: a cache of C slots on one axis, on which the
// row has extent 1. A position outside the cache has no effect before, and is an error after.
#include "passes/analysis/mask/mask_reader.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class SelectRowToScatter final : public Rule {
  Var slots{"slots"}, position{"position"}, row{"row"}, past{"past"};
  Payload<unsigned> axis;

public:
  llvm::StringRef name() const override { return "select-row-to-scatter"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    // Layers share the comparison.
    return op("Where", {escaping(commutative("Equal", {slots, position})), row, past});
  }

  void constraints(Constraints& c) const override {
    c.require("a cache: an input of the model that becomes an output", [this](const Match& match) {
      const Value& input = match[past];
      return input.isGraphInput() && !input.graph().parentNode() &&
             match.root().result().isGraphOutput();
    });
    c.plan(axis, "a row for one slot, counted along one axis",
           [this](const Match& match) { return slotAxis(match); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    AttentionBuilder build(rewriter);
    const int64_t along = match[axis];
    Value& checked = build.checkedSlot(match[position], match[past], along);
    Value& extents = build.node("Shape", {match[row]}, {}, "extents");
    Value& index = build.node("Expand", {checked, extents}, {}, "positions");
    Value& present = build.node("ScatterElements", {match[past], index, match[row]},
                                attrs({{"axis", along}}), "written");
    return rewriter.replace(match.root().result(), present);
  }

private:
  /// The axis along which slots are counted, if the row has one slot there and all of the cache's
  /// other extents, and the position is the same for all slots.
  std::optional<unsigned> slotAxis(const Match& match) const {
    const TensorType& counted = match[slots].type();
    const TensorType& cache = match[past].type();
    const TensorType& fresh = match[row].type();
    const TensorType& place = match[position].type();
    if (!counted.hasRank() || !cache.hasRank() || !fresh.hasRank() || !place.hasRank() ||
        counted.rank() > cache.rank() || fresh.rank() != cache.rank() ||
        (place.elementType() != ElementType::Int64 && place.elementType() != ElementType::Int32))
      return std::nullopt;
    std::optional<unsigned> found;
    const auto missing = static_cast<unsigned>(cache.rank() - counted.rank());
    for (unsigned i = 0; i < counted.rank(); ++i) {
      if (counted.dim(i).value() == 1)
        continue;
      if (found)
        return std::nullopt;
      found = i + missing;
    }
    if (!found || !counted.dim(*found - missing).isKnownEqual(cache.dim(*found)))
      return std::nullopt;
    for (unsigned i = 0; i < cache.rank(); ++i)
      if (i == *found ? fresh.dim(i).value() != 1 : !fresh.dim(i).isKnownEqual(cache.dim(i)))
        return std::nullopt;
    const auto fromEnd = static_cast<int64_t>(cache.rank() - *found);
    if (place.rank() > cache.rank() ||
        (static_cast<int64_t>(place.rank()) >= fromEnd && place.dim(-fromEnd).value() != 1))
      return std::nullopt;
    return countsUp(match[slots], *found - missing, cache.dim(*found)) ? found : std::nullopt;
  }

  /// Whether the element at index i of the axis is i.
  static bool countsUp(const Value& value, unsigned axis, const Dim& extent) {
    const Dim one = Dim::fixed(1);
    MaskReader reader(IndexSpace(one, one, one, IndexSpace::fromModel(extent)), false);
    const Dim& slot = IndexSpace::variable(IndexVariable::Key);
    ExprVector index;
    for (unsigned i = 0; i < value.type().rank(); ++i)
      index.push_back(reader.expressions().integer(i == axis ? slot : Dim::fixed(0)));
    const ExprRef element = reader.read(value, index);
    return element->is(MaskExpression::Kind::Integer) && element->dim.isKnownEqual(slot);
  }
};

} // namespace

void register_select_row_to_scatter(RuleRegistry& registry) {
  registry.add(std::make_unique<SelectRowToScatter>());
}

} // namespace kvopt::rules
