// Reading ONNX files.
#pragma once

#include "ir/model.h"
#include "ir/verify/model_gate.h"

#include "llvm/Support/Error.h"

#include <span>

namespace kvopt::ir {

/// Reads a model file and checks it (admit). Does not load weights: inline ones stay in the parsed
/// message, and external ones are opened on demand, in the model's folder only (see
/// ConfinedFolder). Fails for unreadable, truncated or malformed files, for graphs that read an
/// undefined value or define one twice, and whenever admit() fails. `registry` must outlive the
/// model.
llvm::Expected<std::unique_ptr<Model>>
importModel(const std::string& path, const OpRegistry& registry, const ModelLimits& limits = {});

/// The same from memory; `folder` contains the external data.
llvm::Expected<std::unique_ptr<Model>> importModelBytes(std::span<const std::byte> bytes,
                                                        const ConfinedFolder& folder,
                                                        const OpRegistry& registry,
                                                        const ModelLimits& limits = {});

/// The bytes of the file, or the memory, that the model was read from, which it owns; empty for a
/// model that was not read. Edits do not change them.
std::span<const std::byte> sourceBytes(const Model& model);

/// Frees the memory of the file's pages. The model does not need them; sourceBytes reads them
/// again.
void releaseSource(const Model& model);

/// Declares that few constants of the external data are read, so that the system reads no others.
void expectFewReads(const Model& model);

/// Reads a serialized TensorProto (the format of reference inputs and outputs) and its name.
llvm::Expected<std::pair<std::string, TensorRef>> importTensorFile(const std::string& path);

} // namespace kvopt::ir
