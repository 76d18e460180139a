// The operators of kvopt that a model uses.
#include "ir/manifest/manifest.h"

#include "ir/model.h"
#include "ir/op_name.h"

#include <set>

namespace kvopt::ir {

std::optional<ManifestOperators> ownOperatorsOf(Model& model) {
  std::set<std::string> names;
  forEachGraph(model.graph(), [&](Graph& part) {
    for (const Node& node : part.nodes())
      if (node.op().domain() == kvoptDomain)
        names.insert(node.op().type().str());
  });
  if (names.empty())
    return std::nullopt;
  const auto imported = model.opsets.find(kvoptDomain);
  return ManifestOperators{.domain = kvoptDomain,
                           .version = imported == model.opsets.end() ? 1 : imported->second,
                           .names = {names.begin(), names.end()}};
}

} // namespace kvopt::ir
