// A target of one's own: writes recovered attention as my.engine::FlashAttention and refuses what
// that engine cannot do. In the tree it would be the file passes/targets/my_engine.cc and nothing
// else.
#include "ir/op.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "passes/pass_manager.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"

#include <cstdio>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

class MyEngine final : public Target {
public:
  llvm::StringRef name() const override { return "my-engine"; }
  llvm::StringRef summary() const override { return "my.engine::FlashAttention"; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    if (site.failure)
      return site.failure;
    if (site.hasCache())
      return MatchFailure{ReasonCode::TargetLacksFeature, site.node->name().str(),
                          "attention without a cache", "a cache", ""};
    // What the engine's operator has no attribute for is refused, never dropped.
    const Node& sdpa = *site.node;
    if (sdpa.intAttr("causal", 0) != 0 || sdpa.intAttr("window", 0) != 0 ||
        sdpa.floatAttr("softcap", 0.0f) != 0.0f)
      return MatchFailure{ReasonCode::TargetLacksFeature, sdpa.name().str(),
                          "attention without causal, window and softcap", "one of them", ""};
    return std::nullopt;
  }

  /// The engine runs attention without a cache, too.
  bool isForCaches() const override { return false; }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions&, Journal& journal) const override {
    for (AttentionSite* site : sites) {
      Rewriter rewriter(model.graph(), "lower-my-engine", journal);
      Node& sdpa = *site->node;
      llvm::SmallVector<Value*, 4> operands;
      for (const Use& use : sdpa.operands())
        operands.push_back(use.value());
      std::vector<NamedAttribute> attributes;
      attributes.push_back({"scale", Attribute::ofFloat(sdpa.floatAttr("scale", 1.0f))});
      Node& fused = rewriter.create("my.engine::FlashAttention", operands, std::move(attributes));
      if (auto failure = rewriter.replace(sdpa.result(), fused.result()))
        return unsupported("{}", failure->str());
    }
    model.opsets["my.engine"] = 1;
    model.graph().eraseDeadNodes();
    Manifest manifest;
    manifest.target = "my-engine";
    return manifest;
  }
};

constexpr const char* text = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[b,4,s,16] q, float[b,4,s,16] k, float[b,4,s,16] v) => (float[b,4,s,16] o)
<float scale = {0.25}>
{
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  scores = MatMul (q, kt)
  scaled = Mul (scores, scale)
  weights = Softmax <axis = -1> (scaled)
  o = MatMul (weights, v)
}
)";

llvm::Error run() {
  OpRegistry ops;
  registerAll(ops);
  RuleRegistry rules;
  registerAll(rules);
  PassRegistry passes;
  registerAll(passes);
  TargetRegistry targets;
  registerAll(targets);
  targets.add(std::make_unique<MyEngine>());

  auto model = readText(text, ops);
  if (!model)
    return model.takeError();
  PassContext context(rules, targets);
  PassManager manager(passes, {});
  if (llvm::Error error = manager.addPipeline(
          "infer-shapes,normalize,raise-attention,strip-gqa-broadcast,lower{to=my-engine}"))
    return error;
  if (llvm::Error error = manager.run(**model, context))
    return error;
  std::fputs(printText(**model).c_str(), stdout);
  auto& nodes = (*model)->graph().nodes();
  if (nodes.size() != 1 || !nodes.front().is("my.engine::FlashAttention"))
    return invalid("the attention was not lowered");
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt

int main() {
  if (llvm::Error error = kvopt::run()) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
  return 0;
}
