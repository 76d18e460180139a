// Attention between matrix products of another rank than four → rank four.
//
//   before   p = Softmax<-1>(Reshape(MatMul(q, kt), [B,H,S,T]) + mask)     q[B*H,S,D], kt[B*H,D,T]
//            o = MatMul(Reshape(p, [B*H,S,T]), v)                          v[B*H,T,Dv]
//   after    p = Softmax<-1>(MatMul(Reshape(q, [B,H,S,D]), Reshape(kt, [B,H,D,T])) + mask)
//            o = Reshape(MatMul(p, Reshape(v, [B,H,T,Dv])), [B*H,S,Dv])
//
// Everything between the products is elementwise or a softmax over T, so it computes the same
// numbers in any grouping of the batch axes: [B*H], [B,G,N] and none become [B,H]. What the groups
// are is read off the values around; a product of one batch axis that nobody splits is one head.
#include "passes/analysis/index_map.h"
#include "passes/analysis/score_region.h"
#include "passes/rule.h"
#include "passes/shape_builder.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt {
namespace {

using Extents = llvm::SmallVector<Dim, 6>;

Dim product(llvm::ArrayRef<Dim> extents) {
  Dim result = Dim::fixed(1);
  for (const Dim& extent : extents)
    result = result * extent;
  return result;
}

/// For each axis of a shape the atoms it is the product of; nullopt if it is none.
using View = llvm::SmallVector<llvm::SmallVector<unsigned, 3>, 6>;

std::optional<View> viewOf(llvm::ArrayRef<Dim> shape, llvm::ArrayRef<Dim> atoms) {
  View view(shape.size());
  unsigned next = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    Dim taken = Dim::fixed(1);
    while (!taken.isKnownEqual(shape[axis])) {
      if (next == atoms.size())
        return std::nullopt;
      taken = taken * atoms[next];
      view[axis].push_back(next++);
    }
  }
  for (; next < atoms.size(); ++next)
    if (atoms[next].value() != 1)
      return std::nullopt;
  return view;
}

/// The batch, what the heads are the product of, S and T.
struct Atoms {
  Extents extents;
  unsigned tokens() const { return static_cast<unsigned>(extents.size()) - 1; }
  unsigned queries() const { return static_cast<unsigned>(extents.size()) - 2; }
  llvm::ArrayRef<Dim> batch() const { return llvm::makeArrayRef(extents).drop_back(2); }
};

/// [B,H] such that B*H is `flat`, as a value nearby has it.
std::optional<std::pair<Dim, Dim>> headsOf(const ScoreRegion& region, const Dim& flat) {
  auto fits = [&](const TensorType& type) {
    return type.hasRank() && type.rank() == 4 &&
           (type.shape()[0] * type.shape()[1]).isKnownEqual(flat);
  };
  auto pair = [](const TensorType& type) {
    return std::make_pair(type.shape()[0], type.shape()[1]);
  };
  for (Node* node : region.inner)
    if (fits(node->result().type()))
      return pair(node->result().type());
  for (Value* operand :
       {region.scores->operand(0), region.scores->operand(1), region.context->operand(1)}) {
    constexpr unsigned maxMovements = 4;
    Value* value = operand;
    for (unsigned i = 0; value && i <= maxMovements; ++i) {
      if (fits(value->type()))
        return pair(value->type());
      Node* producer = value->producer();
      value = producer && (movesData(*producer) || isElementwise(*producer)) ? producer->operand(0)
                                                                             : nullptr;
    }
  }
  for (Use& use : region.context->result().uses())
    if (isReshaping(use.user()) && fits(use.user().result().type()))
      return pair(use.user().result().type());
  return std::nullopt;
}

std::optional<Atoms> atomsOf(const ScoreRegion& region) {
  const TensorType& type = region.scores->result().type();
  const TensorType& context = region.context->result().type();
  if (!type.hasRank() || !context.hasRank() || type.rank() < 3 || context.rank() < 3 ||
      (type.rank() == 4 && context.rank() == 4))
    return std::nullopt;
  if (llvm::any_of(type.shape(), [](const Dim& extent) { return extent.isUnknown(); }))
    return std::nullopt;
  Atoms atoms;
  atoms.extents.assign(type.shape().begin(), type.shape().end());
  if (type.rank() == 3) {
    auto heads = headsOf(region, type.shape()[0]);
    if (heads)
      atoms.extents[0] = heads->first;
    atoms.extents.insert(atoms.extents.begin() + 1, heads ? heads->second : Dim::fixed(1));
  }
  return atoms;
}

/// Makes the region anew in rank four.
class Unflattening {
public:
  Unflattening(const ScoreRegion& scoreRegion, Atoms batchAtoms, Rewriter& graphRewriter)
      : region(scoreRegion), atoms(std::move(batchAtoms)), rewriter(graphRewriter),
        shapes(graphRewriter) {}

