// ai.kvopt's attention operators over buffers and rings.
#pragma once

#include "engines/onnxruntime/operation.h"

#include <array>

namespace kvopt::onnxruntime {

/// One of the operators: place, storage and sharing of the rows. Operands and results are in the
/// order that ir/ops/kvopt/cache_operator.h defines.
struct CacheForm {
  const char* op; ///< name in the domain ai.kvopt
  bool isRing;
  bool hasCodes;
  bool isLatent;

  constexpr unsigned sides() const { return isLatent ? 1 : 2; }
  constexpr unsigned parts() const { return hasCodes ? 2 : 1; }
  static constexpr unsigned fresh(unsigned side) { return 1 + side; }
  constexpr unsigned past(unsigned side) const { return 1 + sides() + side * parts(); }
  constexpr unsigned pastLength() const { return 1 + sides() * (1 + parts()); }
  constexpr unsigned mask() const { return pastLength() + 1; }
  constexpr unsigned sinks() const { return mask() + 1; }
  constexpr unsigned operands() const { return sinks() + 1; }
  constexpr unsigned present(unsigned side) const { return 1 + side * parts(); }
  constexpr unsigned results() const { return 1 + sides() * parts(); }
};

inline constexpr const char* kvoptDomain = "ai.kvopt";

inline constexpr std::array<CacheForm, 8> cacheForms = {{
    {"InPlaceKvSdpa", false, false, false},
    {"InPlaceQuantizedKvSdpa", false, true, false},
    {"InPlaceLatentKvSdpa", false, false, true},
    {"InPlaceQuantizedLatentKvSdpa", false, true, true},
    {"RingKvSdpa", true, false, false},
    {"RingQuantizedKvSdpa", true, true, false},
    {"RingLatentKvSdpa", true, false, true},
    {"RingQuantizedLatentKvSdpa", true, true, true},
}};

/// Computes what ir/ops/kvopt/cache_operators.cc defines.
Offer cacheAttention(const NodeDescription& node);

} // namespace kvopt::onnxruntime
