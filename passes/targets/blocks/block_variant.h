// Variants of a model in blocks of fixed extents: the same graph with fewer blocks.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::targets {

/// The metadata entry with the name of the constant, int64 [1], that says how many rows all blocks
/// of a cache have together.
inline constexpr const char* pastRowsKey = "kvopt.past_rows";
/// The metadata entry of a variant: how many blocks of each cache it has.
inline constexpr const char* pastBlocksKey = "kvopt.past_blocks";

/// A node that reads an extent of a block which no other input has: the model cannot do without
/// any. Null if none does.
const ir::Node* readerOfBlockExtents(const ir::Graph& graph, const ir::Manifest& manifest);

/// Leaves the first `blocks` blocks of each cache, as one of the manifest's variants has them: the
/// inputs of the others and what was joined from them go. The model has at least as many. It is
/// no longer one that `manifest`, which is taken out of its metadata, drives by itself. Fails where
/// that is none of a model in blocks of fixed extents; the model is then to be thrown away.
llvm::Error keepPastBlocks(ir::Model& model, const ir::Manifest& manifest, int64_t blocks);

} // namespace kvopt::targets
