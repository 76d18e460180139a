// Pairs of past and present that follow from operators that put new rows into a past.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::ir {

class Graph;

/// Checks that the output in which an operator's result arrives is the present of the cache whose
/// past the operator extends. The operator may overwrite the past (Alias::Kind::InPlace), perhaps
/// overwrite it (Alias::Kind::Reuse), or append rows to it (ai.kvopt::AppendRows). Results are
/// followed through views and further such operators. The last two kinds of operators may also
/// compute something else from a past, so they contradict the manifest only if the output is the
/// present of another cache. The error names the past, both outputs and the operator.
llvm::Error checkOverwrittenPasts(const Manifest& manifest, const Graph& graph);

} // namespace kvopt::ir
