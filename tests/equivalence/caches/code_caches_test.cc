// Decoders whose caches hold codes with constant scales, as exported: what a session does with such
// caches leaves no trace in what the model computes.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "driver/synthetic/decoder.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

struct CodesModel {
  DecoderSpelling spelling;
  int64_t bits;
  bool columns;
  DecoderKind kind = DecoderKind::Llama;
  DecoderCache cache = DecoderCache::Growing;
};

class CodeCaches : public testing::TestWithParam<CodesModel> {
protected:
  CodeCaches() {
    DecoderSpec spec;
    spec.kind = GetParam().kind;
    spec.spelling = GetParam().spelling;
    spec.codeBits = GetParam().bits;
    spec.columnScales = GetParam().columns;
    spec.cache = GetParam().cache;
    spec.maxPositions = 64;
    spec.window = spec.kind == DecoderKind::Window ? 5 : 0;
    spec.heads = 4;
    spec.kvHeads = 2;
    driven.model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    successOrThrow(inferShapes(driven.model->graph()));
    driven.manifest = valueOrThrow(drivingManifest(*driven.model, toolkit));
  }

  std::unique_ptr<Session> open() {
    SessionOptions options;
    options.batch = 2;
    options.capacity = GetParam().cache == DecoderCache::Static ? 0 : 40;
    return openSession(driven, toolkit.runner->kernels(), options);
  }

  static std::string bytesOf(const TensorView& view) {
    std::string bytes(static_cast<size_t>(view.byteSize()), '\0');
    copyElements(view, TensorView::contiguous(view.element, view.shape,
                                              reinterpret_cast<std::byte*>(bytes.data())));
    return bytes;
  }
  /// Of the rows of tokens: a static cache keeps what is cropped.
  static std::string contents(const Session& session) {
    std::string bytes;
    for (size_t i = 0; i < session.cacheCount(); ++i)
      bytes += bytesOf(sliceAxis(valueOrThrow(session.cacheRows(i)).view, 2, 0, session.length()));
    return bytes;
  }
  /// The outputs of steps of one token up to `length`.
  static std::string stepsTo(Session& session, int64_t length, int64_t seed = 1) {
    std::string bytes;
    while (session.length() < length) {
      const StepResult result = stepAlike(session, session.length() == 0 ? 5 : 1, seed);
      for (const NamedTensor& output : result.outputs)
        bytes += bytesOf(output.tensor.view);
    }
    return bytes;
  }

  Toolkit toolkit;
  DrivenModel driven;
};

TEST_P(CodeCaches, AreOfTheirElementType) {
  const ElementType element = GetParam().bits == 4 ? ElementType::UInt8 : ElementType::Int8;
  ASSERT_EQ(driven.manifest.caches.size(), 4u);
  for (const ManifestCache& cache : driven.manifest.caches) {
    EXPECT_EQ(cache.dtype, element) << cache.past;
    EXPECT_EQ(cache.sequenceAxis, 2);
    ASSERT_EQ(cache.shape.size(), 4u);
    EXPECT_EQ(std::get<int64_t>(cache.shape[3]), GetParam().bits == 4 ? 8 : 16);
  }
  auto session = open();
  stepsTo(*session, 7);
  for (size_t i = 0; i < session->cacheCount(); ++i)
    EXPECT_EQ(valueOrThrow(session->cacheRows(i)).view.element, element);
}

/// A chunk attends to the codes of its own rows, as a token that comes later does.
TEST_P(CodeCaches, TakeTokensInStepsOfAnySize) {
  auto whole = open();
  auto parts = open();
  const StepResult prompt = stepAlike(*whole, 9);
  stepAlike(*parts, 1);
  while (parts->length() < 9)
    stepAlike(*parts, 1);
  const std::string once = contents(*whole), oneByOne = contents(*parts);
  ASSERT_EQ(once.size(), oneByOne.size());
  size_t different = 0;
  for (size_t i = 0; i < once.size(); ++i)
    different += once[i] != oneByOne[i];
  // Numbers halfway between two codes may go to either of them.
  EXPECT_LE(different, once.size() / 200);
}

TEST_P(CodeCaches, GoOnFromAFile) {
  TemporaryFolder folder;
  auto straight = open();
  stepsTo(*straight, 8);
  const std::string expected = stepsTo(*straight, 12);
  auto saved = open();
  stepsTo(*saved, 8);
  successOrThrow(saved->save(folder.path("cache.kv")));
  auto loaded = open();
  successOrThrow(loaded->load(folder.path("cache.kv")));
  EXPECT_EQ(loaded->length(), 8);
  EXPECT_TRUE(stepsTo(*loaded, 12) == expected);
  EXPECT_TRUE(contents(*loaded) == contents(*straight));
}

TEST_P(CodeCaches, AreForkedAndCropped) {
  auto original = open();
  stepsTo(*original, 8);
  auto fork = valueOrThrow(original->fork());
  stepsTo(*fork, 11, 2);
  const std::string expected = stepsTo(*original, 11);
  successOrThrow(original->crop(8));
  successOrThrow(fork->crop(8));
  EXPECT_TRUE(contents(*original) == contents(*fork));
  EXPECT_TRUE(stepsTo(*original, 11) == expected);
  EXPECT_TRUE(stepsTo(*fork, 11) == expected);
}

