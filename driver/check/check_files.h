// Checking of two model files in exact arithmetic, and certificates of the result.
#pragma once

#include "check/checker.h"
#include "driver/claim.h"
#include "driver/model_source.h"
#include "driver/toolkit.h"
#include "support/safe_text.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// A model, and its description.
struct CheckedFile {
  std::string path; ///< empty for a model of bytes
  /// SHA-256 of the file or bytes, in hexadecimal. It does not cover external data.
  std::string digest;
  /// SHA-256 of the manifest that was used, as JSON.
  std::string manifestDigest;
};

/// Result of a check, and what it was about.
struct FileCheck {
  CheckedFile before;
  CheckedFile after;
  check::CheckReport report;
  /// Digest of the certificate (certificateDigest).
  std::string digest;
  /// One sentence for each claim of the second model's manifest that its graph does not show.
  std::vector<std::string> unproved;
  /// The comparison that the second model's manifest claims; nullopt if it claims none.
  std::optional<ir::ManifestComparison> claimed;

  /// Whether the claim is about a check of the first model, and whether this check finds the same
  /// certificate; nullopt for another claim.
  std::optional<bool> confirmsClaim() const;
  /// Whether the models count as equal: by the verdict, and unless the claim is refuted.
  bool areEqual(bool allowsTested) const;
};

struct CheckRequest {
  ModelSource before;
  ModelSource after;
  /// File with the manifest of `after`; empty for the one in its metadata or, without one, for a
  /// description that is derived from its graph.
  std::string manifest;
  /// Selects the fields of the arithmetic; by default, each check draws others.
  std::optional<uint32_t> seed;
};

/// Digest of what a check shows of the models: the verdicts of outputs, the scope and the
/// assumptions, and the digest of the first file. Neither the fields nor paths nor the second file
/// change it, so that this file can name it and each check can find it.
std::string certificateDigest(const check::CheckReport& report, const std::string& before);

/// Whether the verdict counts as equality: a proof or, if the caller allows it, equality in the
/// whole scope.
bool isEqual(check::Verdict verdict, bool allowsTested);

/// Checks both models as their files have them, with the types that follow from what these declare:
/// what else is known of a value must not change the result. A difference of elements is confirmed
/// by a run (confirmDifference).
llvm::Expected<check::CheckReport> checkAsWritten(const check::DrivenModel& before,
                                                  const check::DrivenModel& after,
                                                  const Toolkit& toolkit);

/// Opens both models and checks them. A difference of elements is confirmed by a run.
llvm::Expected<FileCheck> checkFiles(const CheckRequest& request, const Toolkit& toolkit);

/// The document kvopt/certificate/1 of the documentation, with an indentation of two spaces.
std::string certificateText(const FileCheck& result);

/// Checks the models again with the fields of a certificate, and compares the result with it. A
/// further check draws its own fields, which the certificate cannot choose. Fails if the
/// certificate is about other files, or if it claims more than the checks show.
llvm::Expected<FileCheck> checkCertificate(const std::string& certificate,
                                           const CheckRequest& request, const Toolkit& toolkit);

/// Sentences about a check: what was shown, under which assumptions, and what was not looked at.
std::vector<std::string> checkSentences(const check::CheckReport& report);

/// Lines of the result: the verdict, then regions that are not proved, differences, and
/// assumptions. With `isDetailed`, all regions.
SafeText checkSummary(const FileCheck& result, bool isDetailed);

} // namespace kvopt::driver
