// CacheRoom: how many tokens the caches of a session have, or get, room for.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_set.h"
#include "runtime/session/session_options.h"
#include "support/diagnostic.h"

namespace kvopt::runtime {

/// Tokens do not fit into caches of a fixed capacity.
class CapacityError : public llvm::ErrorInfo<CapacityError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<CapacityError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// What the manifest and the options say about the room of shared buffers.
class CacheRoom {
public:
  /// Both must outlive it.
  CacheRoom(const ir::Manifest& described, const SessionOptions& settings)
      : manifest(described), options(settings) {}

  /// Whether any cache is a buffer with room for more rows than are used.
  bool hasShared() const;
  /// The room at the start; 0 without shared buffers.
  llvm::Expected<int64_t> first() const;
  /// The room that shared buffers must have, or get, for `tokens` tokens; a CapacityError where
  /// they cannot.
  llvm::Expected<int64_t> forTokens(int64_t tokens, const CacheSet& caches) const;
  /// The least multiple of the blocks of pools that is at least `room`; without pools, `room`.
  int64_t wholeBlocks(int64_t room) const;

private:
  const ir::Manifest& manifest;
  const SessionOptions& options;
};

} // namespace kvopt::runtime
