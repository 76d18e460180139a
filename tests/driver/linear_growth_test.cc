// That the work of recovering and rewriting a model grows with its layers and no faster: nodes and
// readers that passes come to are counted, not time.
#include "driver/forms/form_table.h"
#include "driver/inspect/site_facts.h"
#include "driver/recover.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"
#include "driver/synthetic/decoder.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/text/text_fixture.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

/// A rewrite, and decoders for it.
struct GrowthCase {
  std::string name;
  DecoderSpec decoder;
  RewriteRequest request;
};

/// What grows with the square of the layers adds up to four times as much from 2N to 4N layers as
/// from N to 2N, what grows with them twice as much. The rest is for what is sorted.
constexpr double mostGrowth = 2.1;

DecoderSpec tinyDecoder(DecoderKind kind = DecoderKind::Llama,
                        DecoderSpelling spelling = DecoderSpelling::Dynamo) {
  DecoderSpec spec;
  spec.kind = kind;
  spec.spelling = spelling;
  spec.hidden = 16;
  spec.heads = 2;
  spec.headWidth = kind == DecoderKind::Mla ? 4 : 8;
  spec.intermediate = 8;
  spec.vocabulary = 16;
  spec.maxPositions = 64;
  if (kind == DecoderKind::Window)
    spec.window = 8;
  return spec;
}

/// A decoder whose attention the target takes.
DecoderSpec decoderFor(llvm::StringRef target) {
  if (target.contains("ring"))
    return tinyDecoder(DecoderKind::Window);
  if (target == "latent")
    return tinyDecoder(DecoderKind::Mla);
  if (target == "ort-gqa" || target == "paged")
    return tinyDecoder(DecoderKind::Llama, DecoderSpelling::GroupQueryAttention);
  return tinyDecoder();
}

class LinearGrowth : public testing::Test {
protected:
  std::unique_ptr<Model> decoder(DecoderSpec spec, int64_t layers) {
    spec.layers = layers;
    const auto model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    const std::string bytes = valueOrThrow(exportModelBytes(*model));
    return valueOrThrow(importModelBytes(std::as_bytes(std::span<const char>(bytes)),
                                         folder.path(""), toolkit.ops, toolkit.limits));
  }

  /// How many nodes and readers are come to while a decoder of so many layers is rewritten and
  /// written.
  uint64_t visitsToRewrite(const GrowthCase& grown, int64_t layers) {
    auto result = valueOrThrow(rewrite(decoder(grown.decoder, layers), grown.request, toolkit));
    auto* written = std::get_if<RewrittenModel>(&result);
    if (!written) {
      const auto* refused = std::get_if<RefusedModel>(&result);
      ADD_FAILURE() << grown.name << ": " << (refused ? refused->message : "unchanged");
      return 0;
    }
    EXPECT_EQ(written->passes->sites.size(), static_cast<size_t>(layers)) << grown.name;
    RewrittenPaths paths;
    paths.model = folder.path("written.onnx");
    nameFiles(written->manifest, paths, written->firstStep != nullptr);
    WeightFiles weights;
    FileAccess access;
    EXPECT_FALSE(llvm::errorToBool(writeFiles(*written->model, written->manifest, paths, weights,
                                              access, written->firstStep.get())))
        << grown.name;
    return written->model->context().visits();
  }

  /// Fails where the counts of N, 2N and 4N layers do not grow with the layers.
  static void expectLinear(const std::string& name, llvm::function_ref<uint64_t(int64_t)> visits) {
    const auto few = static_cast<double>(visits(4));
    const auto more = static_cast<double>(visits(8));
    const auto most = static_cast<double>(visits(16));
    EXPECT_GT(few, 0) << name;
    EXPECT_LT((most - more) / (more - few), mostGrowth)
        << name << ": " << few << ", " << more << " and " << most << " visits";
  }

  void expectLinear(const GrowthCase& grown) {
    expectLinear(grown.name, [&](int64_t layers) { return visitsToRewrite(grown, layers); });
  }

