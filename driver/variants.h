// The variants and the pieces of a model that is rewritten: where they are before and after they
// are written.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "ir/onnx/export.h"
#include "runtime/session/pyramid.h"

namespace kvopt::driver {

/// Makes variants and pieces of `model`, whose manifest does not name files of them, in memory.
/// Null where it does, and where there are none. The model must outlive the source and not change.
std::shared_ptr<runtime::VariantSource> variantsInMemory(const ir::Model& model,
                                                         const ir::Manifest& manifest);

/// The files of variants next to `output`: OUT.onnx for the last one, OUT.past0.onnx for that
/// without blocks; of pieces, OUT.part0.onnx, … and OUT.tile0.onnx, ….
void nameVariants(ir::Manifest& manifest, const std::string& output);
/// Their paths, without that of the last one.
std::vector<std::string> variantPaths(const ir::Manifest& manifest, const std::string& output);

/// The paths of pieces.
std::vector<std::string> piecePaths(const ir::Manifest& manifest, const std::string& output);

/// Writes the model, its variants and its pieces, whose files the manifest names, and what is large
/// in them to one file next to it; all appear with `files.commit()`. The model is the smallest
/// variant then.
llvm::Error prepareVariants(ir::Model& model, const ir::Manifest& manifest,
                            const std::string& output, ir::ExportOptions options,
                            OutputFiles& files);

} // namespace kvopt::driver
