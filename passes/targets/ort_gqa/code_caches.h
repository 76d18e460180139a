// Caches of GroupQueryAttention as codes whose scales are constants.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <map>
#include <string>
#include <vector>

namespace kvopt::targets {

/// What caches are to hold.
struct CodeScales {
  int bits = 8; ///< 8 or 4
  /// By the input of a cache [B,G,C,D], the scale of each column of each head: [G,D].
  std::map<std::string, std::vector<float>> ofPast;
};

/// Makes the caches of every com.microsoft::GroupQueryAttention of a model that `ort-gqa` wrote
/// hold codes, int8 or two of four bits in a byte of uint8, in the manifest, too. Cached keys can
/// no longer be rotated to other positions then. Fails, and the model must not be used, where
/// attention is in a branch or something else reads a cache.
llvm::Error keepCodes(ir::Model& model, ir::Manifest& manifest, const CodeScales& scales);

} // namespace kvopt::targets
