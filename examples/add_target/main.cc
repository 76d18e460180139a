// A new target: writes recovered attention as my.engine::FlashAttention, and refuses everything
// that this engine does not support, by name. In the tree it would be the folder
// passes/targets/my_engine, with this class in my_engine_target.cc and a page.
#include "driver/toolkit.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "passes/pass_manager.h"
#include "passes/pattern/handled.h"
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

constexpr const char* spelledAttention = R"(
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
    // All other attributes of ai.kvopt::Sdpa, present and future, are refused by name.
    static constexpr llvm::StringLiteral attributes[] = {"scale"};
    static constexpr llvm::StringLiteral operands[] = {"query", "key", "value"};
    return unhandled(*site.node, {attributes, operands});
  }

  /// The engine also runs attention without a cache.
  bool isForCaches() const override { return false; }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions&, Journal& journal) const override {
    for (AttentionSite* site : sites) {
      Rewriter rewriter(model.graph(), "lower-my-engine", journal);
      Node& sdpa = *site->node;
      Node& fused = rewriter.create("my.engine::FlashAttention",
                                    {sdpa.operand(0), sdpa.operand(1), sdpa.operand(2)},
                                    attrs({{"scale", sdpa.floatAttr("scale", 1.0f)}}));
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

/// Attention as raised, with additional `attributes` and `operands` of ai.kvopt::Sdpa.
std::string attentionText(const std::string& attributes, const std::string& operands) {
  return R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
g (float[2,4,3,16] q, float[2,4,3,16] k, float[2,4,3,16] v, bool[3,3] mask, float[4] sinks)
  => (float[2,4,3,16] o)
{
  o = ai.kvopt.Sdpa <scale = 0.25)" +
         attributes + "> (q, k, v" + operands + R"()
})";
}

/// Lowers attention. Returns the model's text, or the reason that the target refuses it.
llvm::Expected<std::string> lowered(const std::string& text, const driver::Toolkit& toolkit) {
  auto model = readText(text, toolkit.ops);
  if (!model)
    return model.takeError();
  PassContext context(toolkit.rules, toolkit.targets);
  PassManager manager(toolkit.passes, {});
  if (llvm::Error error = manager.addPipeline(
          "infer-shapes,normalize,raise-attention,prove-masks,detect-sites,lower{to=my-engine}"))
    return error;
  if (llvm::Error error = manager.run(**model, context))
    return error;
  return printText(**model);
}

llvm::Error run() {
  driver::Toolkit toolkit;
  toolkit.targets.add(std::make_unique<MyEngine>());

  auto plain = lowered(spelledAttention, toolkit);
  if (!plain)
    return plain.takeError();
  std::fputs(plain->c_str(), stdout);
  if (plain->find("my.engine.FlashAttention <scale = 0.25> (q, k, v)") == std::string::npos)
    return invalid("the attention was not lowered, or lost its scale");

  const std::pair<const char*, std::string> refused[] = {
      {"softcap", attentionText(", softcap = 30.0", "")},
      {"causal", attentionText(", causal = 1", "")},
      {"window", attentionText(", causal = 1, window = 2", "")},
      {"mask", attentionText("", ", mask")},
      {"sinks", attentionText("", ", , sinks")},
  };
  for (const auto& [feature, text] : refused) {
    auto written = lowered(text, toolkit);
    if (written)
      return invalid("attention with {} was lowered", feature);
    const std::string reason = takeDiagnostic(written.takeError()).str();
    std::printf("refused: %s\n", reason.c_str());
    if (reason.find(feature) == std::string::npos && std::string(feature) != "window")
      return invalid("the refusal of {} does not name it", feature);
  }
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
