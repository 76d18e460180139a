// A table by domain and name.
#include "meaning/definitions.h"

#include "ir/graph.h"
#include "ir/op.h"
#include "ir/verify/node_check.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

void Definitions::add(ir::OpName name, Define define, int64_t since) {
  auto& versions = all_[{name.domain().str(), name.type().str()}];
  versions.push_back({since, define});
  llvm::sort(versions, [](const Versions& a, const Versions& b) { return a.since < b.since; });
}

Define Definitions::find(ir::OpName name, int64_t version) const {
  const auto found = all_.find({name.domain().str(), name.type().str()});
  if (found == all_.end())
    return nullptr;
  Define define = nullptr;
  for (const Versions& versions : found->second)
    if (versions.since <= version)
      define = versions.define;
  return define;
}

void Definitions::forEach(llvm::function_ref<void(ir::OpName, int64_t, Define)> use) const {
  for (const auto& [name, versions] : all_)
    for (const Versions& each : versions)
      use(ir::OpName(name.first, name.second), each.since, each.define);
}

Define definitionOf(const ir::Node& node) {
  struct Filled : Definitions {
    Filled() { registerAll(*this); }
  };
  static const Filled all;
  if (!node.definition() || ir::hasUnknownOperands(node) ||
      llvm::errorToBool(ir::checkDefinition(node)))
    return nullptr;
  return all.find(node.op(), node.graph().opsetVersion(node.op().domain()));
}

} // namespace kvopt::meaning
