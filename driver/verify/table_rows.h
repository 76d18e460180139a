// Rows of tables that inputs select.
#pragma once

#include "driver/recover.h"
#include "driver/verify/role_guesses.h"

#include <optional>

namespace kvopt::driver {

/// The smallest row of a constant table that the first token reads through one of the guesses, if
/// inputs have these roles; negative before the table's first row. nullopt if no guess selects
/// rows.
std::optional<int64_t> firstTableRow(const RecoveredModel& recovered,
                                     const analysis::GivenRoles& roles,
                                     llvm::ArrayRef<RoleGuess> guesses);

} // namespace kvopt::driver
