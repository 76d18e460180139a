// Roles of inputs by description and by name.
#include "ir/manifest/documented_inputs.h"

#include "ir/graph.h"

namespace kvopt::ir {

bool isTokenInput(const Value& input, llvm::ArrayRef<ManifestInput> described) {
  for (const ManifestInput& entry : described)
    if (entry.input == input.name() && entry.feed != InputFeed::Any)
      return entry.feed == InputFeed::Tokens;
  const DocumentedInput* documented = documentedInput(input);
  return documented && documented->feed == InputFeed::Tokens;
}

std::vector<const Value*> tokenInputs(const Graph& graph, llvm::ArrayRef<ManifestInput> described) {
  std::vector<const Value*> tokens;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (isTokenInput(*input, described))
      tokens.push_back(input.get());
  return tokens;
}

bool isMaskFeed(InputFeed feed) {
  return feed == InputFeed::VisibleKeys || feed == InputFeed::HiddenKeys ||
         feed == InputFeed::AdditiveMask || isAtEnd(feed);
}

bool isAtEnd(InputFeed feed) {
  return feed == InputFeed::VisibleKeysAtEnd || feed == InputFeed::HiddenKeysAtEnd ||
         feed == InputFeed::AdditiveMaskAtEnd;
}

} // namespace kvopt::ir
