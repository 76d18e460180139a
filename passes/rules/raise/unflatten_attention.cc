// Rewrites attention between matrix products of another rank than four to rank four.
//
//   before   p = Softmax<-1>(Reshape(MatMul(q, kt), [B,H,S,T]) + mask)     q[B*H,S,D], kt[B*H,D,T]
//            o = MatMul(Reshape(p, [B*H,S,T]), v)                          v[B*H,T,Dv]
//   after    p = Softmax<-1>(MatMul(Reshape(q, [B,H,S,D]), Reshape(kt, [B,H,D,T])) + mask)
//            o = Reshape(MatMul(p, Reshape(v, [B,H,T,Dv])), [B*H,S,Dv])
//
// Everything between the products is elementwise or a softmax over T, so the results do not depend
// on the grouping of the batch axes: [B*H], [B,G,N] and no axes become [B,H]. The groups follow
// from the shapes of nearby values; a product with one batch axis that is never split is one head.
#include "ir/movement.h"
#include "passes/analysis/scores/attention_atoms.h"
#include "passes/pattern/rule.h"
#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

using Extents = llvm::SmallVector<Dim, 6>;

Dim product(llvm::ArrayRef<Dim> extents) {
  Dim result = Dim::fixed(1);
  for (const Dim& extent : extents)
    result = result * extent;
  return result;
}

/// Rebuilds the region in rank four.
class Unflattening {
public:
  Unflattening(const ScoreRegion& scoreRegion, const AttentionAtoms& attentionAtoms,
               Rewriter& graphRewriter)
      : region(scoreRegion), atoms(attentionAtoms), rewriter(graphRewriter), shapes(graphRewriter) {
  }

  /// Returns null, or the value that prevents the rewrite.
  const Value* run(llvm::SmallVectorImpl<Rewriter::Replacement>& replacements) {
    if (!makeScores())
      return &region.scores->result();
    for (Node* node : region.inner)
      if (!remake(*node))
        return &node->result();
    Value* output = makeContext();
    if (!output)
      return &region.context->result();
    replacements.push_back({&region.context->result(), output});
    return keepOthers(replacements);
  }

private:
  /// `value`, whose axes have the extents `parts` (or one) of the atoms, followed by `kept`,
  /// grouped to [B,H,…]. An axis for which it has only some parts is repeated over the others.
  Value* place(Value& value, llvm::ArrayRef<Dim> parts, llvm::ArrayRef<Dim> kept) {
    using Axis = AttentionAtoms::Axis;
    Extents apart, repeated, grouped;
    bool repeats = false;
    unsigned axes = kept.empty() ? AttentionAtoms::axisCount : AttentionAtoms::Queries;
    for (unsigned axis = 0; axis < axes; ++axis) {
      auto range = atoms.partsOf(static_cast<Axis>(axis));
      bool lacksSome = false, hasSome = false;
      for (unsigned part = range.first; part < range.second; ++part) {
        lacksSome |= parts[part].value() == 1 && atoms.extents[part].value() != 1;
        hasSome |= parts[part].value() != 1;
      }
      Dim whole = Dim::fixed(1);
      for (unsigned part = range.first; part < range.second; ++part) {
        apart.push_back(parts[part]);
        repeated.push_back(lacksSome && hasSome ? atoms.extents[part] : parts[part]);
        whole = whole * repeated.back();
      }
      repeats |= lacksSome && hasSome;
      grouped.push_back(std::move(whole));
    }
    for (Extents* extents : {&apart, &repeated, &grouped})
      extents->append(kept.begin(), kept.end());
    Value* result = &value;
    if (repeats) {
      result = shapes.reshape(*result, apart, "grouped");
      result = result ? shapes.expand(*result, repeated, "repeated") : nullptr;
    }
    if (!result || isBroadcastOf(result->type(), grouped))
      return result;
    return shapes.reshape(*result, grouped, "heads");
  }

  /// Whether the type lacks only leading axes of extent one.
  static bool isBroadcastOf(const TensorType& type, llvm::ArrayRef<Dim> shape) {
    if (!type.hasRank() || type.rank() > shape.size())
      return false;
    size_t missing = shape.size() - type.rank();
    return llvm::all_of(shape.take_front(missing),
                        [](const Dim& extent) { return extent.value() == 1; }) &&
           isKnownSameShape(type.shape(), shape.drop_front(missing));
  }

