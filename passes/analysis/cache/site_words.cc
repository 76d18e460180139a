// Words for sites.
#include "passes/analysis/cache/site_words.h"

namespace kvopt::analysis {
using namespace ir;

llvm::StringRef siteKindName(const AttentionSite& site) {
  if (site.isCross)
    return "cross";
  return site.update == CacheUpdate::None ? "none" : "self";
}

llvm::StringRef sitePolicyName(const AttentionSite& site) {
  return site.isLatent() ? "latent" : sitePolicyName(site.update);
}

llvm::StringRef sitePolicyName(CacheUpdate update) {
  switch (update) {
  case CacheUpdate::Grows:
    return "growing";
  case CacheUpdate::Static:
    return "static";
  case CacheUpdate::Ring:
    return "ring";
  case CacheUpdate::ReadOnly:
    return "cross";
  default:
    return "none"; // the other kinds do not occur at sites
  }
}

} // namespace kvopt::analysis
