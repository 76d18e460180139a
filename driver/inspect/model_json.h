// What inspect finds in a model, and its facts as JSON.
#pragma once

#include "driver/recover.h"
#include "support/json.h"

#include <map>
#include <string>

namespace kvopt::driver {

/// Opens a model as inspect shows it: with the reason of each layer that was missed, and, if kvopt
/// wrote it, as it was before.
llvm::Expected<RecoveredModel> recoverForInspection(const ModelSource& source,
                                                    const Toolkit& toolkit);

/// What a target could do with a model.
struct Capability {
  unsigned can = 0;                        ///< attention layers that it takes
  std::map<std::string, unsigned> reasons; ///< how many layers it refuses, by reason code
};
/// By target.
std::map<std::string, Capability> capabilities(const RecoveredModel& recovered,
                                               const Toolkit& toolkit);

/// The part of a cache that holds several which `past` is; null for a cache of its own.
const ir::ManifestPart* partOf(const ir::Value* past, const analysis::CacheParts& parts);

/// The facts of one model, without the schema.
OrderedJson modelJson(const std::string& path, const RecoveredModel& recovered,
                      const Toolkit& toolkit);
/// The document kvopt/inspect/1 of one model.
OrderedJson inspectionJson(const std::string& path, const RecoveredModel& recovered,
                           const Toolkit& toolkit);

} // namespace kvopt::driver
