// Digests and sentences of claims.
#include "driver/claim.h"

#include "ir/onnx/import.h"
#include "support/format.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace kvopt::driver {

std::string hexDigest(llvm::StringRef bytes) {
  llvm::SHA256 hash;
  hash.update(bytes);
  return llvm::toHex(hash.final(), true);
}

std::string digestOf(const ir::Model& model) {
  const std::span<const std::byte> bytes = ir::sourceBytes(model);
  if (bytes.empty())
    return "";
  std::string digest = hexDigest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ir::releaseSource(model);
  return digest;
}

std::string claimSentence(const ir::ManifestComparison& claim) {
  constexpr size_t shownDigits = 16;
  const bool isProof = claim.verdict != ir::EqualityVerdict::Tested;
  std::string text = formatted("{}equal to the model with SHA-256 {}…", isProof ? "proved " : "",
                               claim.before.substr(0, shownDigits));
  if (!claim.certificate.empty())
    text += formatted(" (certificate {}…)", claim.certificate.substr(0, shownDigits));
  if (!isProof)
    text += formatted(" in {}, which is not a proof", claim.by == ir::ComparisonMeans::Check
                                                          ? "the scope of a check"
                                                          : "runs of both models");
  return text;
}

std::string claimedRemark(const ir::ManifestComparison& claim, const std::string& digest) {
  return claim.before == digest ? "" : "; the first model here is another one";
}

} // namespace kvopt::driver