  /// A factor of a matrix product whose result has the batch axes `batch`.
  Value* factor(Value& value, llvm::ArrayRef<Dim> batch) {
    const TensorType& type = value.type();
    if (!type.hasRank() || type.rank() < 2 || type.rank() - 2 > batch.size())
      return nullptr;
    std::optional<AtomView> view = viewOf(batch, atoms.batchParts());
    if (!view)
      return nullptr;
    llvm::ArrayRef<Dim> own = type.shape().drop_back(2);
    size_t missing = batch.size() - own.size();
    Extents parts(atoms.extents.size(), Dim::fixed(1));
    for (size_t axis = 0; axis < own.size(); ++axis) {
      if (own[axis].value() == 1)
        continue;
      if (!own[axis].isKnownEqual(batch[axis + missing]))
        return nullptr;
      for (unsigned atom : (*view)[axis + missing])
        parts[atom] = atoms.extents[atom];
    }
    return place(value, parts, type.shape().take_back(2));
  }

  bool makeScores() {
    const TensorType& type = region.scores->result().type();
    shapeAt[&region.scores->result()].assign(type.shape().begin(), type.shape().end());
    llvm::ArrayRef<Dim> batch = type.shape().drop_back(2);
    Value* query = factor(*region.scores->operand(0), batch);
    Value* keys = query ? factor(*region.scores->operand(1), batch) : nullptr;
    if (!keys)
      return false;
    remade[&region.scores->result()] =
        &rewriter.create("MatMul", {query, keys}, {}, 1, "scores").result();
    return true;
  }

  /// Shape of a node's result, given the shapes of its operands inside the region.
  std::optional<Extents> shapeOf(const Node& node) {
    const TensorType& type = node.result().type();
    const Extents* inside = nullptr;
    for (const Use& use : node.operands())
      if (auto found = shapeAt.find(use.value()); found != shapeAt.end())
        inside = &found->second;
    if (!type.hasRank() || !inside)
      return std::nullopt;
    Extents shape(type.shape().begin(), type.shape().end());
    if (!isReshaping(node)) {
      if (shape.size() != inside->size())
        return std::nullopt;
      // An operand that broadcasts enlarges only axes of extent one. For a mask with different
      // symbols the extent is that of the scores, or the product with the values would be invalid.
      for (size_t axis = 0; axis < shape.size(); ++axis)
        if ((*inside)[axis].value() != 1)
          shape[axis] = (*inside)[axis];
      return shape;
    }
    auto* open = llvm::find_if(shape, [](const Dim& extent) { return extent.isUnknown(); });
    if (open == shape.end())
      return shape;
    *open = Dim::fixed(1);
    std::optional<Dim> rest = product(*inside).dividedBy(product(shape));
    if (!rest)
      return std::nullopt;
    *open = *rest;
    return shape;
  }

  bool remake(Node& node) {
    std::optional<Extents> shape = shapeOf(node);
    std::optional<AtomView> view = shape ? viewOf(*shape, atoms.extents) : std::nullopt;
    if (!view)
      return false;
    shapeAt[&node.result()] = *shape;
    if (isReshaping(node)) {
      Value* made = remade.lookup(movedOperand(node));
      remade[&node.result()] = made;
      return made != nullptr;
    }
    llvm::SmallVector<Value*, 3> operands;
    for (const Use& use : node.operands()) {
      Value* operand = use.value();
      Value* made = operand ? remade.lookup(operand) : nullptr;
      if (made && !isKnownSameShape(shapeAt[operand], *shape))
        return false;
      if (!made && operand)
        made = aside(*operand, *shape, *view);
      if (operand && !made)
        return false;
      operands.push_back(made);
    }
    if (!node.is("Softmax")) {
      remade[&node.result()] = &rewriter.createLike(node, operands).result();
      return true;
    }
    std::optional<unsigned> axis =
        normalizedAxis(node.intAttr("axis", -1), static_cast<unsigned>(shape->size()));
    if (!axis || *axis + 1 != shape->size() || !isAxis(view->back(), AttentionAtoms::Keys))
      return false;
    remade[&node.result()] = &rewriter.create("Softmax", operands, attrs({{"axis", 3}})).result();
    return true;
  }

  /// Whether the parts are all parts of that axis, plus others of extent one.
  bool isAxis(llvm::ArrayRef<unsigned> parts, AttentionAtoms::Axis axis) const {
    auto range = atoms.partsOf(axis);
    for (unsigned part = 0; part < atoms.extents.size(); ++part) {
      bool isOf = part >= range.first && part < range.second;
      if (atoms.extents[part].value() != 1 && isOf != llvm::is_contained(parts, part))
        return false;
    }
    return true;
  }

  /// Whether the view is [B,H,S,T] already: operands broadcast as before, whatever their extents.
  bool isGoal(const AtomView& view) const {
    using Axis = AttentionAtoms::Axis;
    if (view.size() != AttentionAtoms::axisCount)
      return false;
    for (unsigned axis = 0; axis < view.size(); ++axis)
      if (!isAxis(view[axis], static_cast<Axis>(axis)))
        return false;
    return true;
  }

