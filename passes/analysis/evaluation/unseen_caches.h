// Caches that attention reads and that were not found.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/interface/interface_facts.h"

namespace kvopt::analysis {

/// Makes a site a missed one where no cache of it was found, although evaluation finds its keys or
/// values to hold rows of an input and new rows.
void refuseUnseenCaches(const ir::Graph& graph, const InterfaceFacts& facts, SiteList& sites);

} // namespace kvopt::analysis
