// Latent rows in every place that keeps them: decoders with a window whose keys and values are
// expanded from one compressed row for each token.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "driver/synthetic/decoder.h"
#include "ir/onnx/export.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

struct LatentPlace {
  Form form;
  const char* op; ///< what attends
};

std::string latentPlaceName(const testing::TestParamInfo<LatentPlace>& info) {
  std::string name;
  for (char letter : optionsOf(info.param.form))
    if (std::isalnum(static_cast<unsigned char>(letter)))
      name += letter;
  return name;
}

class LatentPlaces : public testing::TestWithParam<LatentPlace> {};

TEST_P(LatentPlaces, ComputeTheSame) {
  const Toolkit toolkit;
  DecoderSpec spec;
  spec.kind = DecoderKind::Mla;
  spec.heads = spec.kvHeads = 4;
  spec.maxPositions = 128;
  spec.vocabulary = 200;
  spec.window = 5;
  TemporaryFolder folder;
  const std::string path = folder.path("decoder.onnx");
  successOrThrow(exportModel(*generateDecoder(toolkit.ops, valueOrThrow(resolved(spec))), path));
  RewriteRequest request;
  request.form = GetParam().form;
  request.capacity = 128;
  request.verification = VerificationExtent::Full;
  const RewriteResult result =
      valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  const auto* model = std::get_if<RewrittenModel>(&result);
  ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
  ASSERT_TRUE(model->verification);
  EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
  EXPECT_EQ(runsOf(*model).cacheBytesCopied, 0);
  size_t attentions = 0;
  for (const Node& node : model->model->graph().nodes())
    attentions += node.is(GetParam().op);
  EXPECT_EQ(attentions, static_cast<size_t>(2));
  // One cache a layer, and the scales of its codes.
  const bool hasScales = request.form.rows == RowKind::Int8;
  EXPECT_EQ(model->manifest.caches.size(), hasScales ? 4u : 2u);
}

constexpr Form latentForm(Engine engine, CacheKind cache, RowKind rows) {
  return {engine, cache, rows, /*isLatent=*/true};
}

INSTANTIATE_TEST_SUITE_P(
    All, LatentPlaces,
    testing::Values(LatentPlace{latentForm(Engine::Kvopt, CacheKind::Buffer, RowKind::Same),
                                "ai.kvopt::InPlaceLatentKvSdpa"},
                    LatentPlace{latentForm(Engine::Kvopt, CacheKind::Ring, RowKind::Same),
                                "ai.kvopt::RingLatentKvSdpa"},
                    LatentPlace{latentForm(Engine::Kvopt, CacheKind::Ring, RowKind::Int8),
                                "ai.kvopt::RingQuantizedLatentKvSdpa"},
                    LatentPlace{latentForm(Engine::Kvopt, CacheKind::Blocks, RowKind::Same),
                                "ai.kvopt::BlockLatentKvSdpa"},
                    LatentPlace{latentForm(Engine::Kvopt, CacheKind::Blocks, RowKind::Int8),
                                "ai.kvopt::BlockQuantizedLatentKvSdpa"},
                    LatentPlace{latentForm(Engine::Onnx, CacheKind::Ring, RowKind::Same),
                                "Attention"}),
    latentPlaceName);

} // namespace
} // namespace kvopt
