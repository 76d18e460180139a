// Assumes that no batch row is padded: every row of the caches then has all rows of the past.
//
//   before   length = ReduceSum(attention_mask) - S
//            all = ai.kvopt.AppendRows(past, new, length)
//            o = ai.kvopt.Sdpa(q, keys(all), values, , , length)
//   after    all = Concat<2>(past, new)
//            o = ai.kvopt.Sdpa(q, keys(all), values)
//
// GroupQueryAttention places new rows at each batch row's length, which a model computes from its
// attention_mask. Caches with one length for all batch rows, in blocks or rings, do not support
// that. Without padding the mask consists of ones and its sum is the number of all tokens, so the
// length is the past's extent. The graph cannot guarantee that callers never pad; the manifest
// requires it, and names the masks that must be ones.
#include "ir/movement.h"
#include "ir/op_name.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/unpadded_length.h"
#include "passes/pass.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;

namespace {

constexpr const char* assumeNoPaddingName = "assume-no-padding";
/// Operands of ai.kvopt::AppendRows and ai.kvopt::Sdpa.
constexpr unsigned appendedLength = 2;
constexpr unsigned attendedLength = 5;

class PaddingRemover {
public:
  PaddingRemover(Graph& changedGraph, PassContext& passContext)
      : graph(changedGraph), context(passContext) {}

  llvm::Error run() {
    for (Node& node : llvm::make_early_inc_range(graph.nodes()))
      if (node.op() == OpName(kvoptDomain, "AppendRows"))
        join(node);
    if (joins.empty())
      return llvm::Error::success();
    for (Node& node : graph.nodes())
      if (node.op() == OpName(kvoptDomain, "Sdpa") && node.operands().size() > attendedLength &&
          equalLengths.contains(node.operand(attendedLength)) && readsJoined(node.operand(1)) &&
          readsJoined(node.operand(2)))
        dropLength(node);
    graph.eraseDeadNodes();
    return inferShapes(graph);
  }

private:
  /// Whether the rows belong to a joined cache, moved or not.
  bool readsJoined(const Value* rows) const {
    while (rows && rows->producer() && !joins.contains(rows->producer())) {
      const std::optional<MovementKind> kind = movementKind(*rows->producer());
      if (!kind || *kind == MovementKind::Concat)
        return false;
      rows = movedOperand(*rows->producer());
    }
    return rows && rows->producer();
  }

  static void dropLength(Node& attention) {
    llvm::SmallVector<Value*, 6> operands;
    for (const Use& use : attention.operands().take_front(attendedLength))
      operands.push_back(use.value());
    while (!operands.back())
      operands.pop_back();
    attention.setOperands(operands);
  }

  /// The sum of one mask is one number, whatever symbols the pasts are declared with.
  static void renameRows(Value& past, const Dim& rows) {
    TensorType type = past.type();
    Shape shape(type.shape().begin(), type.shape().end());
    shape[2] = rows;
    type.setShape(std::move(shape));
    past.setType(std::move(type));
  }

  void join(Node& node) {
    Value& past = *node.operand(0);
    Value& fresh = *node.operand(1);
    Value* length = node.operand(appendedLength);
    const Dim rows = past.type().dim(2);
    const auto unpadded = unpaddedLength(*length, rows, fresh.type().dim(2));
    if (!unpadded || !unpadded->length.isKnownEqual(rows))
      return;
    for (const Value* mask : unpadded->masks) {
      context.unpaddedMasks.insert(mask->name().str());
      const Dim& counted = countedRows.try_emplace(mask, rows).first->second;
      if (!counted.isKnownEqual(rows))
        renameRows(past, counted);
    }
    equalLengths.insert(length);
    Node& joined = graph.createFresh("Concat", {&past, &fresh}, 1, &node, "present");
    joined.setAttribute("axis", Attribute::ofInt(2));
    joined.result().setType(node.result().type());
    node.result().replaceAllUsesWith(joined.result());
    joins.insert(&joined);
    graph.erase(node);
    context.count(assumeNoPaddingName, "caches", 1);
  }

  Graph& graph;
  PassContext& context;
  llvm::DenseMap<const Value*, Dim> countedRows; ///< by mask: number of its rows in the past
  llvm::SmallPtrSet<const Value*, 4> equalLengths;
  llvm::SmallPtrSet<const Node*, 16> joins;
};

class AssumeNoPadding final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    return PaddingRemover(model.graph(), context).run();
  }
};

} // namespace

void register_assume_no_padding(PassRegistry& registry) {
  registry.add({assumeNoPaddingName,
                "Assumes that no batch row is padded: appends new rows after all rows of the past.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<AssumeNoPadding>());
                }});
}

} // namespace kvopt::transforms
