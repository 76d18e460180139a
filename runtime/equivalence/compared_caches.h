// Selection of the caches of two sessions, and of their rows, for comparison.
#pragma once

#include "runtime/session/session.h"

#include <optional>
#include <vector>

namespace kvopt::runtime {

/// Two caches, by index, that hold the same rows. One of them may be a part of the other
/// (`isPartOf`), whose other parts are in separate pairs.
struct CachePair {
  size_t first = 0;
  size_t second = 0;
};

/// Pairs each cache of `a` with the cache of `b` that has the same name, is a part of it, or
/// contains it; otherwise with the cache of the same layer, kind and role. A cache without
/// counterpart is in no pair; neither is a cache whose rows one of the models computes from those
/// of the other.
std::vector<CachePair> pairCaches(const Session& a, const Session& b);

/// Compared rows of a cache: its last `count` rows in the order of their tokens, or all rows in
/// their stored order. If `other` is a part of the cache, only that part. `storage` holds copied
/// rows.
llvm::Expected<TensorView> comparedRows(const Session& session, size_t index,
                                        std::optional<int64_t> count,
                                        const ir::ManifestCache& other, Tensor& storage);

/// Fills both sessions with the same synthetic tokens (`Session::preset`). If caches have other
/// names, or one model has parts of a cache of the other, one of them receives the rows of the
/// other. Fails if only one of them has a cache of some rows, if each has a part of a cache of the
/// other, or if Session::preset or Session::seed fails.
llvm::Error presetAlike(Session& a, Session& b, int64_t tokens);

} // namespace kvopt::runtime