  /// An operand from outside the region, which broadcasts to `shape`.
  Value* aside(Value& value, llvm::ArrayRef<Dim> shape, const AtomView& view) {
    const TensorType& type = value.type();
    if (!type.hasRank() || type.rank() > shape.size())
      return nullptr;
    if (isGoal(view))
      return &value;
    size_t missing = shape.size() - type.rank();
    Extents parts(atoms.extents.size(), Dim::fixed(1));
    bool staysInPlace = type.rank() <= 4;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const Dim& own = type.shape()[axis];
      if (own.value() == 1)
        continue;
      llvm::ArrayRef<unsigned> wanted = view[axis + missing];
      if (wanted.size() == 1) {
        parts[wanted[0]] = own;
        staysInPlace &= type.rank() - axis == axesFromEnd(wanted[0]);
        continue;
      }
      if (!own.isKnownEqual(shape[axis + missing]))
        return nullptr;
      staysInPlace = false;
      for (unsigned atom : wanted)
        parts[atom] = atoms.extents[atom];
    }
    return staysInPlace ? &value : place(value, parts, {});
  }

  /// Position, counted from the end, of a part that is a whole axis of [B,H,S,T]; 0 for one that
  /// shares its axis with others.
  size_t axesFromEnd(unsigned part) const {
    AttentionAtoms::Axis axis = atoms.axisOf(part);
    auto range = atoms.partsOf(axis);
    return range.second - range.first == 1 ? 4 - static_cast<size_t>(axis) : 0;
  }

  Value* makeContext() {
    Node& context = *region.context;
    Value* probabilities = remade.lookup(context.operand(0));
    if (!probabilities)
      return nullptr;
    Extents shape = shapeAt[context.operand(0)];
    std::optional<AtomView> view = viewOf(shape, atoms.extents);
    if (!view || view->size() < 2 || !isAxis(view->back(), AttentionAtoms::Keys) ||
        !isAxis((*view)[view->size() - 2], AttentionAtoms::Queries))
      return nullptr;
    Value* values = factor(*context.operand(1), llvm::ArrayRef<Dim>(shape).drop_back(2));
    if (!values)
      return nullptr;
    Value& output = rewriter.create("MatMul", {probabilities, values}, {}, 1, "context").result();
    shape.back() = context.operand(1)->type().dim(-1);
    return shapes.reshape(output, shape, "flattened");
  }

  /// Values inside that have readers outside are computed from the new ones.
  const Value* keepOthers(llvm::SmallVectorImpl<Rewriter::Replacement>& replacements) {
    auto keep = [&](Value& value) {
      bool isRead =
          value.isGraphOutput() || llvm::any_of(value.uses(), [&](const Use& use) {
            return &use.user() != region.context && !llvm::is_contained(region.inner, &use.user());
          });
      if (!isRead)
        return true;
      Value* kept = shapes.reshape(*remade.lookup(&value), shapeAt[&value], "flattened");
      if (kept)
        replacements.push_back({&value, kept});
      return kept != nullptr;
    };
    if (!keep(region.scores->result()))
      return &region.scores->result();
    for (Node* node : region.inner)
      if (!keep(node->result()))
        return &node->result();
    return nullptr;
  }

  const ScoreRegion& region;
  const AttentionAtoms& atoms;
  Rewriter& rewriter;
  ShapeBuilder shapes;
  llvm::DenseMap<const Value*, Value*> remade;   // values inside, in rank four
  llvm::DenseMap<const Value*, Extents> shapeAt; // shapes that they had
};

class UnflattenAttention final : public Rule {
  struct Plan {
    ScoreRegion region;
    AttentionAtoms atoms;
  };
  Payload<Plan> planned;

public:
  llvm::StringRef name() const override { return "unflatten-attention"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("MatMul", {any(), any()}); }

  void constraints(Constraints& c) const override {
    c.plan(planned, [](const Match& match, Refusal& refusal) -> std::optional<Plan> {
      std::optional<ScoreRegion> region = scoreRegion(match.root());
      std::optional<AttentionAtoms> atoms = region ? atomsOf(*region) : std::nullopt;
      if (atoms)
        return Plan{std::move(*region), std::move(*atoms)};
      refusal.because([&] {
        return MatchFailure{ReasonCode::PatternMismatch, match.root().result().name().str(),
                            "a softmax between matrix products of a rank other than 4",
                            region ? "rank 4, or unknown extents" : "none", ""};
      });
      return std::nullopt;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const auto& [region, atoms] = match[planned];
    llvm::SmallVector<Rewriter::Replacement, 4> replacements;
    if (const Value* obstacle = Unflattening(region, atoms, rewriter).run(replacements))
      return MatchFailure{ReasonCode::ShapeUnknown, obstacle->name().str(),
                          "extents that are products of batch, heads, queries and keys",
                          obstacle->type().str(), ""};
    return rewriter.replace(replacements);
  }
};

} // namespace

void register_unflatten_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<UnflattenAttention>());
}

} // namespace kvopt::rules
