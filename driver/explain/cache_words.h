// Results of evaluation for keys and values, as text and as JSON.
#pragma once

#include "passes/rows/cache_facts.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// Text such as `row j of head h is row j of 'past', then new rows of 'k'; 'present' is the same
/// rows: append (seen at S=5 P=11, S=7 P=4, S=13 P=0; proved)`.
std::string cacheFactText(const rows::CacheFact& fact);

/// The fact as JSON, with a key for each part.
OrderedJson cacheFactJson(const rows::CacheFact& fact);

} // namespace kvopt::driver
