// Differences of models as JSON.
#include "driver/diff/difference_json.h"

#include "driver/inspect/site_facts.h"
#include "passes/pattern/explain.h"
#include "support/json.h"

namespace kvopt::driver {
using namespace ir;
using namespace pattern;

namespace {

OrderedJson opsetsJson(const OpsetImports& opsets) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [domain, version] : opsets)
    json[domain.empty() ? "ai.onnx" : domain] = version;
  return json;
}

OrderedJson interfaceJson(const std::vector<InterfaceChange>& changes) {
  OrderedJson json = OrderedJson::array();
  auto side = [](const std::string& name, const std::string& type) -> OrderedJson {
    return name.empty() ? OrderedJson(nullptr) : OrderedJson{{"name", name}, {"type", type}};
  };
  for (const InterfaceChange& change : changes)
    json.push_back({{"change", ModelDifference::name(change.change)},
                    {"before", side(change.before, change.typeBefore)},
                    {"after", side(change.after, change.typeAfter)}});
  return json;
}

OrderedJson blockJson(const AttentionSubgraph* block, const AttentionSubgraph* other) {
  if (!block)
    return nullptr;
  OrderedJson ops = OrderedJson::object();
  for (const auto& [name, count] : block->ops())
    ops[name] = count;
  OrderedJson nodes = OrderedJson::array();
  llvm::DenseSet<const Node*> kept;
  if (other)
    kept = nodesKept(*block, *other);
  for (const Node* node : block->nodes)
    nodes.push_back(
        {{"name", labelOf(*node)}, {"op", node->op().str()}, {"kept", kept.count(node) != 0}});
  return {{"ops", ops},
          {"nodes", nodes},
          {"pasts", block->pasts},
          {"presents", block->presents},
          {"one_buffer", block->oneBuffer}};
}

} // namespace

OrderedJson differenceJson(const std::string& pathBefore, const std::string& pathAfter,
                           const ModelDifference& difference) {
  OrderedJson json;
  json["schema"] = "kvopt/diff/1";
  json["before"] = pathBefore;
  json["after"] = pathAfter;
  json["same"] = difference.isEmpty();
  json["ops"] = {{"before", difference.opsBefore}, {"after", difference.opsAfter}};
  json["opsets"] = {{"before", opsetsJson(difference.opsetsBefore)},
                    {"after", opsetsJson(difference.opsetsAfter)}};
  json["ir_version"] = {{"before", difference.irBefore}, {"after", difference.irAfter}};
  json["inputs"] = interfaceJson(difference.inputs);
  json["outputs"] = interfaceJson(difference.outputs);
  json["blocks"] = OrderedJson::array();
  for (const BlockChange& block : difference.blocks)
    json["blocks"].push_back({{"id", block.either().id()},
                              {"layer", block.either().layer},
                              {"kind", block.either().kind.str()},
                              {"change", ModelDifference::name(block.change)},
                              {"before", blockJson(block.before, block.after)},
                              {"after", blockJson(block.after, block.before)}});
  return json;
}

} // namespace kvopt::driver
