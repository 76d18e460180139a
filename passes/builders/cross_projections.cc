// The cut between an encoder's side and the decoder's.
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

/// Graph inputs that the value is computed from, except through extents; nullopt if a subgraph is
/// involved, which may read anything.
std::optional<Inputs> inputsBehind(Value& value) {
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
    if (!node->subgraphs().empty())
      return std::nullopt;
    for (const Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  return inputs;
}

/// Whether a graph input belongs to the sequence with that number of rows, and not to the decoder's
/// tokens. An input without a place for each row, such as a number or an order of beams, may change
/// at every step.
bool isOfSequence(const Value& input, const Dim& rows, const Dim& tokens) {
  const TensorType& type = input.type();
  if (!type.hasRank() || type.rank() < 2)
    return false;
  const bool hasTokens = llvm::any_of(type.shape(), [&](const Dim& extent) {
    return llvm::any_of(extent.symbols(), [&](const std::string& symbol) {
      return llvm::is_contained(tokens.symbols(), symbol);
    });
  });
  return !hasTokens &&
         llvm::any_of(type.shape(), [&](const Dim& extent) { return extent.isKnownEqual(rows); });
}

bool hasKnownRows(const Value& rows) {
  const TensorType& type = rows.type();
  return type.hasRank() && type.rank() == 4 && type.dim(1).value() && type.dim(3).value() &&
         !type.dim(0).isUnknown() && !type.dim(2).isUnknown();
}

/// Whether rows [B,G,T,D] determine the extents of the input [B,T,W] from which they are computed,
/// if only those extents are read.
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

struct InputAxis {
  Value* input = nullptr;
  unsigned axis = 0;
};

/// An input that has an axis of that extent.
std::optional<InputAxis> axisWith(const Dim& extent, const Inputs& inputs) {
  for (Value* input : inputs)
    for (unsigned axis = 0; input->type().hasRank() && axis < input->type().rank(); ++axis)
      if (input->type().dim(axis).isKnownEqual(extent))
        return InputAxis{input, axis};
  return std::nullopt;
}

/// Whether the extents of the inputs determine a computed list of extents, or a single one.
bool isTold(const Value& value, const Inputs& inputs) {
  const TensorType& type = value.type();
  const auto known = value.knownIntegers();
  return value.producer() && !value.constant() && type.elementType() == ElementType::Int64 &&
         type.hasRank() && type.rank() <= 1 && known && !known->empty() &&
         llvm::all_of(
             *known, [&](const Dim& extent) { return extent.value() || axisWith(extent, inputs); });
}

/// Extents that the layout of the rows, or their computation, uses. Many exporters take the batch
/// from any available value, even of the decoder. nullopt if the inputs do not determine one of
/// them.
std::optional<llvm::SmallVector<Value*, 8>> toldExtents(Value& rows, const Inputs& inputs) {
  llvm::SmallVector<Value*, 8> told;
  llvm::SmallVector<Value*, 32> pending(1, &rows);
  llvm::DenseSet<const Value*> seen{&rows};
  while (!pending.empty()) {
    Value* value = pending.pop_back_val();
    if (isTold(*value, inputs)) {
      told.push_back(value);
      continue;
    }
    const Node* node = value->producer();
    if (node && node->is("Shape") && !inputs.contains(node->operand(0)))
      return std::nullopt;
    if (node)
      for (const Use& use : node->operands())
        if (use.value() && seen.insert(use.value()).second)
          pending.push_back(use.value());
  }
  return told;
}

/// The same list, or extent, computed from the inputs.
Value& retold(const Value& value, const Inputs& inputs, AttentionBuilder& build) {
  llvm::SmallVector<BuilderOperand, 4> entries;
  const auto known = value.knownIntegers();
  for (const Dim& extent : *known) {
    if (std::optional<int64_t> fixed = extent.value()) {
      entries.emplace_back(ints({*fixed}));
      continue;
    }
    const InputAxis place = *axisWith(extent, inputs);
    Value& shape = build.node("Shape", {*place.input}, {}, "encoder_shape");
    entries.emplace_back(build.node("Gather", {shape, ints({place.axis})}, {}, "extent"));
  }
  Value& list = entries.size() == 1
                    ? build.value(entries.front())
                    : build.node("Concat", entries, attrs({{"axis", 0}}), "told_shape");
  return value.type().rank() == 1 ? list
                                  : build.node("Squeeze", {list, ints({0})}, {}, "told_extent");
}

/// Whether the rows are computed from the other sequence only.
bool isProjection(Value& rows, const Dim& tokens, const llvm::DenseSet<const Value*>& caches) {
  if (rows.isGraphInput() || !hasKnownRows(rows) || tokens.symbols().empty())
    return false;
  const std::optional<Inputs> inputs = inputsBehind(rows);
  return inputs && !inputs->empty() &&
         llvm::all_of(*inputs,
                      [&](const Value* input) {
                        return !caches.contains(input) &&
                               isOfSequence(*input, rows.type().dim(2), tokens);
                      }) &&
         toldExtents(rows, *inputs);
}

} // namespace

std::vector<CrossProjection> findCrossProjections(llvm::ArrayRef<Node*> attentions,
                                                  const llvm::DenseSet<const Value*>& caches) {
  std::vector<CrossProjection> found;
  for (size_t number = 0; number < attentions.size(); ++number) {
    Node& attention = *attentions[number];
    const Dim& tokens = attention.operand(0)->type().dim(2);
    if (!isProjection(*attention.operand(1), tokens, caches) ||
        !isProjection(*attention.operand(2), tokens, caches))
      continue;
    for (unsigned operand : {1U, 2U}) {
      Value& rows = *attention.operand(operand);
      auto known = llvm::find_if(found, [&](const CrossProjection& other) {
        return other.rows == &rows && other.operand == operand;
      });
      if (known != found.end())
        known->attentions.push_back(&attention);
      else
        found.push_back(
            {&rows,
             formatted("past_key_values.{}.encoder.{}", number, operand == 1 ? "key" : "value"),
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
    const std::optional<Inputs> inputs = inputsBehind(*projection.rows);
    behind.insert(inputs->begin(), inputs->end());
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
  llvm::DenseSet<const Value*> told;
  for (const CrossProjection& projection : projections) {
    const Inputs inputs = *inputsBehind(*projection.rows);
    Rewriter rewriter(graph, "add-caches", journal, projection.name);
    AttentionBuilder build(rewriter);
    const auto extents = toldExtents(*projection.rows, inputs);
    for (Value* extent : *extents)
      if (told.insert(extent).second)
        rewriter.replace(*extent, retold(*extent, inputs, build));
  }
  while (!graph.outputs().empty())
    graph.removeOutput(static_cast<unsigned>(graph.outputs().size() - 1));
  for (const CrossProjection& projection : projections) {
    Value* rows = projection.rows;
    if (rows->isGraphOutput()) // keys that are values, too
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
