// Tables of two models: runs read some of their rows only.
#pragma once

#include "driver/verify/verification.h"

namespace kvopt::driver {

/// Compares constants from which tokens, positions or lengths select rows. Tables that play the
/// same part in both models are a difference if some of their rows are equal and others are not,
/// whether or not a run has read these rows. Otherwise, tables that only one of the models has, as
/// rewriting makes them, are noted with the rows that no run has read.
void compareTables(const ir::Model& a, const ir::Model& b, VerificationReport& report);

} // namespace kvopt::driver
