// The target `primitive`: attention as matrix products and a softmax, with growing caches.
//
//   before   o = ai.kvopt.Sdpa<scale, causal = 1>(q, present_key, present_value[, mask])
//   after    s = Where(visible, scale * MatMul(q, Transpose(present_key)) [+ mask], -inf)
//            o = MatMul(Softmax(s), present_value)
//
// Runs in every engine, and decomposes models that contain fused attention. Inputs and outputs do
// not change, nor does the opset from 13 on.
#include "ir/shapes/shape_inference.h"
#include "passes/targets/primitive/spelled_attention.h"
#include "passes/targets/support/kvopt_domain.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* primitiveRule = "lower-primitive";

/// Replaces the node's result by the result of `spell`, and returns the last node of the latter.
llvm::Expected<Node*> replaced(Node& node, Value& (*spell)(Node&, Rewriter&), Journal& journal) {
  Rewriter rewriter(node.graph(), primitiveRule, journal);
  Value& spelled = spell(node, rewriter);
  rewriter.recordSources(*spelled.producer(), {&node});
  if (std::optional<MatchFailure> failure = rewriter.replace(node.result(), spelled))
    return unsupported("{}", failure->str()).node(node.name(), node.op().str());
  return spelled.producer();
}

class PrimitiveTarget final : public Target {
public:
  llvm::StringRef name() const override { return "primitive"; }
  llvm::StringRef summary() const override {
    return "MatMul and Softmax, for every engine: growing caches";
  }

  /// The operators are useful without a cache, too.
  bool takesSharedCaches() const override { return true; }
  bool isForCaches() const override { return false; }
  bool takesCodes() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return site.failure ? site.failure : spellingObstacle(*site.node);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions&, Journal& journal) const override {
    const int64_t irVersion = model.irVersion;
    model.markEdited();
    Manifest manifest;
    manifest.target = name().str();
    manifest.contract = CacheUpdate::Grows;
    for (AttentionSite* site : sites) {
      // The caches do not change, so the caller of the lowering describes them.
      if (site->pastFlag)
        addFlag(*site->pastFlag, manifest);
      auto attention = replaced(*site->node, spellAttention, journal);
      if (!attention)
        return attention.takeError();
      site->node = *attention;
      if (!site->hasCache())
        continue;
      for (const SiteCache* update : {&*site->key, &*site->value})
        if (isAppend(update->writer) && update->writer->result().hasUses())
          if (auto append = replaced(*update->writer, spellAppendRows, journal); !append)
            return append.takeError();
    }
    model.graph().eraseDeadNodes();
    dropKvoptDomain(model, irVersion);
    if (llvm::Error error = inferShapes(model.graph()))
      return error;
    return manifest;
  }

private:
  static bool isAppend(const Node* node) {
    return node && node->op() == OpName(kvoptDomain, "AppendRows");
  }
};

} // namespace

void register_primitive(TargetRegistry& registry) {
  registry.add(std::make_unique<PrimitiveTarget>());
}

} // namespace kvopt::targets
