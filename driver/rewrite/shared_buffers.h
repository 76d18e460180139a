// Caches that GroupQueryAttention updates in place if a program binds one buffer as past and
// present.
#pragma once

#include "driver/rewrite/request.h"
#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include <map>
#include <optional>
#include <string>

namespace kvopt::driver {

/// Whether the request is for buffers of ONNX Runtime's attention with unchanged rows, and the
/// model has no other attention. `attention` counts the model's attention operators by name.
bool wantsSharedBuffers(const RewriteRequest& request,
                        const std::map<std::string, int64_t>& attention);

/// Declares past and present of every cache of `manifest` as one buffer, in the graph and in the
/// manifest. Both have room for `capacity` rows; without a capacity, their extent is a symbol. No
/// node changes. Returns false and changes nothing if the number of rows of a past has other uses:
/// another node than a GroupQueryAttention reads the past, or the present is not that node's
/// result. Also returns false if another input has an extent called `capacity`.
bool shareBuffers(ir::Graph& graph, ir::Manifest& manifest, std::optional<int64_t> capacity);

} // namespace kvopt::driver
