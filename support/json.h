// The JSON of reports and manifests: keys keep the order in which they were added.
#pragma once

#include <nlohmann/json.hpp>

namespace kvopt {

using OrderedJson = nlohmann::ordered_json;

} // namespace kvopt
