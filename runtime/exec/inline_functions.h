// Inlining of model-local functions, so that operators without a kernel run through their bodies.
#pragma once

#include "ir/model.h"
#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// A copy of a model's main graph in which calls, in subgraphs too, are replaced by the bodies of
/// the functions.
class InlinedGraph {
public:
  InlinedGraph(const ir::OpRegistry& registry, ir::OpsetImports opsets);
  ir::Graph& graph() { return copy; }

private:
  ir::GraphContext context;
  ir::OpsetImports imports;
  ir::Graph copy;
};

/// Copies the main graph with every call inlined for which there is a function but no kernel, down
/// to a fixed depth, with its sequences replaced by their elements (StaticSequences), and infers
/// its types. Null when there is no such call and no sequence. The copy shares the
/// constants' data and must not outlive the model.
///
/// Fails (Unsupported) for functions nested too deeply, and for a body written for an opset version
/// in which an operator means something else than in the model's.
llvm::Expected<std::unique_ptr<InlinedGraph>> inlineFunctions(const ir::Model& model,
                                                              const KernelRegistry& kernels);

} // namespace kvopt::runtime
