// Reading ONNX files.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <span>

namespace kvopt {

/// Reads a model file. Weights are not touched: inline ones stay in the parsed message, external
/// ones are opened when somebody asks for their bytes, beneath the model's folder only.
/// Errors: unreadable, truncated or malformed files; a graph that names a value nobody defines or
/// defines one twice; absurd shapes. `registry` must outlive the model.
llvm::Expected<std::unique_ptr<Model>> importModel(const std::string& path,
                                                   const OpRegistry& registry);

/// The same from memory; `folder` is where external data is looked for.
llvm::Expected<std::unique_ptr<Model>> importModelBytes(std::span<const std::byte> bytes,
                                                        const std::string& folder,
                                                        const OpRegistry& registry);

/// Reads one serialized TensorProto (the form of reference inputs and outputs) and its name.
llvm::Expected<std::pair<std::string, TensorRef>> importTensorFile(const std::string& path);

} // namespace kvopt