  static RewriteRequest requestFor(const std::string& target) {
    RewriteRequest request;
    request.form = valueOrThrow(presetForm(target));
    request.hiddenRows = HiddenRows::Undefined;
    request.verification = VerificationExtent::Off;
    return request;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(LinearGrowth, OfEveryTarget) {
  for (const std::unique_ptr<targets::Target>& target : toolkit.targets.all()) {
    const std::string name = target->name().str();
    GrowthCase grown{"--to " + name, decoderFor(name), requestFor(name)};
    if (target->needsCapacity() || target->defaultSize() > 16) {
      grown.request.form.size = 16;
      grown.request.capacity = 48;
    }
    if (name == "paged" || name == "ort-gqa")
      grown.request.padding = PaddedRows::None;
    expectLinear(grown);
  }
}

TEST_F(LinearGrowth, OfEverySpelling) {
  DecoderSpec stored = tinyDecoder();
  stored.cache = DecoderCache::Static;
  DecoderSpec merged = tinyDecoder();
  merged.merged = true;
  const std::pair<const char*, DecoderSpec> decoders[] = {
      {"torchscript", tinyDecoder(DecoderKind::Llama, DecoderSpelling::TorchScript)},
      {"attention", tinyDecoder(DecoderKind::Llama, DecoderSpelling::Attention)},
      {"packed", tinyDecoder(DecoderKind::PackedQkv)},
      {"hybrid", tinyDecoder(DecoderKind::Hybrid, DecoderSpelling::GroupQueryAttention)},
      {"latent", tinyDecoder(DecoderKind::MlaLatent)},
      {"static", stored},
      {"merged", merged}};
  for (const auto& [name, spec] : decoders)
    expectLinear(name, [&, &decoderSpec = spec](int64_t layers) -> uint64_t {
      const auto model = decoder(decoderSpec, layers);
      const std::string path = folder.path("read.onnx");
      EXPECT_FALSE(llvm::errorToBool(exportModel(*model, path)));
      pattern::NearMissList nearMisses = listenToRaising(toolkit);
      RecoveryOptions options;
      options.nearMisses = &nearMisses;
      auto recovered = valueOrThrow(recoverModel(path, toolkit, options));
      for (const std::unique_ptr<targets::Target>& target : toolkit.targets.all())
        targets::refusals(*target, recovered.context->sites, *recovered.model, "");
      return recovered.model->context().visits();
    });
}

/// Attention layers one after another, each with keys and values in one cache [2,B,H,P,D].
std::string packedCaches(int64_t layers) {
  std::string inputs, outputs, body;
  for (int64_t i = 0; i < layers; ++i) {
    inputs += formatted(", float[2, B, 2, P, 8] past_{}", i);
    outputs += formatted(", float[2, B, 2, T, 8] present_{}", i);
    body += formatted("  key_{0} = Gather <axis = 0> (past_{0}, zero)\n"
                      "  value_{0} = Gather <axis = 0> (past_{0}, one)\n"
                      "  k_{0} = Relu (x_{0})\n"
                      "  v_{0} = Neg (x_{0})\n"
                      "  keys_{0} = Concat <axis = 2> (key_{0}, k_{0})\n"
                      "  values_{0} = Concat <axis = 2> (value_{0}, v_{0})\n"
                      "  turned_{0} = Transpose <perm = [0, 1, 3, 2]> (keys_{0})\n"
                      "  scores_{0} = MatMul (x_{0}, turned_{0})\n"
                      "  weights_{0} = Softmax <axis = -1> (scores_{0})\n"
                      "  x_{1} = MatMul (weights_{0}, values_{0})\n"
                      "  one_key_{0} = Unsqueeze (keys_{0}, first)\n"
                      "  one_value_{0} = Unsqueeze (values_{0}, first)\n"
                      "  present_{0} = Concat <axis = 0> (one_key_{0}, one_value_{0})\n",
                      i, i + 1);
  }
  return formatted("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                   "packed (float[B, 2, S, 8] x_0{}) => (float[B, 2, S, 8] x_{}{})\n"
                   "<int64 zero = {{0}}, int64 one = {{1}}, int64[1] first = {{0}}>\n{{\n{}}}\n",
                   inputs, layers, outputs, body);
}

TEST_F(LinearGrowth, OfCachesThatAreSplit) {
  expectLinear("split caches", [&](int64_t layers) -> uint64_t {
    auto model = readOrFail(packedCaches(layers));
    const std::string path = folder.path("packed.onnx");
    EXPECT_FALSE(llvm::errorToBool(exportModel(*model, path)));
    auto recovered = valueOrThrow(recoverModel(path, toolkit));
    EXPECT_EQ(recovered.context->history.parts.size(), static_cast<size_t>(2 * layers));
    return recovered.model->context().visits();
  });
}

TEST_F(LinearGrowth, OfCachesThatAreAdded) {
  GrowthCase grown{"add-cache", tinyDecoder(), requestFor("primitive")};
  grown.decoder.cache = DecoderCache::None;
  grown.request.addCaches = true;
  expectLinear(grown);
}

TEST_F(LinearGrowth, OfRowsThatAreRounded) {
  GrowthCase grown{"--cache-dtype float16", tinyDecoder(), requestFor("kvopt")};
  grown.request.form.rows = RowKind::Float16;
  expectLinear(grown);
}

} // namespace
} // namespace kvopt
