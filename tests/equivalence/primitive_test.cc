// Models as the target primitive writes them: plain operators, the same results, and what kvopt
// recovers from them again.
#include "tests/equivalence/corpus.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/temporary_folder.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
namespace {

using PrimitiveTest = ShippedModelTest;

TEST_P(PrimitiveTest, EverythingAroundAttentionStays) {
  const DrivenModel exported = asExported(path(), registries);
  const DrivenModel plain = rewritten(path(), registries, "", "primitive");
  EXPECT_EQ(plain.manifest.target, "primitive");
  EXPECT_EQ(plain.manifest.contract, CacheContract::Growing);
  EXPECT_FALSE(plain.manifest.sharesBuffers());
  EXPECT_EQ(plain.manifest.caches.size(), 2 * GetParam().sites);
  EXPECT_EQ(plain.model->opsets, exported.model->opsets);
  EXPECT_EQ(plain.model->irVersion, exported.model->irVersion);
  EXPECT_TRUE(plain.model->functions.empty());
  EXPECT_EQ(plain.model->graph().inputs().size(), exported.model->graph().inputs().size());
  unsigned softmaxes = 0;
  for (const Node& node : plain.model->graph().nodes()) {
    EXPECT_TRUE(node.op().isOnnx()) << node.op().str();
    EXPECT_FALSE(node.is("Attention"));
    softmaxes += node.is("Softmax");
  }
  EXPECT_EQ(softmaxes, GetParam().sites);
}

TEST_P(PrimitiveTest, ComputesTheSameAsTheExportedModel) {
  const DrivenModel plain = rewritten(path(), registries, "", "primitive");
  const VerificationReport report = valueOrThrow(
      verifyRewrite(path(), *plain.model, plain.manifest, fullVerification(), registries));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.batch, 2);
}

/// What the attention operators of a rewritten model are told, in order.
std::vector<std::string> attentionsOf(const Model& model) {
  std::vector<std::string> told;
  for (const Node& node : model.graph().nodes()) {
    if (node.op().domain() != kvoptDomain)
      continue;
    std::string text = node.op().str();
    for (unsigned operand = 0; operand < node.operands().size(); ++operand)
      text += node.operand(operand) ? " +" : " -";
    for (const char* name : {"causal", "window", "mask_boolean"})
      text += fmt::format(" {} {}", name, node.intAttr(name, 0));
    for (const char* name : {"scale", "softcap"})
      text += fmt::format(" {} {:.6g}", name, node.floatAttr(name, 0));
    for (const Use& use : node.operands())
      if (use.value() && use.value()->isGraphInput())
        text += " " + use.value()->name().str();
    told.push_back(std::move(text));
  }
  return told;
}

/// kvopt's own form of the model, and of what primitive made of it, have to be one.
void expectTheSameForm(const std::string& path, const Registries& registries) {
  TemporaryFolder folder;
  const std::string plain = folder.path("plain.onnx");
  successOrThrow(exportModel(*rewritten(path, registries, "", "primitive").model, plain));
  const DrivenModel direct = rewritten(path, registries);
  const DrivenModel around = rewritten(plain, registries);
  EXPECT_FALSE(attentionsOf(*direct.model).empty());
  EXPECT_EQ(attentionsOf(*around.model), attentionsOf(*direct.model));
  EXPECT_EQ(around.manifest.json(), direct.manifest.json());
  // And what is plain already gets no plainer.
  const DrivenModel again = rewritten(plain, registries, "", "primitive");
  EXPECT_EQ(again.model->graph().nodes().size(),
            valueOrThrow(importModel(plain, registries.ops))->graph().nodes().size());
}

TEST_P(PrimitiveTest, IsRecoveredAsWhatItWas) { expectTheSameForm(path(), registries); }

INSTANTIATE_TEST_SUITE_P(Shipped, PrimitiveTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
