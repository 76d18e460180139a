// What a rewrite without options writes: operators that ONNX Runtime computes with kernels, in the
// form that inspect recommends.
#include "driver/engines/engine_facts.h"
#include "driver/forms/form_table.h"
#include "driver/forms/form_words.h"
#include "driver/inspect/model_json.h"
#include "driver/rewrite/recommendation.h"
#include "driver/rewrite/rewrite_forms.h"
#include "driver/synthetic/decoder.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/text/reader.h"
#include "support/format.h"
#include "tests/ir/corpus.h"
#include "tests/support/temporary_folder.h"

#include "llvm/ADT/STLExtras.h"

#include <gmock/gmock.h>

#include <map>

namespace kvopt {
using namespace driver;
using namespace ir;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

namespace {

class DefaultForms : public testing::Test {
protected:
  std::string generated(DecoderSpec spec) {
    auto model = generateDecoder(toolkit.ops, llvm::cantFail(resolved(spec)));
    return saved(*model);
  }
  std::string saved(Model& model) {
    const std::string path = folder.path(formatted("m{}.onnx", count++));
    llvm::cantFail(exportModel(model, path));
    return path;
  }
  std::string ofText(const std::string& text) {
    return saved(*llvm::cantFail(readText(text, toolkit.ops)));
  }

  FirstForm written(const std::string& path) const {
    RewriteRequest request;
    request.verification = VerificationExtent::Off;
    return llvm::cantFail(
        rewriteInFirstForm(path, request, llvm::cantFail(chooseForms({})), toolkit));
  }
  Recommendation recommended(const std::string& path) const {
    return recommend(path, llvm::cantFail(recoverForInspection(path, toolkit)), toolkit);
  }

  /// Requirements of a written model that ONNX Runtime has no kernels for, and that the export does
  /// not have.
  std::vector<std::string> withoutKernels(Model& model, const std::string& path) const {
    const auto given = engineUses(llvm::cantFail(openModel(path, toolkit))->graph());
    std::vector<std::string> found;
    for (EngineUse use : engineUses(model.graph()))
      if (!engineFact(use).hasKernels && !llvm::is_contained(given, use))
        found.emplace_back(engineFact(use).what);
    return found;
  }

  /// What must hold for every model.
  void expectSound(const std::string& path) const {
    SCOPED_TRACE(path);
    const FirstForm first = written(path);
    const std::string command = recommended(path).command;
    const std::string rewriting = formatted("kvopt rewrite {} -o OUT.onnx", path);
    if (std::holds_alternative<RefusedModel>(first.result)) {
      // At most a form that the user must ask for, in part.
      EXPECT_TRUE(command.rfind(rewriting, 0) != 0 ||
                  llvm::StringRef(command).contains("--require"))
          << command;
      return;
    }
    const bool isFirst = first.form == defaultForms().front();
    EXPECT_EQ(command, isFirst ? rewriting : rewriting + " " + optionsOf(first.form));
    if (const auto* model = std::get_if<RewrittenModel>(&first.result)) {
      EXPECT_THAT(withoutKernels(*model->model, path), IsEmpty());
      EXPECT_EQ(model->passes->lowered.size() + model->passes->left.size(),
                model->passes->sites.size());
    }
  }

