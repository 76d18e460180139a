// Compares the recognized attention with the results of the exported graph, evaluated at small
// sizes. If they contradict each other, the site is refused, because a rule is wrong: the Sdpa gets
// a metadata entry that makes it a missed site.
#include "passes/analysis/evaluation/attention_reading.h"
#include "passes/pass.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* checkAttentionName = "check-attention";

/// Readings of the one softmax that the node replaces; null if it is unknown.
const AttentionReadings* readingsOf(const Node& node, const ExportedAttention& exported) {
  const AttentionReadings* found = nullptr;
  for (const auto& [key, text] : node.metadata()) {
    if (key != sourceMetadataKey)
      continue;
    llvm::SmallVector<llvm::StringRef, 8> names;
    llvm::StringRef(text).split(names, ' ', -1, /*KeepEmpty=*/false);
    for (llvm::StringRef name : names) {
      const auto entry = exported.bySoftmax.find(name);
      if (entry == exported.bySoftmax.end())
        continue;
      if (found)
        return nullptr;
      found = &entry->second;
    }
  }
  return found;
}

class CheckAttention final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    const ExportedAttention* exported = context.exportedAttention.get();
    if (!exported || exported->bySoftmax.empty())
      return llvm::Error::success();
    std::vector<std::unique_ptr<Evaluation>> points;
    for (Node& node : model.graph().nodes()) {
      if (node.op() != OpName("ai.kvopt::Sdpa"))
        continue;
      const AttentionReadings* readings = readingsOf(node, *exported);
      if (!readings)
        continue;
      if (points.empty())
        points = readingPoints(model.graph(), context.interface);
      check(node, *readings, points, context);
    }
    return llvm::Error::success();
  }

private:
  static void check(Node& node, const AttentionReadings& readings,
                    llvm::ArrayRef<std::unique_ptr<Evaluation>> points, PassContext& context) {
    bool isCompared = false;
    for (size_t i = 0; i < std::min(readings.size(), points.size()); ++i) {
      const auto recognized =
          readings[i] ? readCanonicalAttention(node, *readings[i], *points[i]) : std::nullopt;
      if (!recognized)
        continue;
      isCompared = true;
      const std::string text = contradiction(*readings[i], *recognized);
      if (text.empty())
        continue;
      Metadata metadata = node.metadata();
      metadata.emplace_back(contradictionMetadataKey, text);
      node.setMetadata(std::move(metadata));
      context.count(checkAttentionName, "contradicted");
      return;
    }
    context.count(checkAttentionName, isCompared ? "agreed" : "not-compared");
  }
};

} // namespace

void register_check_attention(PassRegistry& registry) {
  registry.add({checkAttentionName,
                "Refuses attention that evaluation of the exported graph contradicts.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<CheckAttention>());
                }});
}

} // namespace kvopt::transforms
