// Quantized caches of GroupQueryAttention, whose scales are constants.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <map>
#include <string>
#include <vector>

namespace kvopt::targets {

/// Format of the quantized caches.
struct CodeScales {
  int bits = 8; ///< 8 or 4
  /// Scale of each column of each head, [G,D], keyed by the input of a cache [B,G,C,D].
  std::map<std::string, std::vector<float>> ofPast;
};

/// Quantizes the caches of every com.microsoft::GroupQueryAttention of a model that `ort-gqa`
/// wrote, in the manifest as well: to int8, or to two four-bit codes per byte of uint8. Cached keys
/// can no longer be rotated to other positions then. Fails if attention is in a branch or another
/// node reads a cache; the caller must then discard the model.
llvm::Error keepCodes(ir::Model& model, ir::Manifest& manifest, const CodeScales& scales);

} // namespace kvopt::targets
