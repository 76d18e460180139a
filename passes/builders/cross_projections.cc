// Cutting between an encoder's side and the decoder's.
#include "passes/builders/cross_projections.h"

#include "passes/builders/attention_builder.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::builders {
using namespace ir;
using namespace pattern;

namespace {

using Inputs = llvm::SetVector<Value*>;

/// The graph inputs that the value is computed from, their extents aside.
Inputs inputsBehind(Value& value) {
  Inputs inputs;
  llvm::SmallVector<Value*, 32> pending(1, &value);
  llvm::DenseSet<const Value*> seen{&value};
  while (!pending.empty()) {
    Value* next = pending.pop_back_val();
    if (next->isGraphInput() && !next->constant())
      inputs.insert(next);
    const Node* node = next->producer();
    if (!node || node->is("Shape"))
      continue;
    for (const Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  return inputs;
}

bool hasAxisOf(const Value& input, const Dim& tokens) {
  return !input.type().hasRank() || llvm::any_of(input.type().shape(), [&](const Dim& extent) {
    return llvm::any_of(extent.symbols(), [&](const std::string& symbol) {
      return llvm::is_contained(tokens.symbols(), symbol);
    });
  });
}

bool hasKnownRows(const Value& rows) {
  const TensorType& type = rows.type();
  return type.hasRank() && type.rank() == 4 && type.dim(1).value() && type.dim(3).value() &&
         !type.dim(0).isUnknown() && !type.dim(2).isUnknown();
}

/// What tells the extents of [B,T,W] when only those are read: rows [B,G,T,D] made of it.
bool tellsExtents(const Value& rows, const Value& input) {
  const TensorType& type = input.type();
  return type.hasRank() && type.rank() == 3 && type.dim(2).value() &&
         rows.type().dim(0).isKnownEqual(type.dim(0)) &&
         rows.type().dim(2).isKnownEqual(type.dim(1));
}

void rewireShapes(Value& input, Value& rows, AttentionBuilder& build, Rewriter& rewriter) {
  llvm::SmallVector<Node*, 4> readers;
  for (const Use& use : input.uses())
    readers.push_back(&use.user());
  if (readers.empty() || !tellsExtents(rows, input) || llvm::any_of(readers, [&](const Node* node) {
        return !node->is("Shape") || node->graph().parentNode() || node->intAttr("start", 0) != 0 ||
               node->intAttr("end", 3) != 3;
      }))
    return;
  Value& extents = build.node("Shape", {rows}, {}, "cross_shape");
  Value& shape = build.node("Concat",
                            {build.slice(extents, 0, 0, 1), build.slice(extents, 0, 2, 3),
                             ints({*input.type().dim(2).value()})},
                            attrs({{"axis", 0}}), "encoder_shape");
  for (Node* reader : readers)
    if (rewriter.replace(reader->result(), shape))
      return;
}

/// Shapes that the projections are laid out by, of which many exporters take the batch from
/// whatever is at hand, a decoder's value too. Those that the extents of `inputs` tell are told by
/// them.
class ShapeSource {
public:
  ShapeSource(const Inputs& knownInputs, Rewriter& edits)
      : inputs(knownInputs), rewriter(edits), build(edits) {}

  void retell(Value& rows) {
    llvm::SmallVector<Value*, 32> pending(1, &rows);
    llvm::DenseSet<const Value*> seen{&rows};
    llvm::SmallVector<Value*, 8> shapes;
    while (!pending.empty()) {
      Value* value = pending.pop_back_val();
      if (value->producer() && !value->constant() && isTold(*value)) {
        shapes.push_back(value);
        continue;
      }
      if (const Node* node = value->producer())
        for (const Use& use : node->operands())
          if (use.value() && seen.insert(use.value()).second)
            pending.push_back(use.value());
    }
    for (Value* shape : shapes)
      if (!seenBefore.contains(shape) && seenBefore.insert(shape).second)
        rewriter.replace(*shape, told(*shape));
  }

private:
  struct Place {
    Value* input = nullptr;
    unsigned axis = 0;
  };

  std::optional<Place> placeOf(const Dim& extent) const {
    for (Value* input : inputs)
      for (unsigned axis = 0; input->type().hasRank() && axis < input->type().rank(); ++axis)
        if (input->type().dim(axis).isKnownEqual(extent))
          return Place{input, axis};
    return std::nullopt;
  }

  bool isTold(const Value& value) const {
    const TensorType& type = value.type();
    const auto known = value.knownIntegers();
    return type.elementType() == ElementType::Int64 && type.hasRank() && type.rank() <= 1 &&
           known && !known->empty() && llvm::all_of(*known, [&](const Dim& extent) {
             return extent.value() || placeOf(extent);
           });
  }

  Value& told(const Value& value) {
    llvm::SmallVector<BuilderOperand, 4> entries;
    const auto known = value.knownIntegers();
    for (const Dim& extent : *known) {
      if (std::optional<int64_t> fixed = extent.value()) {
        entries.emplace_back(ints({*fixed}));
        continue;
      }
      const Place place = *placeOf(extent);
      Value& shape = build.node("Shape", {*place.input}, {}, "encoder_shape");
      entries.emplace_back(build.node("Gather", {shape, ints({place.axis})}, {}, "extent"));
    }
    Value& list = entries.size() == 1
                      ? build.value(entries.front())
                      : build.node("Concat", entries, attrs({{"axis", 0}}), "told_shape");
    return value.type().rank() == 1 ? list
                                    : build.node("Squeeze", {list, ints({0})}, {}, "told_extent");
  }

  const Inputs& inputs;
  Rewriter& rewriter;
  AttentionBuilder build;
  llvm::DenseSet<const Value*> seenBefore;
};

} // namespace

std::vector<CrossProjection> findCrossProjections(llvm::ArrayRef<Node*> attentions) {
  std::vector<CrossProjection> found;
  for (size_t number = 0; number < attentions.size(); ++number) {
    Node& attention = *attentions[number];
    const Dim& tokens = attention.operand(0)->type().dim(2);
    for (unsigned operand : {1U, 2U}) {
      Value& rows = *attention.operand(operand);
      const Inputs inputs = inputsBehind(rows);
      if (rows.isGraphInput() || inputs.empty() || !hasKnownRows(rows) ||
          llvm::any_of(inputs, [&](const Value* input) { return hasAxisOf(*input, tokens); }))
        continue;
      auto known = llvm::find_if(found, [&](const CrossProjection& other) {
        return other.rows == &rows && other.operand == operand;
      });
      if (known != found.end())
        known->attentions.push_back(&attention);
      else
        found.push_back(
            {&rows,
             fmt::format("past_key_values.{}.encoder.{}", number, operand == 1 ? "key" : "value"),
             {&attention},
             operand});
    }
  }
  return found;
}

void makeInputs(Graph& graph, llvm::ArrayRef<CrossProjection> projections, Journal& journal) {
  Inputs behind;
  Value* first = nullptr;
  for (const CrossProjection& projection : projections) {
    for (Value* input : inputsBehind(*projection.rows))
      behind.insert(input);
    Value& input = graph.addInput(graph.freshName(projection.name), projection.rows->type());
    for (Node* attention : projection.attentions)
      attention->setOperand(projection.operand, &input);
    if (!first)
      first = &input;
  }
  graph.eraseDeadNodes();
  for (Value* input : behind) {
    Rewriter rewriter(graph, "add-caches", journal, input->name());
    AttentionBuilder build(rewriter);
    rewireShapes(*input, *first, build, rewriter);
    graph.eraseDeadNodes();
    if (!input->hasUses() && !input->isGraphOutput())
      graph.removeInput(*input);
  }
}

void keepProjections(Graph& graph, llvm::ArrayRef<CrossProjection> projections, Journal& journal) {
  Inputs behind;
  for (const CrossProjection& projection : projections)
    for (Value* input : inputsBehind(*projection.rows))
      behind.insert(input);
  {
    Rewriter rewriter(graph, "add-caches", journal, "first step");
    ShapeSource shapes(behind, rewriter);
    for (const CrossProjection& projection : projections)
      shapes.retell(*projection.rows);
  }
  while (!graph.outputs().empty())
    graph.removeOutput(static_cast<unsigned>(graph.outputs().size() - 1));
  for (const CrossProjection& projection : projections) {
    Value* rows = projection.rows;
    if (rows->isGraphOutput()) // keys that are values
      rows = &graph.createFresh("Identity", {rows}, 1).result();
    graph.addOutput(*rows);
    graph.rename(*rows, graph.freshName(projection.name));
  }
  graph.eraseDeadNodes();
  llvm::SmallVector<Value*, 4> unread;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (!input->hasUses() && !input->isGraphOutput())
      unread.push_back(input.get());
  for (Value* input : unread)
    graph.removeInput(*input);
}

} // namespace kvopt::builders
