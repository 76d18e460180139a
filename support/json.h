// JSON of reports and manifests, with keys in the order in which they were added.
#pragma once

#include "support/json_fwd.h"

#include <nlohmann/json.hpp>
