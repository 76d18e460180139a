// Decoders with caches, as an export without them would have written them.
#pragma once

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/driven_caches.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt {

/// Takes the caches that grow from a decoder, which then computes whole sequences.
class CacheRemover {
public:
  explicit CacheRemover(ir::Model& changed) : model(changed), graph(changed.graph()) {}

  /// False for a model without such caches, and for one whose operators hold them.
  bool run() {
    if (!findExtents())
      return false;
    for (const ir::ManifestCache& cache : caches)
      removePast(*graph.findValue(cache.past));
    for (const ir::ManifestCache& cache : caches)
      removePresent(cache.present);
    giveExtents();
    // What is known of extents may be known of more of them once a Concat is gone.
    for (unsigned round = 0; round < 3; ++round) {
      inferAgain();
      removeEmptyParts();
      foldIntegers();
      graph.eraseDeadNodes();
    }
    for (const std::string& past : pasts)
      if (ir::Value* input = graph.findValue(past)) {
        if (input->hasUses())
          return false;
        graph.removeInput(*input);
      }
    inferAgain();
    model.markEdited();
    return true;
  }

  /// The caches that the decoder had.
  llvm::ArrayRef<ir::ManifestCache> removedCaches() const { return caches; }

private:
  bool findExtents() {
    for (ir::ManifestCache& cache : analysis::cachesByDataFlow(graph, {}))
      if (cache.update() == ir::CacheUpdate::Grows) {
        pasts.push_back(cache.past);
        caches.push_back(std::move(cache));
      }
    for (const std::unique_ptr<ir::Value>& input : graph.inputs()) {
      if (llvm::is_contained(pasts, input->name().str()) || !input->type().hasRank() ||
          input->type().rank() < 2)
        continue;
      const ir::Dim& rows = input->type().dim(1);
      if (rows.symbols().size() != 1 || !(rows == ir::Dim::symbol(rows.symbols().front())))
        continue;
      tokensLike = input.get();
      batch = input->type().dim(0);
      tokens = rows;
      break;
    }
    return tokensLike && !caches.empty();
  }

  /// Readers take a tensor without rows.
  void removePast(ir::Value& past) {
    const ir::ManifestCache& cache = *llvm::find_if(
        caches, [&](const ir::ManifestCache& each) { return each.past == past.name(); });
    llvm::SmallVector<ir::Value*, 4> extents;
    for (unsigned axis = 0; axis < past.type().rank(); ++axis) {
      const ir::Dim& extent = past.type().dim(axis);
      if (static_cast<int64_t>(axis) == cache.sequenceAxis)
        extents.push_back(&graph.addConstant("none", ir::int64Tensor({0})));
      else if (extent.value())
        extents.push_back(&graph.addConstant("extent", ir::int64Tensor({*extent.value()})));
      else
        extents.push_back(&batchExtent());
    }
    ir::Node* const before = batchNode ? graph.nodeAfter(*batchNode) : graph.firstNode();
    ir::Node& list = graph.createFresh("Concat", extents, 1, before);
    list.setAttribute("axis", ir::Attribute::ofInt(0));
    ir::Node& none =
        graph.createFresh("ConstantOfShape", {&list.result()}, 1, graph.nodeAfter(list));
    none.setAttribute("value", ir::Attribute::ofTensor(zeroOf(past.type().elementType())));
    past.replaceAllUsesWith(none.result());
  }

  static ir::TensorRef zeroOf(ir::ElementType type) {
    return valueOrThrow(ir::makeTensor(
        type, {1}, std::vector<std::byte>(static_cast<size_t>(*ir::byteWidth(type)))));
  }

  ir::Value& batchExtent() {
    if (!batchNode) {
      ir::Node& shape = graph.createFresh("Shape", {tokensLike}, 1, graph.firstNode());
      batchNode =
          &graph.createFresh("Slice",
                             {&shape.result(), &graph.addConstant("from", ir::int64Tensor({0})),
                              &graph.addConstant("to", ir::int64Tensor({1}))},
                             1, graph.nodeAfter(shape));
    }
    return batchNode->result();
  }

  void removePresent(llvm::StringRef name) {
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
      if (graph.outputs()[slot]->name() == name)
        return graph.removeOutput(slot);
  }

  /// Inputs have no place for earlier tokens.
  void giveExtents() {
    llvm::StringSet<> others; // of another sequence
    for (const std::unique_ptr<ir::Value>& input : graph.inputs())
      if (!llvm::is_contained(pasts, input->name().str()) && input->type().hasRank() &&
          input->type().rank() > 2 && ir::isFloatingPoint(input->type().elementType()) &&
          input->type().dim(1).value() != 1 && !(input->type().dim(1) == tokens))
        for (const ir::Dim& extent : input->type().shape())
          for (const std::string& symbol : extent.symbols())
            others.insert(symbol);
    for (const std::unique_ptr<ir::Value>& input : graph.inputs()) {
      if (!input->type().hasRank() || llvm::is_contained(pasts, input->name().str()))
        continue;
      ir::Shape shape(input->type().shape().begin(), input->type().shape().end());
      for (unsigned axis = 1; axis < shape.size(); ++axis)
        if (!shape[axis].value() && !(shape[axis] == batch) &&
            llvm::none_of(shape[axis].symbols(),
                          [&](const std::string& symbol) { return others.contains(symbol); }))
          shape[axis] = tokens;
      input->setType(ir::TensorType(input->type().elementType(), shape));
    }
  }

  void inferAgain() {
    for (ir::Node& node : graph.nodes())
      for (ir::Value& result : node.results())
        result.setType(ir::TensorType(result.type().elementType()));
    successOrThrow(ir::inferShapes(graph));
  }

  void removeEmptyParts() {
    for (ir::Node& node : llvm::make_early_inc_range(graph.nodes())) {
      if (node.is("Attention"))
        for (unsigned past : {4U, 5U})
          if (ir::Value* value = node.operand(past);
              value && value->producer() && value->producer()->is("ConstantOfShape"))
            node.setOperand(past, nullptr);
      if (!node.is("Concat") || !node.result().type().hasRank())
        continue;
      const auto axis = ir::normalizedAxis(node.intAttr("axis", 0), node.result().type().rank());
      llvm::SmallVector<ir::Value*, 4> kept;
      for (const ir::Use& use : node.operands())
        if (!axis || use.value()->type().dim(*axis).value() != 0)
          kept.push_back(use.value());
      if (kept.size() == 1)
        node.result().replaceAllUsesWith(*kept.front());
      else if (kept.size() < node.operands().size() && !kept.empty())
        node.setOperands(kept);
    }
  }

  void foldIntegers() {
    for (ir::Node& node : graph.nodes()) {
      if (node.results().size() != 1 || node.is("Constant"))
        continue;
      ir::Value& result = node.result();
      const auto known = result.knownIntegers();
      if (!known || result.type().elementType() != ir::ElementType::Int64 ||
          result.isGraphOutput() ||
          !llvm::all_of(*known, [](const ir::Dim& number) { return number.value().has_value(); }))
        continue;
      llvm::SmallVector<int64_t, 8> values;
      for (const ir::Dim& number : *known)
        values.push_back(*number.value());
      result.replaceAllUsesWith(graph.addConstant("folded", result.type().rank() == 0
                                                                ? ir::int64Scalar(values.front())
                                                                : ir::int64Tensor(values)));
    }
  }

  ir::Model& model;
  ir::Graph& graph;
  std::vector<ir::ManifestCache> caches;
  std::vector<std::string> pasts;
  ir::Value* tokensLike = nullptr;
  ir::Node* batchNode = nullptr;
  ir::Dim batch;
  ir::Dim tokens;
};

} // namespace kvopt
