// What kvopt rewrite says of a model that it wrote.
#pragma once

#include "cli/support/style.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"

namespace kvopt::cli {

/// A table of what changed, and what verification found.
SafeText rewriteTable(const driver::RewrittenModel& rewritten, const Style& style);
/// Which operators of the model only kvopt's runtime has kernels for; empty where it has none.
SafeText engineNote(const ir::Graph& graph);
/// What a program that drives the model has to do and must not do; empty where it may do all.
SafeText drivingNotes(const ir::Manifest& manifest, const std::string& manifestPath);

/// `OUT.onnx (3.1 MiB), its variants A to B and OUT.kv.json` of files that were written.
std::string writtenText(const ir::Manifest& manifest, const driver::RewrittenPaths& paths,
                        const driver::WeightFiles& weights);

} // namespace kvopt::cli
