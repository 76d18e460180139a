// Caches that attention reads and that were not found.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/interface/interface_facts.h"

namespace kvopt::analysis {

/// Makes attention a missed site whose keys or values are found, by evaluation, to be rows of a
/// cache beside new ones, where no cache of it was found.
void refuseUnseenCaches(const ir::Graph& graph, const InterfaceFacts& facts, SiteList& sites);

} // namespace kvopt::analysis
