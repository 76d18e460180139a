// The execution provider of one session.
#pragma once

#include "engines/onnxruntime/engine_api.h"

#include <string>

namespace kvopt::onnxruntime {

/// Name of the provider, in sessions and as part of its options' names.
inline constexpr const char* providerName = "kvopt";

/// Why a session uses the provider for no node; empty if it may be used.
struct ProviderOptions {
  std::string off;

  /// Reads the options ep.kvopt.* of a session. Throws if a value is not understood.
  static ProviderOptions of(const OrtSessionOptions* options);
};

OrtEp* createProvider(ProviderOptions options, const OrtLogger* logger);
void destroyProvider(OrtEp* provider);

} // namespace kvopt::onnxruntime
