// The comparison that a model's file claims, and the digest by which it names the other file.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <string>

namespace kvopt::driver {

/// SHA-256 in hexadecimal.
std::string hexDigest(llvm::StringRef bytes);

/// SHA-256 of the file or the bytes that a model was read from, in hexadecimal; empty for a model
/// that was not read. It does not cover external data.
std::string digestOf(const ir::Model& model);

/// A claim of the second model of a comparison.
struct ReportedClaim {
  ir::ManifestComparison comparison;
  std::string first; ///< digest of the first model (digestOf)

  bool isAboutFirst() const { return comparison.before == first; }
};

/// The comparison that a manifest claims, as a sentence without a subject.
std::string claimSentence(const ir::ManifestComparison& claim);

/// Addition to the sentence if the claim is about another file than the one with that digest; empty
/// otherwise.
std::string claimedRemark(const ir::ManifestComparison& claim, const std::string& digest);

} // namespace kvopt::driver
