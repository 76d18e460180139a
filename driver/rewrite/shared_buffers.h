// Caches that GroupQueryAttention updates in place as soon as a program binds one buffer as past
// and present.
#pragma once

#include "driver/rewrite/request.h"
#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include <map>
#include <optional>
#include <string>

namespace kvopt::driver {

/// Whether the request is for buffers of ONNX Runtime's attention with rows as they are, and the
/// model has no other attention: `attention` counts its operators by name.
bool wantsSharedBuffers(const RewriteRequest& request,
                        const std::map<std::string, int64_t>& attention);

/// Declares past and present of every cache of `manifest` as one buffer, in the graph and in the
/// manifest: both have room for `capacity` rows, or for as many as a symbol says. No node changes.
/// False, and nothing is changed, where something else than a GroupQueryAttention reads a past, or
/// the present is not that node's result: then the number of rows of the past has other uses. So it
/// is where another input has an extent that is called `capacity`.
bool shareBuffers(ir::Graph& graph, ir::Manifest& manifest, std::optional<int64_t> capacity);

} // namespace kvopt::driver