  Toolkit toolkit;
  TemporaryFolder folder;
  int count = 0;
};

TEST_F(DefaultForms, HaveKernelsAndAreRecommended) {
  for (const char* model :
       {"kjv", "llama_gqa-ts14-eager", "gpt2-dynamo18-eager", "qwen2-dynamo23-sdpa"})
    if (const std::string path = formatted("{}/models/{}/model.onnx", KVOPT_SOURCE_DIR, model);
        std::filesystem::exists(path))
      expectSound(path);
  std::vector<DecoderSpec> specs(1);
  for (DecoderKind kind : {DecoderKind::Mla, DecoderKind::MlaLatent, DecoderKind::EncoderDecoder}) {
    specs.emplace_back();
    specs.back().kind = kind;
  }
  specs.emplace_back();
  specs.back().kind = DecoderKind::Window;
  specs.back().cache = DecoderCache::LastRows;
  specs.back().window = 8;
  for (DecoderCache cache : {DecoderCache::Static, DecoderCache::None}) {
    specs.emplace_back();
    specs.back().cache = cache;
    specs.back().maxPositions = 64;
  }
  specs.emplace_back();
  specs.back().merged = true;
  specs.emplace_back();
  specs.back().kind = DecoderKind::EncoderDecoder;
  specs.back().real = ElementType::Float16;
  for (const DecoderSpec& spec : specs)
    expectSound(generated(spec));
}

TEST_F(DefaultForms, OfTheCorpusHaveKernelsAndAreRecommended) {
  for (const std::string& path : sampleOf(corpusModels(), costlyOneIn()))
    expectSound(path);
}

/// A model that no form with caches improves is not rewritten unless the user chooses a form.
TEST_F(DefaultForms, AreRefusedWithoutCaches) {
  DecoderSpec spec;
  spec.cache = DecoderCache::None;
  const std::string path = generated(spec);
  const FirstForm first = written(path);
  EXPECT_THAT(first.refused, IsEmpty());
  ASSERT_TRUE(std::holds_alternative<RefusedModel>(first.result));
  const auto& refused = std::get<RefusedModel>(first.result);
  ASSERT_TRUE(refused.withoutCaches);
  EXPECT_THAT(refused.withoutCaches->command, HasSubstr("kvopt add-cache"));
  EXPECT_EQ(recommended(path).text(), refused.withoutCaches->text());
}

/// Half precision has no kernel of MultiHeadAttention on CPUs: the layers stay, and say so.
TEST_F(DefaultForms, LeaveLayersThatHaveNothingToGain) {
  DecoderSpec spec;
  spec.kind = DecoderKind::EncoderDecoder;
  for (ElementType real : {ElementType::Float, ElementType::Float16}) {
    spec.real = real;
    const FirstForm first = written(generated(spec));
    ASSERT_TRUE(std::holds_alternative<RewrittenModel>(first.result));
    const auto& model = std::get<RewrittenModel>(first.result);
    EXPECT_EQ(first.form, defaultForms().front());
    const bool isHalf = real == ElementType::Float16;
    EXPECT_THAT(model.passes->lowered, SizeIs(isHalf ? 2 : 4));
    ASSERT_THAT(model.passes->left, SizeIs(isHalf ? 2 : 0));
    for (const passes::LeftSite& left : model.passes->left)
      EXPECT_TRUE(left.costsNothing);
  }
}

/// Attention whose probabilities are an output is not recognized. Over a cache that only grows
/// elsewhere, it stays as it is; over one that grows, the model is refused.
TEST_F(DefaultForms, LeaveUnrecognizedAttentionThatOnlyReads) {
  const auto text = [](bool isCross) {
    return formatted(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (float[B, S, 16] x, float[B, 2, E, 8] key, float[B, 2, E, 8] value,
         float[B, 2, P, 8] pk, float[B, 2, P, 8] pv, float[B, 2, P, 8] pk2, float[B, 2, P, 8] pv2)
  => (float[B, S, 16] y, float[B, 2, S, N] weights, float[B, 2, T, 8] nk, float[B, 2, T, 8] nv,
      float[B, 2, T, 8] nk2, float[B, 2, T, 8] nv2)
{{
  heads = Constant <value_ints = [0, 0, 2, 8]> ()
  rows = Constant <value_ints = [0, 0, 16]> ()
  scale = Constant <value_float = 0.35> ()
  xr = Reshape (x, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (xr)
  nk = Concat <axis = 2> (pk, q)
  nv = Concat <axis = 2> (pv, q)
  kt = Transpose <perm = [0, 1, 3, 2]> (nk)
  s = MatMul (q, kt)
  ss = Mul (s, scale)
  lengths = Shape <start = 2, end = 3> (nk)
  sizes = Shape <start = 2, end = 3> (q)
  none = Constant <value_ints = []> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  columns_end = Reshape (lengths, none)
  columns = Range (zero, columns_end, one)
  rows_end = Reshape (sizes, none)
  steps = Range (zero, rows_end, one)
  earlier = Sub (columns_end, rows_end)
  places = Add (steps, earlier)
  at = Constant <value_ints = [1]> ()
  place = Unsqueeze (places, at)
  seen = LessOrEqual (columns, place)
  hidden = Constant <value_float = -inf> ()
  sm = Where (seen, ss, hidden)
  p = Softmax <axis = -1> (sm)
  o = MatMul (p, nv)
  nk2 = Concat <axis = 2> (pk2, o)
  nv2 = Concat <axis = 2> (pv2, o)
  ct = Transpose <perm = [0, 1, 3, 2]> ({0})
  cs = MatMul (o, ct)
  csc = Mul (cs, scale)
  weights = Softmax <axis = -1> (csc)
  co = MatMul (weights, {1})
  ot = Transpose <perm = [0, 2, 1, 3]> (co)
  y = Reshape (ot, rows)
}})",
                     isCross ? "key" : "nk2", isCross ? "value" : "nv2");
  };
  const FirstForm cross = written(ofText(text(true)));
  ASSERT_TRUE(std::holds_alternative<RewrittenModel>(cross.result))
      << std::get<RefusedModel>(cross.result).message;
  const auto& model = std::get<RewrittenModel>(cross.result);
  EXPECT_THAT(model.passes->lowered, SizeIs(1));
  ASSERT_THAT(model.passes->left, SizeIs(1));
  EXPECT_TRUE(model.passes->left.front().costsNothing);
  const FirstForm own = written(ofText(text(false)));
  EXPECT_TRUE(std::holds_alternative<RefusedModel>(own.result));
}

/// Advice names another form than the one that was written, and one that the model can have.
TEST_F(DefaultForms, AreNamedWhereAnotherFormNeedsTheLibrary) {
  const auto notes = [&](DecoderSpec spec, const char* target) {
    const std::string path = generated(spec);
    RewriteRequest request;
    request.verification = VerificationExtent::Off;
    const FirstForm first = llvm::cantFail(
        rewriteInFirstForm(path, request, llvm::cantFail(presetForm(target)), toolkit));
    const auto& model = std::get<RewrittenModel>(first.result);
    return llvm::join(engineNotes(model.model->graph(), model.otherForms), " ");
  };
  DecoderSpec mla;
  mla.kind = DecoderKind::Mla;
  EXPECT_THAT(notes({}, "kvopt"), HasSubstr("Without the library: --to ort."));
  EXPECT_THAT(notes(mla, "kvopt"), HasSubstr("Without the library: --to onnx."));
  EXPECT_THAT(notes({}, "onnx24"), HasSubstr("They load --to ort."));
  EXPECT_THAT(notes(mla, "onnx24"), HasSubstr("They load --to onnx --opset 23."));
  EXPECT_THAT(notes({}, "ort-gqa"), Not(HasSubstr("--to")));
}

} // namespace
} // namespace kvopt
