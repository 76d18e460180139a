// Rows of tables that inputs select.
#pragma once

#include "driver/recover.h"
#include "driver/roles/role_guesses.h"

#include <optional>

namespace kvopt::driver {

/// Rows of constant tables that the first token reads through guesses.
struct FirstRows {
  int64_t least = 0; ///< the smallest; negative before a table's first row
  /// Whether they or the next ones hold zeros, and the tables have other rows that do not: rows of
  /// padding.
  bool areReserved = false;
};

/// The rows if inputs have these roles; nullopt if no guess selects rows.
std::optional<FirstRows> firstTableRows(const RecoveredModel& recovered,
                                        const analysis::GivenRoles& roles,
                                        llvm::ArrayRef<RoleGuess> guesses);

} // namespace kvopt::driver
