// Which caches of two sessions are compared, and what of them.
#pragma once

#include "runtime/session/session.h"

#include <optional>
#include <vector>

namespace kvopt::runtime {

/// Two caches, by index, that hold the same rows. One of them may be a part of the other
/// (`isPartOf`), whose other parts are in pairs of their own.
struct CachePair {
  size_t first = 0;
  size_t second = 0;
};

/// Each cache of `a` with the cache of `b` of the same name, that is a part of it, or that it is a
/// part of; where there is none, with the one of the same layer, kind and role. A cache without any
/// is in no pair, and none whose rows one of the models computes from those of the other.
std::vector<CachePair> pairCaches(const Session& a, const Session& b);

/// What is compared of a cache: its last `count` rows in the order of their tokens, or all rows
/// as they lie; of a whole that `other` is a part of, that part. `storage` holds copied rows.
llvm::Expected<TensorView> comparedRows(const Session& session, size_t index,
                                        std::optional<int64_t> count,
                                        const ir::ManifestCache& other, Tensor& storage);

/// Puts the same made-up tokens into both (`Session::preset`). Where caches have other names, or
/// one model has parts of a cache of the other, one of the two is seeded with the rows of the
/// other. Fails where only one of them has a cache of some rows, where each has a part of a cache
/// of the other, and where Session::preset or Session::seed does.
llvm::Error presetAlike(Session& a, Session& b, int64_t tokens);

} // namespace kvopt::runtime
