// The part of ONNX Runtime GenAI's genai_config.json that a rewritten model decides.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::driver {

/// The JSON of `model.decoder`, `model.vocab_size` (where it is fixed) and `search`, with caches in
/// one buffer; the context's length where the manifest fixes the capacity. What a model file does
/// not say (its type, special tokens) is taken from the folder of `model.path`
/// (completeGenaiConfig, which explains `replacesConfig`). `fileName` is the written model's,
/// without folders.
///
/// Fails, naming it, for an input that GenAI does not feed, for names of caches that are not one
/// template with the layer's number in it, and for layers whose heads differ.
llvm::Expected<std::string> genaiConfig(const ir::Model& model, const ir::Manifest& manifest,
                                        const std::string& fileName, bool replacesConfig = false);

} // namespace kvopt::driver
