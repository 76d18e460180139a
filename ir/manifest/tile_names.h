// Names of the inputs and outputs of a tile (ManifestTiledAttention).
#pragma once

namespace kvopt::ir {

/// In the order of the operands of ai.kvopt::AttentionTile.
inline constexpr const char* tileInputNames[] = {"query",  "key",     "value", "mask",
                                                 "output", "maximum", "sum"};
inline constexpr const char* tileOutputNames[] = {"next_output", "next_maximum", "next_sum"};

} // namespace kvopt::ir
