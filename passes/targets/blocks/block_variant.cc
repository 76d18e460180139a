// Removal of blocks.
#include "passes/targets/blocks/block_variant.h"

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/blocks/input_extents.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {
using namespace ir;

namespace {

llvm::StringSet<> blockNames(const Manifest& manifest) {
  llvm::StringSet<> names;
  for (const ManifestCache& cache : manifest.caches)
    for (const std::string& block : cache.blocks())
      names.insert(block);
  return names;
}

/// Removes inputs from a graph, with all values that were only moved from them.
class BlockRemoval {
public:
  BlockRemoval(Graph& edited, llvm::StringSet<> names)
      : graph(edited), removed(std::move(names)), extents(edited, removed) {}

  llvm::Error run() {
    llvm::SmallVector<Value*, 16> inputs;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (removed.contains(input->name()))
        inputs.push_back(input.get());
    pending.insert(inputs.begin(), inputs.end());
    // A Concat that loses all operands disappears, too.
    while (!pending.empty()) {
      while (!pending.empty())
        if (llvm::Error error = dropReads(*pending.pop_back_val()))
          return error;
      shortenJoins();
    }
    graph.eraseDeadNodes();
    for (Value* input : inputs) {
      if (!input->isUnused())
        return invalid("the block is read where it is not joined with others").value(input->name());
      graph.removeInput(*input);
    }
    return llvm::Error::success();
  }

private:
  llvm::Error dropReads(Value& value) {
    if (!gone.insert(&value).second)
      return llvm::Error::success();
    if (value.isGraphOutput())
      return invalid("the block is an output").value(value.name());
    llvm::SetVector<Node*> readers;
    for (const Use& use : value.uses())
      readers.insert(&use.user());
    for (Node* reader : readers) {
      if (reader->is("Shape")) {
        if (llvm::Error error = replaceExtents(*reader))
          return error;
      } else if (&reader->graph() == &graph && reader->is("Concat")) {
        joins.insert(reader);
      } else if (&reader->graph() == &graph && movesRows(*reader) &&
                 movedOperand(*reader) == &value) {
        for (Value& result : reader->results())
          pending.insert(&result);
      } else {
        return invalid("a block is read where it is not joined with others")
            .node(reader->name(), reader->op().str());
      }
    }
    return llvm::Error::success();
  }

  static bool movesRows(const Node& node) {
    const std::optional<MovementKind> kind = movementKind(node);
    if (!kind)
      return false;
    switch (*kind) {
    case MovementKind::Same:
    case MovementKind::Convert:
    case MovementKind::Permutation:
    case MovementKind::Reshape:
    case MovementKind::InsertAxes:
    case MovementKind::RemoveAxes:
    case MovementKind::Slice:
      return true;
    case MovementKind::Broadcast:
    case MovementKind::Repeat:
    case MovementKind::Gather:
    case MovementKind::PointGather:
    case MovementKind::Concat:
      return false;
    }
    return false;
  }

  /// Removes the erased values from every Concat that reads some of them.
  void shortenJoins() {
    for (Node* join : joins) {
      llvm::SmallVector<Value*, 8> left;
      for (const Use& use : join->operands())
        if (use.value() && !gone.count(use.value()))
          left.push_back(use.value());
      if (left.empty()) {
        pending.insert(&join->result());
      } else if (left.size() == 1) {
        join->result().replaceAllUsesWith(*left.front());
      } else {
        join->setOperands(left);
      }
    }
    joins.clear();
  }

  /// Extents other than the number of rows are taken from inputs that remain.
  llvm::Error replaceExtents(Node& shape) {
    if (extentsRead(shape).empty())
      return invalid("an extent of the block is not known").node(shape.name(), shape.op().str());
    Value* spelled = extents.spell(shape);
    if (!spelled)
      return unsupported("no other input has an extent of the block")
          .node(shape.name(), shape.op().str());
    shape.result().replaceAllUsesWith(*spelled);
    return llvm::Error::success();
  }

  Graph& graph;
  llvm::StringSet<> removed;
  InputExtents extents;
  llvm::SetVector<Value*> pending;
  llvm::SetVector<Node*> joins;
  llvm::DenseSet<const Value*> gone;
};

/// Updates the constant that holds the number of rows.
llvm::Error setPastRows(Model& model, int64_t rows) {
  const std::string* name = model.findMetadata(pastRowsKey);
  Value* before = name ? model.graph().findValue(*name) : nullptr;
  const bool isOne = before && before->initializer() && !before->isGraphInput() &&
                     before->initializer()->elementType() == ElementType::Int64 &&
                     before->initializer()->shape() == llvm::ArrayRef<int64_t>({1});
  if (!isOne)
    return invalid("the model does not name the constant with the number of rows in its blocks");
  Value& after = model.graph().addConstant(*name, int64Tensor({rows}));
  before->replaceAllUsesWith(after);
  model.graph().removeInitializer(*before);
  if (after.name() != *name)
    model.graph().rename(after, *name);
  return llvm::Error::success();
}

} // namespace

const Node* readerOfBlockExtents(const Graph& graph, const Manifest& manifest) {
  const llvm::StringSet<> names = blockNames(manifest);
  const InputExtents extents(graph, names);
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (!names.contains(input->name()))
      continue;
    for (const Use& use : input->uses())
      if (use.user().is("Shape"))
        for (const Dim& extent : extentsRead(use.user()))
          if (!extent.value() && !extents.has(extent))
            return &use.user();
  }
  return nullptr;
}

llvm::Error keepPastBlocks(Model& model, const Manifest& manifest, int64_t blocks) {
  const auto variant = llvm::find_if(manifest.variants, [&](const ManifestVariant& candidate) {
    return candidate.pastBlocks == blocks;
  });
  if (variant == manifest.variants.end())
    return usageError("the model has no variant with {} blocks", blocks);
  llvm::StringSet<> removed;
  for (const ManifestCache& cache : manifest.caches)
    for (size_t i = static_cast<size_t>(blocks); i < cache.blocks().size(); ++i)
      removed.insert(cache.blocks()[i]);
  model.markEdited();
  if (llvm::Error error = BlockRemoval(model.graph(), std::move(removed)).run())
    return error;
  if (llvm::Error error = setPastRows(model, variant->pastRows))
    return error;
  model.removeMetadata(manifestKey);
  model.setMetadata(pastBlocksKey, std::to_string(blocks));
  return inferShapes(model.graph());
}

} // namespace kvopt::targets
