// BatchNormalization: 9 removed separate statistics for every feature (spatial = 0); since 14 an
// attribute, not the number of results, indicates training.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* batchNormalizationAttributes[] = {"spatial"};

std::optional<std::string> obstacleTo9(const Node& node) {
  const Attribute* spatial = node.attribute("spatial");
  if (spatial && (spatial->kind() != AttributeKind::Int || spatial->intValue() != 1))
    return "attribute 'spatial' is not 1";
  return std::nullopt;
}

void adaptTo9(const OpsetEdit& edit) { edit.node().removeAttribute("spatial"); }

std::optional<std::string> obstacleTo14(const Node& node) {
  if (node.results().size() > 1)
    return "results of training";
  return std::nullopt;
}

void adaptTo14(const OpsetEdit&) {}

} // namespace

void register_batch_normalization(OpsetAdapterRegistry& registry) {
  registry.add({"BatchNormalization", 9, obstacleTo9, adaptTo9, batchNormalizationAttributes});
  registry.add({"BatchNormalization", 14, obstacleTo14, adaptTo14, {}});
}

} // namespace kvopt::opset
