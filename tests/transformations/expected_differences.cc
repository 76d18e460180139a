// Reading tables of expected differences.
#include "tests/transformations/expected_differences.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <fstream>

namespace kvopt {

ExpectedDifferences::ExpectedDifferences(const std::string& file) {
  std::ifstream stream(std::string(KVOPT_SOURCE_DIR) + "/tests/transformations/" + file);
  for (std::string line; std::getline(stream, line);) {
    llvm::StringRef text = llvm::StringRef(line).trim();
    if (text.empty() || startsWith(text, "#"))
      continue;
    auto [transformation, rest] = text.split('|');
    auto [model, why] = rest.split('|');
    entries.push_back({transformation.trim().str(), model.trim().str(), why.trim().str()});
  }
}

bool ExpectedDifferences::takes(const std::string& transformation, const std::string& model) {
  for (Entry& entry : entries)
    if (entry.transformation == transformation && entry.model == model)
      return entry.used = true;
  return false;
}

std::vector<std::string> ExpectedDifferences::unused(const std::string& transformation,
                                                     const std::vector<Subject>& subjects) const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries)
    if (entry.transformation == transformation && !entry.used &&
        llvm::any_of(subjects, [&](const Subject& subject) { return subject.name == entry.model; }))
      lines.push_back(entry.model + ": " + entry.why);
  return lines;
}

} // namespace kvopt
