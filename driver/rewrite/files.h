// Files of a rewritten model: the model, its variants and weights, its manifest and, on request,
// another program's configuration.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "ir/onnx/export.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Paths of a rewritten model.
struct RewrittenPaths {
  std::string model;
  /// Empty: next to the model.
  std::string manifest;
  /// ONNX Runtime GenAI's configuration; empty: none.
  std::string genaiConfig;
  /// Placement of weights that the source stores in external files.
  ir::ExternalPlacement weights = ir::ExternalPlacement::Keep;

  std::string manifestPath() const;
};

/// Adds the options that name files next to the model, and say where weights go. `Options` adds
/// variables to the command line's parser or to an OptionReader.
template <class Options> void addFileOptions(Options& add, RewrittenPaths& paths) {
  add.add("--manifest", paths.manifest);
  add.add("--genai-config", paths.genaiConfig);
  add.add("--external-data", paths.weights,
          {{"keep", ir::ExternalPlacement::Keep},
           {"copy", ir::ExternalPlacement::Copy},
           {"inline", ir::ExternalPlacement::Inline}});
}

/// The file of a model's first step, next to it: OUT.first.onnx.
std::string firstStepPath(const std::string& output);

/// Location of a model's weights.
struct WeightFiles {
  /// nullopt without external data.
  std::optional<ir::ExternalPlacement> placement;
  std::vector<std::string> files;
};

/// Future location of the weights of `model`, as it was read. With `dryRun`, copies have no file.
WeightFiles weightFilesFor(const ir::Model& model, const RewrittenPaths& paths, bool dryRun);

/// Sets the names of files in the manifest that belong to the model: its variants, and the first
/// step if there is one.
void nameFiles(ir::Manifest& manifest, const RewrittenPaths& paths, bool hasFirstStep);

/// Declares the files that would be written in `access`. Fails if one of them is an input there,
/// belongs to the model, is another output, or cannot be created. `manifest` names the variants;
/// null before lowering, when there are none yet.
llvm::Error checkOutputPaths(const RewrittenPaths& paths, const ir::Model& model,
                             FileAccess& access, const ir::Manifest* manifest = nullptr);

/// Writes all files, or none if one of them cannot be written or `checkOutputPaths` fails.
/// Variants, which `manifest` names, are created from the model; `weights` is completed with the
/// file that holds their large constants. `firstStep` is the model of the manifest's first step;
/// null if there is none.
llvm::Error writeFiles(ir::Model& model, const ir::Manifest& manifest, const RewrittenPaths& paths,
                       WeightFiles& weights, FileAccess& access,
                       const ir::Model* firstStep = nullptr);

} // namespace kvopt::driver
