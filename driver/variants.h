// The variants and pieces of a rewritten model, in memory and in files.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/manifest/variant_source.h"
#include "ir/model.h"
#include "ir/onnx/export.h"

namespace kvopt::driver {

/// Creates the variants and pieces of `model` in memory. Null if its manifest names files for them,
/// or if there are none. The model must outlive the source and must not change.
std::shared_ptr<ir::VariantSource> variantsInMemory(const ir::Model& model,
                                                    const ir::Manifest& manifest);

/// Names the files next to `output` in the manifest. Variants: OUT.onnx for the last one,
/// OUT.past0.onnx for the one without blocks. Pieces: OUT.part0.onnx, … and OUT.tile0.onnx, ….
void nameVariants(ir::Manifest& manifest, const std::string& output);
/// The paths of variants, without that of the last one.
std::vector<std::string> variantPaths(const ir::Manifest& manifest, const std::string& output);

/// The paths of pieces.
std::vector<std::string> piecePaths(const ir::Manifest& manifest, const std::string& output);

/// Writes the model, its variants and its pieces to the files that the manifest names, and their
/// large constants to one file next to the model. All files appear with `files.commit()`.
/// Afterwards, `model` is the smallest variant.
llvm::Error prepareVariants(ir::Model& model, const ir::Manifest& manifest,
                            const std::string& output, ir::ExportOptions options,
                            OutputFiles& files);

} // namespace kvopt::driver
