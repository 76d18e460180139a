// Reading ONNX files.
#pragma once

#include "ir/model.h"
#include "ir/verify/model_gate.h"

#include "llvm/Support/Error.h"

#include <span>

namespace kvopt::ir {

/// Reads a model file and checks it (admit). Weights are not touched: inline ones stay in the
/// parsed message, and external ones are opened when their bytes are needed, in the model's folder
/// only (see ConfinedFolder). Errors: unreadable, truncated or malformed files; a graph that reads
/// an undefined value or defines one twice; whatever admit() refuses. `registry` must outlive the
/// model.
llvm::Expected<std::unique_ptr<Model>>
importModel(const std::string& path, const OpRegistry& registry, const ModelLimits& limits = {});

/// The same from memory; `folder` is where external data is looked for.
llvm::Expected<std::unique_ptr<Model>> importModelBytes(std::span<const std::byte> bytes,
                                                        const ConfinedFolder& folder,
                                                        const OpRegistry& registry,
                                                        const ModelLimits& limits = {});

/// Reads one serialized TensorProto (the form of reference inputs and outputs) and its name.
llvm::Expected<std::pair<std::string, TensorRef>> importTensorFile(const std::string& path);

} // namespace kvopt::ir
