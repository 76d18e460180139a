// The operators over caches are a product of three axes, which one file lists. Whoever wants to
// know what such a node is asks ir/ops/kvopt/cache_operator.h.
#include "tests/lint/source_files.h"

#include <regex>
#include <set>

namespace kvopt {
namespace {

constexpr const char* definitions = "ir/ops/kvopt/cache_operands.h";

TEST(CacheOperators, AreNamedInOneFile) {
  const std::regex name("(InPlace|Ring|Block)\\w*KvSdpa\"");
  std::set<std::string> found;
  for (const char* folder : {"ir", "passes", "runtime", "driver", "cli", "api", "engines"})
    for (const SourceFile& file : readFiles(folder, isSourcePath))
      for (std::sregex_iterator at(file.text.begin(), file.text.end(), name), end; at != end;
           ++at) {
        EXPECT_EQ(file.path, definitions) << at->str();
        found.insert(at->str());
      }
  EXPECT_GE(found.size(), 9u);
}

} // namespace
} // namespace kvopt
