// The files that a model consists of.
#pragma once

#include "ir/model.h"
#include "support/file_access.h"

#include <string>
#include <vector>

namespace kvopt::ir {

/// Returns every file that `model`, which was read from a file, consists of:
/// - its own file, and the external data that the file refers to;
/// - the variants, the pieces and the first step that its manifest names, each with all files that
///   it consists of, and the manifest's own file STEM.kv.json. The manifest is the one in the
///   metadata; without it, STEM.kv.json is the model's where it names the model among its variants;
/// - a genai_config.json in its folder that names it.
///
/// Nothing is required to exist. A file that cannot be read contributes its own path only. No
/// weights are read. A model that was read from memory consists of its external data.
std::vector<InputFile> filesOf(const Model& model);

/// The same for the file at `path`, as far as it can be read.
std::vector<InputFile> filesOfModelAt(const std::string& path);

/// Registers every file that the model consists of as one that is read.
llvm::Error registerFiles(const Model& model, FileAccess& access);

/// Returns the paths of the files that hold external data of the model as it was read, sorted.
std::vector<std::string> externalFilesOf(const Model& model);

/// Returns the locations, relative to the model's folder, of the same files, sorted.
std::vector<std::string> externalLocationsOf(const Model& model);

/// Returns the path of the manifest that is written with a model: STEM.kv.json for STEM.onnx.
std::string manifestPathBeside(llvm::StringRef modelPath);

/// Returns the path of `name` in the folder of `path`.
std::string pathBeside(llvm::StringRef path, llvm::StringRef name);

} // namespace kvopt::ir
