// Checking of two model files without running them, and certificates of the result.
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

  /// Whether the claim is about a check of the first model with the same fields, and whether this
  /// check finds the same certificate; nullopt for another claim.
  std::optional<bool> confirmsClaim() const;
};

struct CheckRequest {
  ModelSource before;
  ModelSource after;
  /// File with the manifest of `after`; empty for the one in its metadata or, without one, for a
  /// description that is derived from its graph.
  std::string manifest;
  /// Selects the fields of the arithmetic; from 0 to check::Field::seeds - 1.
  unsigned seed = 0;
};

/// Digest of what a certificate says about the models: its report and the digest of the first file.
/// Neither paths nor the second file change it, so that this file can name it.
std::string certificateDigest(const check::CheckReport& report, const std::string& before);

/// Whether the verdict counts as equality: a proof or, if the caller allows it, equality in the
/// whole scope.
bool isEqual(check::Verdict verdict, bool allowsTested);

/// Checks both models as their files have them, with the types that follow from what these declare:
/// what else is known of a value must not change the result.
llvm::Expected<check::CheckReport> checkAsWritten(const check::DrivenModel& before,
                                                  const check::DrivenModel& after,
                                                  unsigned seed = 0);

/// Opens both models and checks them.
llvm::Expected<FileCheck> checkFiles(const CheckRequest& request, const Toolkit& toolkit);

/// The document kvopt/certificate/1 of the documentation, with an indentation of two spaces.
std::string certificateText(const FileCheck& result);

/// Checks the models again with the fields of a certificate, and compares the result with it. Fails
/// if the certificate is about other files, or if it claims more than the check shows.
llvm::Expected<FileCheck> checkCertificate(const std::string& certificate,
                                           const CheckRequest& request, const Toolkit& toolkit);

/// Sentences about a check: what was shown, under which assumptions, and what was not looked at.
std::vector<std::string> checkSentences(const check::CheckReport& report);

/// Lines of the result: the verdict, then regions that are not proved, differences, and
/// assumptions. With `isDetailed`, all regions.
SafeText checkSummary(const FileCheck& result, bool isDetailed);

} // namespace kvopt::driver
