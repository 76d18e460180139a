// JSON of reports and manifests, with keys in the order in which they were added.
#pragma once

#include <nlohmann/json.hpp>

namespace kvopt {

using OrderedJson = nlohmann::ordered_json;

} // namespace kvopt
