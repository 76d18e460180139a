// Files of a rewritten model: the model, its variants and weights, its manifest and, on request,
// the configuration of ONNX Runtime GenAI.
#pragma once

#include "driver/rewrite/weight_placement.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt {
class ProgressListener;
} // namespace kvopt

namespace kvopt::driver {

/// Paths of a rewritten model.
struct RewrittenPaths {
  std::string model;
  /// Path of the manifest; empty: next to the model.
  std::string manifest;
  /// Path of ONNX Runtime GenAI's configuration; empty: none.
  std::string genaiConfig;
  /// Placement of weights that the source stores in external files.
  WeightPlacement weights = WeightPlacement::Keep;

  std::string manifestPath() const;
};

/// Adds the options that name other files than the model, and the one that places the weights.
/// `Options` adds variables to the command line's parser or to an OptionReader.
template <class Options> void addFileOptions(Options& add, RewrittenPaths& paths) {
  add.add("--manifest", paths.manifest);
  add.add("--genai-config", paths.genaiConfig);
  addPlacementOption(add, paths.weights);
}

/// Path of the first step, next to the model at `output`: OUT.first.onnx.
std::string firstStepPath(const std::string& output);

/// Location of a model's weights.
struct WeightFiles {
  /// Placement of the external data; nullopt if there is none. Keep: it stays where it is. Copy
  /// and Link: files next to the output.
  std::optional<WeightPlacement> placement;
  std::vector<std::string> files;
};

/// Location that the weights of `model` will have; `model` is as it was read. With `dryRun`, copies
/// have no file.
WeightFiles weightFilesFor(const ir::Model& model, const RewrittenPaths& paths, bool dryRun);

/// Sets the file names in the manifest: those of the model's variants, and of the first step if
/// there is one.
void nameFiles(ir::Manifest& manifest, const RewrittenPaths& paths, bool hasFirstStep);

/// Declares the output files in `access`. Fails if one of them is an input there, belongs to the
/// model, is also another output, or cannot be created. `manifest` names the variants; null before
/// lowering, when there are none yet.
llvm::Error checkOutputPaths(const RewrittenPaths& paths, const ir::Model& model,
                             FileAccess& access, const ir::Manifest* manifest = nullptr);

/// Writes all files, or none if one of them cannot be written or `checkOutputPaths` fails.
/// Variants, which `manifest` names, are created from the model; `weights` is completed with the
/// file that holds their large constants. `firstStep` is the model of the manifest's first step;
/// null if there is none. `progress` receives the number of bytes of weights that were written, and
/// may be null.
llvm::Error writeFiles(ir::Model& model, const ir::Manifest& manifest, const RewrittenPaths& paths,
                       WeightFiles& weights, FileAccess& access,
                       const ir::Model* firstStep = nullptr, ProgressListener* progress = nullptr);

} // namespace kvopt::driver
