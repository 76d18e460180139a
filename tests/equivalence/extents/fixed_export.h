// Models as an exporter for fixed extents would have written them.
#pragma once

#include "driver/recover.h"
#include "ir/onnx/export.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/interface/decoder_extents.h"
#include "passes/pass_manager.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {

/// What a step of the export has.
struct StepExtents {
  int64_t batch = 1;
  int64_t tokens = 1;
  int64_t past = 5;
};

/// Gives the inputs of a decoder those extents and makes constants of all numbers that follow from
/// them, as exporters do. False for a model whose extents are not known.
inline bool fixExtents(ir::Model& model, const StepExtents& step, const driver::Toolkit& toolkit) {
  using namespace ir;
  passes::PassContext context(toolkit.rules, toolkit.targets);
  passes::PassManager manager(toolkit.passes, {});
  successOrThrow(manager.addPipeline(std::string(driver::readingPipeline) + ",relate-extents"));
  successOrThrow(manager.run(model, context));
  Graph& graph = model.graph();
  const auto found = analysis::findDecoderExtents(graph);
  const auto* extents = std::get_if<analysis::DecoderExtents>(&found);
  if (!extents)
    return false;
  const std::pair<Dim, int64_t> numbers[] = {
      {extents->batch, step.batch}, {extents->tokens, step.tokens}, {extents->past, step.past}};
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (!input->type().hasRank())
      return false;
    Shape shape;
    for (const Dim& extent : input->type().shape()) {
      const Dim fixed = extent.substitute([&](llvm::StringRef symbol) -> std::optional<Dim> {
        for (const auto& [dim, number] : numbers)
          if (dim == Dim::symbol(symbol))
            return Dim::fixed(number);
        return std::nullopt;
      });
      if (!fixed.value())
        return false;
      shape.push_back(fixed);
    }
    input->setType(TensorType(input->type().elementType(), shape));
  }
  for (Node& node : graph.nodes())
    for (Value& result : node.results())
      result.setType(TensorType(result.type().elementType()));
  successOrThrow(inferShapes(graph));
  for (Node& node : graph.nodes()) {
    if (node.results().size() != 1 || node.is("Constant"))
      continue;
    Value& result = node.result();
    const auto known = result.knownIntegers();
    if (!known || result.type().elementType() != ElementType::Int64 || result.isGraphOutput() ||
        !llvm::all_of(*known, [](const Dim& number) { return number.value().has_value(); }))
      continue;
    llvm::SmallVector<int64_t, 8> values;
    for (const Dim& number : *known)
      values.push_back(*number.value());
    result.replaceAllUsesWith(graph.addConstant(
        "folded", result.type().rank() == 0 ? int64Scalar(values.front()) : int64Tensor(values)));
  }
  graph.eraseDeadNodes();
  model.markEdited();
  successOrThrow(inferShapes(graph));
  return true;
}

} // namespace kvopt
