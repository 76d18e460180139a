// The name of JSON values, for headers that pass them on. Files that make or read them include
// "support/json.h".
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace kvopt {

using OrderedJson = nlohmann::ordered_json;

} // namespace kvopt
