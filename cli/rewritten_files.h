// The files of a rewritten model: the model, its variants and weights, its manifest and, on
// request, another program's configuration.
#pragma once

#include "cli/rewrite_options.h"
#include "cli/rewrite_report.h"
#include "ir/model.h"

namespace kvopt {

/// Where the manifest goes: beside the model unless asked for elsewhere.
std::string manifestPathFor(const RewriteOptions& options);

/// Fails when a file that would be written is one that the model consists of, or another output, or
/// cannot be created. `manifest` names the variants; null before lowering, when there are none yet.
llvm::Error checkOutputPaths(const RewriteOptions& options, const Model& model,
                             const Manifest* manifest = nullptr);

/// Notes where the weights of `model`, as it was read, will be.
void noteExternalData(const Model& model, const RewriteOptions& options, RewriteOutcome& outcome);

/// Writes all files, or none when one of them cannot be written. Variants, which `manifest` names,
/// are made of the model.
llvm::Error writeFiles(Model& model, const Manifest& manifest, const RewriteOptions& options,
                       RewriteOutcome& outcome);

/// `OUT.onnx (3.1 MiB), its variants A to B and OUT.kv.json` of files that were written.
std::string writtenText(const Manifest& manifest, const RewriteOptions& options,
                        const RewriteOutcome& outcome);

} // namespace kvopt
