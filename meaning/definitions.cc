// A table by domain and name.
#include "meaning/definitions.h"

#include "ir/graph.h"
#include "ir/op.h"
#include "ir/verify/node_check.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

void Definitions::add(ir::OpName name, Define define, int64_t since) {
  const auto entry = all_.try_emplace({name.domain().str(), name.type().str()}).first;
  auto& [key, versions] = *entry;
  versions.push_back({since, define});
  llvm::sort(versions, [](const Versions& a, const Versions& b) { return a.since < b.since; });
  byName_[ir::OpName(key.first, key.second)] = &versions;
}

Define Definitions::find(ir::OpName name, int64_t version) const {
  const auto found = byName_.find(name);
  if (found == byName_.end())
    return nullptr;
  Define define = nullptr;
  for (const Versions& versions : *found->second)
    if (versions.since <= version)
      define = versions.define;
  return define;
}

void Definitions::forEach(llvm::function_ref<void(ir::OpName, int64_t, Define)> use) const {
  for (const auto& [name, versions] : all_)
    for (const Versions& each : versions)
      use(ir::OpName(name.first, name.second), each.since, each.define);
}

const Definitions& definitions() {
  static const auto all = [] {
    auto made = std::make_unique<Definitions>();
    registerAll(*made);
    return made;
  }();
  return *all;
}

Define definitionOf(const ir::Node& node) {
  if (!node.definition() || ir::hasUnknownOperands(node) ||
      llvm::errorToBool(ir::checkDefinition(node)))
    return nullptr;
  return definitions().find(node.op(), node.graph().opsetVersion(node.op().domain()));
}

} // namespace kvopt::meaning
