// What a folder for ONNX Runtime GenAI has besides the model: facts about the model that its file
// does not say, and the files of its tokenizer, both from the folder of the exported model.
#pragma once

#include "support/json.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Names of the tokenizer's files that are in the folder of the model at `modelPath`. A symbolic
/// link that leads elsewhere is no such file, unless it is one of a download cache
/// (support/confined_folder.h).
std::vector<std::string> tokenizerFiles(const std::string& modelPath);

/// The bytes of one of them.
llvm::Expected<std::string> tokenizerFile(const std::string& modelPath, const std::string& name);

/// The paths of all files of that folder that are read here, whether or not they exist; without its
/// genai_config.json.
std::vector<std::string> genaiSources(const std::string& modelPath);

/// Adds to `config`, a genai_config.json, what it lacks and the exported model's folder says:
/// type, special tokens, context length, vocabulary and search settings. They are those of its
/// genai_config.json, or else of generation_config.json and config.json. A file that is not a JSON
/// object says nothing, and neither does a genai_config.json that `config` will replace
/// (`replacesConfig`).
void completeGenaiConfig(OrderedJson& config, const std::string& modelPath, bool replacesConfig);

} // namespace kvopt::driver
