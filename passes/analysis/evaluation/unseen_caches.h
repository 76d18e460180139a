// Caches that attention reads and that tracing did not find.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/interface/interface_facts.h"

namespace kvopt::analysis {

/// Marks a site as missed if no cache of it was found, although evaluation shows that its keys or
/// values hold rows of an input and new rows.
void refuseUnseenCaches(const ir::Graph& graph, const InterfaceFacts& facts, SiteList& sites);

} // namespace kvopt::analysis
