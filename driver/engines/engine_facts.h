// What engines run of what kvopt writes: one table, which the commands and docs/targets.md read.
#pragma once

#include "driver/forms/form.h"
#include "ir/graph.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// What a written model needs of an engine.
enum class EngineUse : uint8_t {
  GroupQueryAttention,
  QuantizedCaches, ///< GroupQueryAttention over codes
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
  /// The oldest version of ONNX Runtime that is known to load the model; null where none is.
  const char* ortVersion;
  /// What a user should know, as a sentence. Empty where the model runs as it should.
  const char* note;
};
llvm::ArrayRef<EngineFact> engineFacts();
const EngineFact& engineFact(EngineUse use);

/// What a model uses, in the order of the table.
std::vector<EngineUse> engineUses(ir::Graph& graph);

/// What a user should know before a form is written: the notes of what it uses. `isFloat32` says
/// whether caches are of float32.
std::vector<std::string> engineNotes(const Form& form, bool isFloat32);
/// The same of a written model.
std::vector<std::string> engineNotes(ir::Graph& graph);

/// Who runs files of an engine's form: "ONNX Runtime".
const char* runnerOf(Engine engine);

/// The table for a terminal, and as a part of docs/targets.md.
std::string enginesText();
std::string enginesMarkdown();

} // namespace kvopt::driver