  /// Null, or what stands in the way.
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
  /// `value` with the extents `parts` of the atoms, then `kept`, grouped to [B,H,…].
  Value* place(Value& value, llvm::ArrayRef<Dim> parts, llvm::ArrayRef<Dim> kept) {
    size_t batch = atoms.batch().size();
    llvm::ArrayRef<Dim> heads = parts.slice(1, batch - 1);
    bool repeatsSome = false, hasSome = false;
    for (size_t i = 0; i < heads.size(); ++i) {
      bool isRepeated = heads[i].value() == 1 && atoms.extents[i + 1].value() != 1;
      repeatsSome |= isRepeated;
      hasSome |= heads[i].value() != 1;
    }
    llvm::ArrayRef<Dim> rows = kept.empty() ? parts.drop_front(batch) : kept;
    Value* whole = &value;
    Extents grouped{parts[0], product(heads)};
    if (repeatsSome && hasSome) {
      Extents separate(parts.begin(), parts.begin() + batch);
      separate.append(rows.begin(), rows.end());
      whole = shapes.reshape(*whole, separate, "grouped");
      for (size_t i = 1; i < batch; ++i)
        separate[i] = atoms.extents[i];
      whole = whole ? shapes.expand(*whole, separate, "repeated") : nullptr;
      grouped[1] = product(atoms.batch().drop_front());
    }
    grouped.append(rows.begin(), rows.end());
    if (!whole || isBroadcastOf(whole->type(), grouped))
      return whole;
    return shapes.reshape(*whole, grouped, "heads");
  }

  /// Leading ones are all that the shape lacks.
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
    std::optional<View> view = viewOf(batch, atoms.batch());
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

  /// The shape of a node's result, given those of the operands from inside.
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
      // An operand that broadcasts makes nothing longer but what is one: with a mask of symbols of
      // its own the extent is that of the scores, or the product with the values would be invalid.
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
    std::optional<View> view = shape ? viewOf(*shape, atoms.extents) : std::nullopt;
    if (!view)
      return false;
    shapeAt[&node.result()] = *shape;
    if (isReshaping(node)) {
      remade[&node.result()] = remade.lookup(node.operand(0));
      return remade.lookup(node.operand(0)) != nullptr;
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
    std::vector<NamedAttribute> attributes;
    for (const NamedAttribute& attribute : node.attributes())
      attributes.push_back({attribute.name, attribute.value.clone()});
    if (node.is("Softmax")) {
      std::optional<unsigned> axis =
          normalizedAxis(node.intAttr("axis", -1), static_cast<unsigned>(shape->size()));
      if (!axis || *axis + 1 != shape->size() || !isOnly(view->back(), atoms.tokens()))
        return false;
      attributes.clear();
      attributes.push_back({"axis", Attribute::ofInt(3)});
    }
    remade[&node.result()] = &rewriter.create(node.op(), operands, std::move(attributes)).result();
    return true;
  }

  /// The axis is that atom, and others of extent one.
  bool isOnly(llvm::ArrayRef<unsigned> axis, unsigned atom) const {
    return llvm::is_contained(axis, atom) && llvm::all_of(axis, [&](unsigned other) {
             return other == atom || atoms.extents[other].value() == 1;
           });
  }

  /// An operand from outside of the region, which broadcasts to `shape`.
  Value* aside(Value& value, llvm::ArrayRef<Dim> shape, const View& view) {
    const TensorType& type = value.type();
    if (!type.hasRank() || type.rank() > shape.size())
      return nullptr;
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

  /// Where an atom that is an axis of [B,H,S,T] by itself stands, counted from the end; 0 for one
  /// that is part of the heads.
  size_t axesFromEnd(unsigned atom) const {
    if (atom >= atoms.queries())
      return atoms.extents.size() - atom;
    return atom == 0 ? 4 : atoms.batch().size() == 2 ? 3 : 0;
  }

  Value* makeContext() {
    Node& context = *region.context;
    Value* probabilities = remade.lookup(context.operand(0));
    if (!probabilities)
      return nullptr;
    Extents shape = shapeAt[context.operand(0)];
    std::optional<View> view = viewOf(shape, atoms.extents);
    if (!view || view->size() < 2 || !isOnly(view->back(), atoms.tokens()) ||
        !isOnly((*view)[view->size() - 2], atoms.queries()))
      return nullptr;
    Value* values = factor(*context.operand(1), llvm::makeArrayRef(shape).drop_back(2));
    if (!values)
      return nullptr;
    Value& output = rewriter.create("MatMul", {probabilities, values}, {}, 1, "context").result();
    shape.back() = context.operand(1)->type().dim(-1);
    return shapes.reshape(output, shape, "flattened");
  }

  /// Values inside that have readers outside are made from the new ones.
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
  Atoms atoms;
  Rewriter& rewriter;
  ShapeBuilder shapes;
  llvm::DenseMap<const Value*, Value*> remade;   // the values inside, in rank four
  llvm::DenseMap<const Value*, Extents> shapeAt; // and the shapes they had
};

class UnflattenAttention final : public Rule {
public:
  llvm::StringRef name() const override { return "unflatten-attention"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("MatMul", {any(), any()}); }

  void constraints(Constraints& c) const override {
    c.check([](const Match& match, Refusal& refusal) {
      std::optional<ScoreRegion> region = scoreRegion(match.root());
      if (region && atomsOf(*region))
        return true;
      return refusal.because([&] {
        return MatchFailure{ReasonCode::PatternMismatch, match.root().result().name().str(),
                            "a softmax between matrix products of another rank than 4",
                            region ? "rank 4, or extents that are not known" : "none", ""};
      });
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    std::optional<ScoreRegion> region = scoreRegion(match.root());
    llvm::SmallVector<Rewriter::Replacement, 4> replacements;
    Unflattening unflattening(*region, *atomsOf(*region), rewriter);
    if (const Value* obstacle = unflattening.run(replacements))
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

} // namespace kvopt
