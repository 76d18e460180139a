// Inlining of model-local functions, which runs operators without a kernel through their bodies.
#pragma once

#include "ir/model.h"
#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// A copy of a model's main graph in which calls, including those in subgraphs, are replaced by the
/// bodies of the functions.
class InlinedGraph {
public:
  InlinedGraph(const ir::OpRegistry& registry, ir::OpsetImports opsets);
  ir::Graph& graph() { return copy; }

private:
  ir::GraphContext context;
  ir::OpsetImports imports;
  ir::Graph copy;
};

/// Copies the main graph, inlines every call of a function without a kernel up to a fixed depth,
/// replaces sequences by their elements (StaticSequences), and infers types. Null if there is no
/// such call and no sequence. The copy shares the constants' data and must not outlive the model.
///
/// Fails (Unsupported) for functions that are nested too deeply, and for a body that is written for
/// an opset version in which an operator has another meaning than in the model's.
llvm::Expected<std::unique_ptr<InlinedGraph>> inlineFunctions(const ir::Model& model,
                                                              const KernelRegistry& kernels);

} // namespace kvopt::runtime
