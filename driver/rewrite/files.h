// The files of a rewritten model: the model, its variants and weights, its manifest and, on
// request, another program's configuration.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "ir/onnx/export.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Where a rewritten model goes.
struct RewrittenPaths {
  std::string model;
  /// Empty: beside the model.
  std::string manifest;
  /// ONNX Runtime GenAI's configuration; empty: none.
  std::string genaiConfig;
  /// Weights that are in files beside the model as it was read.
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

/// Where the weights of a model are.
struct WeightFiles {
  /// nullopt without external data.
  std::optional<ir::ExternalPlacement> placement;
  std::vector<std::string> files;
};

/// Where the weights of `model`, as it was read, will be. With `dryRun`, copies have no file.
WeightFiles weightFilesFor(const ir::Model& model, const RewrittenPaths& paths, bool dryRun);

/// Names in the manifest the files that go with the model: its variants, and the first step if
/// there is one.
void nameFiles(ir::Manifest& manifest, const RewrittenPaths& paths, bool hasFirstStep);

/// Declares the files that would be written in `access`. Fails when one is an input there, one that
/// the model consists of, or another output, or when it cannot be created. `manifest` names the
/// variants; null before lowering, when there are none yet.
llvm::Error checkOutputPaths(const RewrittenPaths& paths, const ir::Model& model,
                             FileAccess& access, const ir::Manifest* manifest = nullptr);

/// Writes all files, or none when one of them cannot be written or `checkOutputPaths` fails.
/// Variants, which `manifest` names, are made of the model; `weights` is completed with the file
/// that holds their large constants. `firstStep` is the model that the manifest calls that; null
/// for one without.
llvm::Error writeFiles(ir::Model& model, const ir::Manifest& manifest, const RewrittenPaths& paths,
                       WeightFiles& weights, FileAccess& access,
                       const ir::Model* firstStep = nullptr);

} // namespace kvopt::driver
