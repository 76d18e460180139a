// The facts that inspect reports about a model, as JSON.
#pragma once

#include "driver/forms/without_caches.h"
#include "driver/recover.h"
#include "support/json_fwd.h"

#include <map>
#include <string>

namespace kvopt::driver {

/// Opens and recovers a model for inspect. Each layer that was missed has a reason. A model that
/// kvopt wrote is shown as it was before the rewrite.
llvm::Expected<RecoveredModel> recoverForInspection(const ModelSource& source,
                                                    const Toolkit& toolkit);

/// Number of attention layers that a target accepts and refuses.
struct Capability {
  unsigned can = 0;                        ///< number of layers that it accepts
  unsigned left = 0;                       ///< number of layers that stay as exported, at no cost
  std::map<std::string, unsigned> reasons; ///< number of layers that it refuses, by reason code
};
/// Capabilities by name of the target.
std::map<std::string, Capability> capabilities(const RecoveredModel& recovered,
                                               const Toolkit& toolkit);

/// The part of a joint cache that `past` is; null if `past` is a whole cache.
const ir::ManifestPart* partOf(const ir::Value* past, const analysis::CacheParts& parts);

/// The facts of one model, without the schema.
OrderedJson modelJson(const std::string& path, const RecoveredModel& recovered,
                      const Recommendation& recommendation, const Toolkit& toolkit);
/// The document kvopt/inspect/1 for one model.
OrderedJson inspectionJson(const std::string& path, const RecoveredModel& recovered,
                           const Recommendation& recommendation, const Toolkit& toolkit);

} // namespace kvopt::driver
