// Engine facts: one table of the operators that kvopt writes and the engines that run them. The
// commands and docs/targets.md read it.
#pragma once

#include "driver/forms/form.h"
#include "ir/graph.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// A requirement of a written model on the engine that runs it.
enum class EngineUse : uint8_t {
  GroupQueryAttention,
  QuantizedCaches, ///< GroupQueryAttention over codes
  QueryKeyNorms,   ///< GroupQueryAttention with norms of queries and keys
  MultiHeadAttention,
  PagedFloat32,
  PagedFloat16, ///< and bfloat16
  Opset23,
  Opset24,
  OwnOperators, ///< ai.kvopt
  Standard,     ///< nothing but older operators of ONNX
};

/// One row of the table.
struct EngineFact {
  EngineUse use;
  const char* what;  ///< the operators, in words
  const char* types; ///< element types of caches
  /// The oldest version of ONNX Runtime that is known to load the model; null if none is known.
  const char* ortVersion;
  /// Whether ONNX Runtime computes the operators with kernels of its own on the CPU, rather than by
  /// function bodies, on GPUs only, or not at all.
  bool hasKernels;
  /// A sentence about a limitation; empty if there is none.
  const char* note;
};
llvm::ArrayRef<EngineFact> engineFacts();
const EngineFact& engineFact(EngineUse use);

/// The requirements of a model, in the order of the table.
std::vector<EngineUse> engineUses(ir::Graph& graph);

/// The notes on a form, for a user who is about to write it. `isFloat32`: whether the caches are
/// float32.
std::vector<std::string> engineNotes(const Form& form, bool isFloat32);
/// The notes on a written model. `others`: further forms for ONNX Runtime that the model can have,
/// the best one first. A note names the one that does not have the limitation.
std::vector<std::string> engineNotes(ir::Graph& graph, llvm::ArrayRef<Form> others = {});

/// Name of the program that runs an engine's forms: "ONNX Runtime".
const char* runnerOf(Engine engine);

/// The table as text for a terminal, and as a section of docs/targets.md.
std::string enginesText();
std::string enginesMarkdown();

} // namespace kvopt::driver
