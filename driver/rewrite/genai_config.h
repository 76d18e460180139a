// The part of ONNX Runtime GenAI's genai_config.json that a rewritten model determines.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::driver {

/// The text of genai_config.json for a model with caches in one buffer: `model.decoder`,
/// `model.vocab_size` if it is fixed, `search`, and the context length if the manifest fixes the
/// capacity. Facts that a model file does not contain, such as its type and special tokens, come
/// from the folder of `model.path` (see completeGenaiConfig, also for `replacesConfig`). `fileName`
/// is the file name of the written model, without folders. A model with operators of kvopt gets
/// `session_options.custom_ops_library`, the path `operatorLibrary`, unless it is empty: GenAI then
/// runs the function bodies.
///
/// Fails for an input that GenAI does not feed, for names of caches that do not follow one template
/// with the layer's number, and for layers with different numbers of heads. The error names the
/// cause.
llvm::Expected<std::string> genaiConfig(const ir::Model& model, const ir::Manifest& manifest,
                                        const std::string& fileName, bool replacesConfig = false,
                                        const std::string& operatorLibrary = "");

} // namespace kvopt::driver
