// CacheRoom: capacity of a session's caches in tokens.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_set.h"
#include "runtime/session/session_options.h"
#include "support/diagnostic.h"

namespace kvopt::runtime {

/// Error: tokens do not fit into caches of a fixed capacity.
class CapacityError : public llvm::ErrorInfo<CapacityError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<CapacityError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// A usage error if the model has no caches that a capacity could limit, or another capacity.
llvm::Error checkCapacity(const ir::Manifest& manifest, int64_t capacity);

/// Capacity of shared buffers according to the manifest and the options.
class CacheRoom {
public:
  /// Both arguments must outlive this object.
  CacheRoom(const ir::Manifest& described, const SessionOptions& settings)
      : manifest(described), options(settings) {}

  /// Whether any cache is a buffer with room for additional rows.
  bool hasShared() const;
  /// Largest number of tokens of caches that need no buffer of that size, if the options have one;
  /// otherwise INT64_MAX.
  int64_t limit() const;
  /// Initial capacity; 0 without shared buffers.
  llvm::Expected<int64_t> first() const;
  /// Capacity that shared buffers need for `tokens` tokens; a CapacityError if they cannot provide
  /// it.
  llvm::Expected<int64_t> forTokens(int64_t tokens, const CacheSet& caches) const;
  /// Smallest multiple of the block size of pools that is at least `room`; `room` without pools.
  int64_t wholeBlocks(int64_t room) const;

private:
  const ir::Manifest& manifest;
  const SessionOptions& options;
};

} // namespace kvopt::runtime
