// Variants of a model in blocks of fixed extents: the same graph with fewer blocks.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::targets {

/// Metadata key for the name of the constant, int64 [1], that holds the total number of rows in all
/// blocks of a cache.
inline constexpr const char* pastRowsKey = "kvopt.past_rows";
/// Metadata key, in a variant, for the number of blocks of each cache.
inline constexpr const char* pastBlocksKey = "kvopt.past_blocks";

/// A node that reads an extent of a block that no other input has, so that the model needs this
/// block; null if there is none.
const ir::Node* readerOfBlockExtents(const ir::Graph& graph, const ir::Manifest& manifest);

/// Keeps the first `blocks` blocks of each cache, a number that one of the manifest's variants has;
/// removes the inputs of all others and the values joined from them. The model must have at least
/// that many blocks. `manifest` no longer drives the result by itself and is removed from its
/// metadata. Fails if there is no such variant, or if the model does not have its caches in blocks
/// of fixed extents; the caller must then discard the model.
llvm::Error keepPastBlocks(ir::Model& model, const ir::Manifest& manifest, int64_t blocks);

} // namespace kvopt::targets
