// What kvopt rewrite says of a model that it wrote.
#pragma once

#include "cli/command.h"
#include "cli/op_table.h"
#include "cli/style.h"
#include "cli/verification.h"
#include "ir/manifest.h"

namespace kvopt {

/// One rewrite, before and after.
struct RewriteOutcome {
  OpCounts before;
  OpCounts after;
  int64_t opsetBefore = 0;
  int64_t opsetAfter = 0;
  int64_t irBefore = 0;
  int64_t irAfter = 0;
  double milliseconds = 0;
  /// keep, copy or inline, and the files that the written model's weights are in; empty without
  /// external data.
  std::string externalPlacement;
  std::vector<std::string> externalFiles;
  std::optional<VerificationReport> verification;
  /// Why the model could not be compared with what it was; empty where it was, or was not to be.
  std::string notVerified;
};

/// kvopt/rewrite/1; `output` is empty where nothing is written.
OrderedJson rewriteJson(const std::string& output, const std::string& target,
                        const PassContext& passes, const RewriteOutcome& outcome);
/// The same of a model that has the target's form already: it is written as it is.
OrderedJson sameModelJson(const std::string& output, const std::string& target,
                          const RewriteOutcome& outcome);

/// A table of what changed, and what verification found.
SafeText rewriteTable(const PassContext& passes, const RewriteOutcome& outcome, const Style& style);
/// What a program that drives the model has to do and must not do; empty where it may do all.
SafeText drivingNotes(const Manifest& manifest, const std::string& manifestPath);

} // namespace kvopt