TEST_P(CodeCaches, AreReordered) {
  auto first = open();
  stepsTo(*first, 8);
  const std::string before = contents(*first);
  successOrThrow(first->reorder({1, 0}));
  EXPECT_FALSE(contents(*first) == before);
  successOrThrow(first->reorder({1, 0}));
  EXPECT_TRUE(contents(*first) == before);
}

TEST_P(CodeCaches, AreVerified) {
  const VerificationReport report =
      valueOrThrow(verifyModels(*driven.model, driven.manifest, *driven.model, driven.manifest,
                                quickVerification(), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
}

class RewrittenCodeCaches : public testing::Test {
protected:
  std::string written(DecoderSpelling spelling, bool columns, DecoderCache cache,
                      int64_t layers = 2) {
    DecoderSpec spec;
    spec.spelling = spelling;
    spec.codeBits = 8;
    spec.columnScales = columns;
    spec.cache = cache;
    spec.layers = layers;
    spec.hidden = layers > 2 ? 256 : 64;
    spec.maxPositions = 64;
    const std::string path = folder.path("model.onnx");
    successOrThrow(exportModel(*generateDecoder(toolkit.ops, valueOrThrow(resolved(spec))), path));
    return path;
  }

  RewriteResult rewrittenFor(const std::string& path, const std::string& target) {
    RewriteRequest request;
    request.verification = VerificationExtent::Quick;
    request.form = valueOrThrow(presetForm(target));
    request.capacity = target.starts_with("blocks") ? std::optional<int64_t>(64) : std::nullopt;
    return valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  }

  static size_t count(const Model& model, const char* op) {
    return static_cast<size_t>(llvm::count_if(
        model.graph().nodes(), [&](const Node& node) { return node.op() == OpName(op); }));
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

/// Attention reads the codes where they are: nothing converts a cache.
TEST_F(RewrittenCodeCaches, StayCodesInPlace) {
  for (const DecoderSpelling spelling : {DecoderSpelling::TorchScript, DecoderSpelling::Dynamo})
    for (const bool columns : {false, true})
      for (const DecoderCache cache : {DecoderCache::Growing, DecoderCache::Static}) {
        SCOPED_TRACE(formatted("spelling {} columns {} static {}", static_cast<int>(spelling),
                               columns, cache == DecoderCache::Static));
        const std::string path = written(spelling, columns, cache);
        const RewriteResult result = rewrittenFor(path, "kvopt");
        const auto* made = std::get_if<RewrittenModel>(&result);
        ASSERT_TRUE(made) << std::get<RefusedModel>(result).message;
        EXPECT_EQ(made->manifest.caches.size(), 4u);
        for (const ManifestCache& entry : made->manifest.caches) {
          EXPECT_EQ(entry.dtype, ElementType::Int8);
          EXPECT_TRUE(entry.isOneBuffer());
        }
        EXPECT_EQ(count(*made->model, "DequantizeLinear"), 0u);
        EXPECT_EQ(count(*made->model, "QuantizeLinear"), 4u);
        for (const Node& node : made->model->graph().nodes())
          if (node.is("Cast")) {
            EXPECT_NE(node.operand(0)->type().elementType(), ElementType::Int8);
          }
        const bool isStatic = cache == DecoderCache::Static;
        EXPECT_EQ(count(*made->model, isStatic ? "ai.kvopt::Sdpa" : "ai.kvopt::InPlaceKvSdpa"), 2u);
        ASSERT_TRUE(made->verification);
        EXPECT_TRUE(made->verification->equal()) << made->verification->summary(false);
        EXPECT_EQ(runsOf(*made).cacheBytesCopied, 0);

        // What was written is read, compared, and recovered like the export.
        const std::string file = folder.path("rewritten.onnx");
        successOrThrow(exportModel(*made->model, file));
        expectEqualBodies({std::move(std::get<RewrittenModel>(rewrittenFor(path, "kvopt")).model),
                           made->manifest},
                          shortPlan(*made->model), toolkit);
        EXPECT_TRUE(std::holds_alternative<UnchangedModel>(rewrittenFor(file, "kvopt")));
        if (!isStatic) {
          const RewriteResult back = rewrittenFor(file, "primitive");
          ASSERT_TRUE(std::holds_alternative<RewrittenModel>(back));
          EXPECT_TRUE(std::get<RewrittenModel>(back).verification->equal());
        }
      }
}

TEST_F(RewrittenCodeCaches, AreRefusedWhereCodesAreNotTaken) {
  const std::string path = written(DecoderSpelling::Dynamo, true, DecoderCache::Growing);
  for (const char* target : {"int8", "int4", "ring", "latent", "blocks:8", "blocks-plain:8",
                             "onnx23", "onnx24", "ort-gqa"}) {
    SCOPED_TRACE(target);
    const RewriteResult result = rewrittenFor(path, target);
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused);
    for (const RefusedSite& site : refused->sites)
      EXPECT_EQ(reasonName(site.failure.code), "dtype-mix") << site.failure.str();
  }
}

/// In a deeper model some numbers lie so near the middle of two codes that the order of a sum
/// decides. The models are the same without the rounding.
TEST_F(RewrittenCodeCaches, AreComparedWithoutRoundingWhereItDecides) {
  const std::string path = written(DecoderSpelling::Dynamo, true, DecoderCache::Growing, 8);
  const RewriteResult result = rewrittenFor(path, "kvopt");
  ASSERT_TRUE(std::holds_alternative<RewrittenModel>(result));
  const PreparedModel original = valueOrThrow(prepareModel(path, toolkit));
  const auto& made = std::get<RewrittenModel>(result);
  EquivalencePlan plan;
  plan.batch = 4;
  plan.prompt = 100;
  plan.decodeSteps = 20;
  plan.vocabulary = valueOrThrow(vocabularyOf(original.model->graph()));
  plan.tolerance = {1e-4, 0};
  const VerificationReport report = valueOrThrow(verifyModels(
      *original.model, original.manifest, *made.model, made.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  ASSERT_TRUE(report.codes.has_value());
  EXPECT_EQ(report.codes->caches, 16u);
  EXPECT_EQ(report.codes->largest, 1);
  EXPECT_GT(report.codes->different, 0);
  EXPECT_LT(report.codes->different, report.codes->compared / 20);
}

TEST_F(RewrittenCodeCaches, OfAModelThatComputesSomethingElseAreFoundOut) {
  const std::string path = written(DecoderSpelling::Dynamo, true, DecoderCache::Growing);
  const PreparedModel original = valueOrThrow(prepareModel(path, toolkit));
  const auto reportOf = [&](auto change) {
    RewriteResult result = rewrittenFor(path, "kvopt");
    auto& made = std::get<RewrittenModel>(result);
    change(*made.model);
    return valueOrThrow(verifyModels(*original.model, original.manifest, *made.model, made.manifest,
                                     quickVerification(), 1, toolkit));
  };
  const auto lastOf = [](Model& model, const char* op) -> Node& {
    Node* last = nullptr;
    for (Node& node : model.graph().nodes())
      if (node.op() == OpName(op))
        last = &node;
    return *last;
  };
  EXPECT_TRUE(reportOf([](Model&) {}).equal());
  // One part in two hundred of the scores of the last layer, which changes no code.
  EXPECT_FALSE(reportOf([&](Model& model) {
                 Node& attention = lastOf(model, "ai.kvopt::InPlaceKvSdpa");
                 attention.setAttribute(
                     "scale", Attribute::ofFloat(attention.floatAttr("scale", 1.0f) * 1.005f));
               }).equal());
  // Every code is rounded down.
  EXPECT_FALSE(reportOf([&](Model& model) {
                 Node& quantize = lastOf(model, "QuantizeLinear");
                 Graph& graph = model.graph();
                 Value* rows = quantize.operand(0);
                 for (const char* op : {"Div", "Floor", "Mul"}) {
                   llvm::SmallVector<Value*, 2> operands{rows};
                   if (op != llvm::StringRef("Floor"))
                     operands.push_back(quantize.operand(1));
                   rows = &graph.createFresh(op, operands, 1, &quantize).result();
                 }
                 quantize.setOperand(0, rows);
                 successOrThrow(inferShapes(graph));
               }).equal());
  // The codes of the last values are those of other scales.
  EXPECT_FALSE(reportOf([&](Model& model) {
                 Node& quantize = lastOf(model, "QuantizeLinear");
                 std::vector<float> scales(16, 0.03f);
                 quantize.setOperand(1, &model.graph().addConstant("other", floatTensor(scales)));
               }).equal());
}

INSTANTIATE_TEST_SUITE_P(Generated, CodeCaches,
                         testing::Values(CodesModel{DecoderSpelling::GroupQueryAttention, 8, false},
                                         CodesModel{DecoderSpelling::GroupQueryAttention, 8, true},
                                         CodesModel{DecoderSpelling::GroupQueryAttention, 4, false},
                                         CodesModel{DecoderSpelling::GroupQueryAttention, 4, true,
                                                    DecoderKind::Window},
                                         CodesModel{DecoderSpelling::TorchScript, 8, true},
                                         CodesModel{DecoderSpelling::Dynamo, 8, false},
                                         CodesModel{DecoderSpelling::Dynamo, 8, true,
                                                    DecoderKind::Llama, DecoderCache::Static}),
                         [](const auto& parameter) {
                           const CodesModel& model = parameter.param;
                           return formatted("{}{}bits{}{}{}",
                                            model.spelling == DecoderSpelling::GroupQueryAttention
                                                ? "Fused"
                                            : model.spelling == DecoderSpelling::Dynamo ? "Dynamo"
                                                                                        : "Script",
                                            model.bits, model.columns ? "Columns" : "",
                                            model.kind == DecoderKind::Window ? "Window" : "",
                                            model.cache == DecoderCache::Static ? "Static" : "");
                         });

} // namespace
} // namespace kvopt
