// Contents of a folder for ONNX Runtime GenAI other than the model: facts that the model file does
// not contain, and the tokenizer's files. Both come from the folder of the exported model.
#pragma once

#include "support/json_fwd.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Names of the tokenizer's files that are in the folder of the model at `modelPath`. Symbolic
/// links that lead out of the folder do not count, unless they belong to a download cache
/// (support/confined_folder.h).
std::vector<std::string> tokenizerFiles(const std::string& modelPath);

/// The bytes of one tokenizer file.
llvm::Expected<std::string> tokenizerFile(const std::string& modelPath, const std::string& name);

/// The paths of all files in the model's folder that may be read, except genai_config.json. They
/// need not exist.
std::vector<std::string> genaiSources(const std::string& modelPath);

/// Adds missing settings to `config`, a genai_config.json: type, special tokens, context length,
/// vocabulary and search settings. They come from the genai_config.json in the folder of the
/// exported model, or else from generation_config.json and config.json. A file that is not a JSON
/// object is ignored; so is a genai_config.json that `config` will replace (`replacesConfig`).
void completeGenaiConfig(OrderedJson& config, const std::string& modelPath, bool replacesConfig);

} // namespace kvopt::driver
