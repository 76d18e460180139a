// Models as the target primitive writes them: plain operators, the same results, and what kvopt
// recovers from them again.
#include "tests/equivalence/attention_forms.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

using PrimitiveTest = ShippedModelTest;

TEST_P(PrimitiveTest, EverythingAroundAttentionStays) {
  const DrivenModel exported = asExported(path(), toolkit);
  const DrivenModel plain = rewritten(path(), toolkit, "", "primitive");
  EXPECT_EQ(plain.manifest.target, "primitive");
  EXPECT_EQ(plain.manifest.contract, CacheUpdate::Grows);
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

/// The manifest of a model of which nothing is known of positions.
Manifest withoutRotations(Manifest manifest) {
  manifest.rotations.reset();
  for (ManifestCache& cache : manifest.caches)
    cache.rotation.reset();
  return manifest;
}

/// kvopt's own form of the model, and of what primitive made of it, have to be one. `masks` tells
/// whether the mask that primitive writes is proved to be what it was.
void expectTheSameForm(const std::string& path, const Toolkit& toolkit, bool masks = true) {
  TemporaryFolder folder;
  const std::string plain = folder.path("plain.onnx");
  successOrThrow(exportModel(*rewritten(path, toolkit, "", "primitive").model, plain));
  const DrivenModel direct = rewritten(path, toolkit);
  const DrivenModel around = rewritten(plain, toolkit);
  EXPECT_FALSE(attentionsOf(*direct.model).empty());
  EXPECT_EQ(attentionsOf(*around.model), attentionsOf(*direct.model));
  EXPECT_EQ(around.manifest.json(),
            masks ? direct.manifest.json() : withoutRotations(direct.manifest).json());
}

TEST_P(PrimitiveTest, IsRecoveredAsWhatItWas) { expectTheSameForm(path(), toolkit); }

using PrimitiveCorpusTest = CorpusTest;

TEST_F(PrimitiveCorpusTest, EveryModelIsRecoveredAsWhatItWas) {
  Toolkit toolkit;
  unsigned compared = 0;
  for (const std::string& name : sampleOf(foldersWith(corpusFolder(), "model.onnx"))) {
    if (refusedInPlace().count(name) != 0)
      continue; // there is no form in place
    SCOPED_TRACE(name);
    // Its causal mask and its padding are two numbers of float16 whose sum overflows.
    const bool masks = name != "qwen2-genai-fp16-cpu";
    expectTheSameForm((corpusFolder() / name / "model.onnx").string(), toolkit, masks);
    ++compared;
  }
  EXPECT_GE(compared, leastInSample(54));
}

INSTANTIATE_TEST_SUITE_P(Shipped, PrimitiveTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
