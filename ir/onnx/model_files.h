// Files that belong to a model.
#pragma once

#include "ir/model.h"
#include "support/file_access.h"

#include <map>
#include <string>
#include <vector>

namespace kvopt::ir {

/// Returns every file that belongs to `model`, which was read from a file:
/// - its own file, and the external data to which the file refers;
/// - the variants, the pieces and the first step that its manifest names, each with all files that
///   belong to it, and the manifest's own file STEM.kv.json. The manifest is the one in the
///   metadata; without it, STEM.kv.json if it lists the model as a variant;
/// - a genai_config.json in its folder that names it.
///
/// None of them has to exist. A file that cannot be read contributes only its own path. No weights
/// are read. Only external data belongs to a model that was read from memory.
std::vector<InputFile> filesOf(const Model& model);

/// The same for the file at `path`, as far as it can be read.
std::vector<InputFile> filesOfModelAt(const std::string& path);

/// Registers every file that belongs to the model as an input.
llvm::Error registerFiles(const Model& model, FileAccess& access);

/// Returns the sorted paths of the files with external data of the model as it was read.
std::vector<std::string> externalFilesOf(const Model& model);

/// Returns the number of bytes that tensors of the model use in each of these files.
std::map<std::string, int64_t> externalBytesOf(const Model& model);

/// Returns the sorted locations of the same files relative to the model's folder.
std::vector<std::string> externalLocationsOf(const Model& model);

/// Returns the path of the manifest written next to a model: STEM.kv.json for STEM.onnx.
std::string manifestPathBeside(llvm::StringRef modelPath);

/// Returns the path of `name` in the folder of `path`.
std::string pathBeside(llvm::StringRef path, llvm::StringRef name);

} // namespace kvopt::ir
