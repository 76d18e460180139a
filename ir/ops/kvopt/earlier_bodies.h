// Function bodies of earlier versions of kvopt that differ from the current ones by more than
// names. Files that contain them stay valid.
#pragma once

#include "ir/ops/kvopt/function_body.h"

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace kvopt::ir {

/// Texts of functions that earlier versions wrote for `op`, an operator's name without its domain,
/// in the form for which this version writes `text`.
std::vector<std::string> earlierBodies(llvm::StringRef op, const BodyForm& form,
                                       const std::string& text);

} // namespace kvopt::ir
