// Models as an exporter that folds constants would have written them.
#pragma once

#include "runtime/exec/executor.h"
#include "support/string_ends.h"
#include "tests/equivalence/extents/fixed_export.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt {

/// Puts constants in the place of all that a graph computes from constants only.
class ConstantFolder {
public:
  ConstantFolder(ir::Model& foldedModel, const driver::Toolkit& tools)
      : model(foldedModel), graph(foldedModel.graph()), toolkit(tools) {}

  void run() {
    const std::vector<std::string> names = frontier();
    if (names.empty())
      return;
    const std::vector<ir::TensorRef> tensors = computed(names);
    for (size_t i = 0; i < names.size(); ++i)
      graph.findValue(names[i])->replaceAllUsesWith(graph.addConstant("folded_table", tensors[i]));
    graph.eraseDeadNodes();
    model.markEdited();
    successOrThrow(ir::inferShapes(graph));
  }

private:
  /// What is computed from constants and read by what is not.
  std::vector<std::string> frontier() {
    for (const ir::Node& node : graph.nodes()) {
      const bool isFolded =
          !node.operands().empty() && node.subgraphs().empty() && node.op().isOnnx() &&
          !startsWith(node.op().type(), "Random") &&
          llvm::all_of(node.operands(), [&](const ir::Use& use) {
            return !use.value() || use.value()->constant() || folded.contains(use.value());
          });
      if (isFolded)
        for (const ir::Value& result : node.results())
          folded.insert(&result);
    }
    std::vector<std::string> names;
    for (const ir::Node& node : graph.nodes())
      for (const ir::Value& result : node.results())
        if (folded.contains(&result) && !result.isGraphOutput() &&
            llvm::any_of(result.uses(), [&](const ir::Use& use) {
              return use.user().results().empty() || !folded.contains(&use.user().result());
            }))
          names.push_back(result.name().str());
    return names;
  }

  /// Runs that part of the graph.
  std::vector<ir::TensorRef> computed(llvm::ArrayRef<std::string> names) const {
    const std::string bytes = valueOrThrow(ir::exportModelBytes(model));
    const auto part = valueOrThrow(
        ir::importModelBytes(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())),
                             model.folder, toolkit.ops, ir::ModelLimits::none()));
    ir::Graph& body = part->graph();
    while (!body.outputs().empty())
      body.removeOutput(0);
    for (const std::string& name : names)
      body.addOutput(*body.findValue(name));
    body.eraseDeadNodes();
    std::vector<ir::Value*> unread;
    for (const std::unique_ptr<ir::Value>& input : body.inputs())
      unread.push_back(input.get());
    for (ir::Value* input : unread)
      body.removeInput(*input);
    part->markEdited();
    successOrThrow(ir::inferShapes(body));
    const auto executor = valueOrThrow(runtime::Executor::create(*part, toolkit.runner->kernels()));
    std::vector<ir::TensorRef> tensors;
    for (const runtime::Tensor& tensor :
         valueOrThrow(executor->run(llvm::ArrayRef<runtime::NamedView>()))) {
      if (!tensor.view.isContiguous())
        throw std::runtime_error("a folded tensor is not contiguous");
      const std::vector<std::byte> data(tensor.view.data,
                                        tensor.view.data + tensor.view.byteSize());
      tensors.push_back(valueOrThrow(ir::makeTensor(tensor.view.element, tensor.view.shape, data)));
    }
    return tensors;
  }

  ir::Model& model;
  ir::Graph& graph;
  const driver::Toolkit& toolkit;
  llvm::DenseSet<const ir::Value*> folded;
};

} // namespace kvopt
