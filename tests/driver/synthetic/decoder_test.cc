// Generated decoders as functions: one function however it is spelled, attention that is far from
// even, activations of one size through all layers.
#include "driver/synthetic/decoder.h"

#include "driver/recover.h"
#include "support/half.h"
#include "support/string_ends.h"
#include "tests/equivalence/rewritten_model.h"

#include <gmock/gmock.h>

#include <cmath>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

double numberAt(const TensorView& view, int64_t index) {
  switch (view.element) {
  case ElementType::Float16:
    return static_cast<double>(f16ToFloat(view.as<uint16_t>()[index]));
  case ElementType::BFloat16:
    return static_cast<double>(bf16ToFloat(view.as<uint16_t>()[index]));
  default:
    EXPECT_EQ(view.element, ElementType::Float);
    return static_cast<double>(view.as<float>()[index]);
  }
}

class GeneratedDecoder : public testing::Test {
protected:
  DecoderSpec small(DecoderKind kind, DecoderSpelling spelling = DecoderSpelling::TorchScript) {
    DecoderSpec spec;
    spec.kind = kind;
    spec.spelling = spelling;
    spec.seed = 3;
    spec.maxPositions = 64;
    if (kind == DecoderKind::Window)
      spec.window = 5;
    return spec;
  }

  std::unique_ptr<Model> made(const DecoderSpec& spec) {
    auto model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    successOrThrow(inferShapes(model->graph()));
    return model;
  }

  /// The logits of one step of `tokens` from empty caches, and other outputs.
  std::vector<Tensor> firstStep(const Model& model, std::vector<std::vector<int64_t>> tokens) {
    executor = valueOrThrow(Executor::create(model, toolkit.runner->kernels()));
    std::vector<const Value*> asked;
    std::vector<NamedView> given;
    std::vector<Tensor> pasts;
    DecoderStep step;
    step.tokens = std::move(tokens);
    for (const std::unique_ptr<Value>& input : model.graph().inputs()) {
      if (!startsWith(input->name(), "past_") || input->name().contains("encoder")) {
        asked.push_back(input.get());
        continue;
      }
      Extents shape;
      for (const Dim& extent : input->type().shape())
        shape.push_back(extent.value().value_or(0));
      shape[0] = static_cast<int64_t>(step.tokens.size());
      pasts.push_back(
          valueOrThrow(Tensor::create(executor->allocator(), input->type().elementType(), shape)));
      given.push_back({input->name(), pasts.back().view});
    }
    auto inputs = valueOrThrow(decoderInputs(asked, step, executor->allocator()));
    for (const NamedTensor& input : inputs)
      given.push_back({input.name, input.tensor.view});
    return valueOrThrow(executor->run(given));
  }

  static std::vector<int64_t> counting(int64_t length) {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < length; ++i)
      tokens.push_back((i * 37 + 5) % 251);
    return tokens;
  }

  Toolkit toolkit;
  std::unique_ptr<Executor> executor;
};

TEST_F(GeneratedDecoder, IsOneFunctionHoweverItIsSpelled) {
  for (DecoderKind kind : {DecoderKind::Llama, DecoderKind::Window, DecoderKind::PackedQkv,
                           DecoderKind::EncoderDecoder, DecoderKind::Mla}) {
    std::vector<Tensor> expected = firstStep(*made(small(kind)), {counting(12), counting(12)});
    for (DecoderSpelling spelling : {DecoderSpelling::Dynamo, DecoderSpelling::Attention,
                                     DecoderSpelling::GroupQueryAttention}) {
      llvm::Expected<DecoderSpec> spec = resolved(small(kind, spelling));
      if (!spec) {
        llvm::consumeError(spec.takeError());
        continue;
      }
      std::vector<Tensor> got = firstStep(*made(*spec), {counting(12), counting(12)});
      ASSERT_EQ(got.size(), expected.size());
      for (size_t output = 0; output < got.size(); ++output) {
        ASSERT_EQ(got[output].view.shape, expected[output].view.shape);
        for (int64_t i = 0; i < got[output].view.elementCount(); ++i)
          ASSERT_NEAR(numberAt(got[output].view, i), numberAt(expected[output].view, i), 2e-4)
              << "kind " << static_cast<int>(kind) << " spelling " << static_cast<int>(spelling)
              << " output " << output << " at " << i;
      }
    }
  }
}

/// Of every row of a probability tensor [.., T] that sees more than `least` keys: its entropy as a
/// fraction of that of an even row.
std::vector<double> relativeEntropies(const TensorView& shares, int64_t least) {
  std::vector<double> relative;
  const int64_t keys = shares.shape.back();
  for (int64_t row = 0; row < shares.elementCount() / keys; ++row) {
    double entropy = 0;
    int64_t seen = 0;
    for (int64_t key = 0; key < keys; ++key) {
      const double share = numberAt(shares, row * keys + key);
      seen += share > 0 ? 1 : 0;
      entropy -= share > 0 ? share * std::log(share) : 0;
    }
    if (seen > least)
      relative.push_back(entropy / std::log(static_cast<double>(seen)));
  }
  return relative;
}

double meanOf(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values)
    sum += value;
  return sum / static_cast<double>(values.size());
}

TEST_F(GeneratedDecoder, AttendsUnevenly) {
  for (DecoderKind kind : {DecoderKind::Llama, DecoderKind::Window, DecoderKind::PackedQkv,
                           DecoderKind::EncoderDecoder, DecoderKind::Mla, DecoderKind::MlaLatent}) {
    DecoderSpec spec = small(kind);
    spec.layers = 4;
    spec.window = kind == DecoderKind::Window ? 24 : 0;
    auto model = made(spec);
    size_t softmaxes = 0;
    for (Node& node : model->graph().nodes())
      if (node.is("Softmax")) {
        model->graph().addOutput(node.result());
        ++softmaxes;
      }
    std::vector<Tensor> outputs = firstStep(*model, {counting(48)});
    for (size_t i = outputs.size() - softmaxes; i < outputs.size(); ++i) {
      const std::vector<double> entropies = relativeEntropies(outputs[i].view, 10);
      ASSERT_GT(entropies.size(), 40u);
      // Scores of deviation 2 give about 1 - 2 / log T; one key alone would be 0.
      EXPECT_LT(meanOf(entropies), 0.8) << "kind " << static_cast<int>(kind);
      EXPECT_GT(meanOf(entropies), 0.2) << "kind " << static_cast<int>(kind);
    }
  }
}

TEST_F(GeneratedDecoder, KeepsActivationsOfOneSize) {
  for (ElementType real : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (DecoderKind kind : {DecoderKind::Llama, DecoderKind::PackedQkv, DecoderKind::Mla}) {
      DecoderSpec spec = small(kind, DecoderSpelling::Dynamo);
      spec.layers = 24;
      spec.real = real;
      auto model = made(spec);
      // Every sum that a layer's part is added to.
      const size_t own = model->graph().outputs().size();
      for (Node& node : model->graph().nodes())
        if (node.is("Add") && node.result().type().elementType() == real &&
            !node.operand(0)->isInitializer() && !node.operand(1)->isInitializer())
          model->graph().addOutput(node.result());
      std::vector<Tensor> outputs = firstStep(*model, {counting(16)});
      ASSERT_GT(outputs.size(), own + 48);
      for (size_t i = own; i < outputs.size(); ++i) {
        const TensorView& view = outputs[i].view;
        if (view.rank() != 3 || view.shape[2] != 64)
          continue; // scores with the mask's lowest number, and what GELU adds up
        double squares = 0;
        for (int64_t j = 0; j < view.elementCount(); ++j)
          squares += numberAt(view, j) * numberAt(view, j);
        const double size = std::sqrt(squares / static_cast<double>(view.elementCount()));
        EXPECT_GT(size, 0.5);
        EXPECT_LT(size, 4.0) << "sum " << i;
      }
      // Logits are finite, of a good size, and differ from position to position.
      const TensorView& logits = outputs[0].view;
      std::vector<int64_t> likeliest;
      for (int64_t row = 0; row < 16; ++row) {
        int64_t best = 0;
        for (int64_t token = 0; token < 256; ++token) {
          const double logit = numberAt(logits, row * 256 + token);
          ASSERT_LT(std::abs(logit), 40.0);
          if (logit > numberAt(logits, row * 256 + best))
            best = token;
        }
        likeliest.push_back(best);
      }
      std::sort(likeliest.begin(), likeliest.end());
      likeliest.erase(std::unique(likeliest.begin(), likeliest.end()), likeliest.end());
      EXPECT_GT(likeliest.size(), 8u);
    }
}

TEST_F(GeneratedDecoder, NamesTheInterfaceAsExportersDo) {
  auto model = made(small(DecoderKind::EncoderDecoder));
  std::vector<std::string> names;
  for (const std::unique_ptr<Value>& input : model->graph().inputs())
    names.push_back(input->name().str());
  EXPECT_THAT(names, testing::ElementsAre(
                         "input_ids", "attention_mask", "position_ids",
                         "past_key_values.0.decoder.key", "past_key_values.0.decoder.value",
                         "past_key_values.1.decoder.key", "past_key_values.1.decoder.value",
                         "past_key_values.0.encoder.key", "past_key_values.0.encoder.value",
                         "past_key_values.1.encoder.key", "past_key_values.1.encoder.value"));
  names.clear();
  for (const Value* output : model->graph().outputs())
    names.push_back(output->name().str());
  EXPECT_THAT(names,
              testing::ElementsAre("logits", "present.0.decoder.key", "present.0.decoder.value",
                                   "present.1.decoder.key", "present.1.decoder.value"));
}

TEST_F(GeneratedDecoder, WeightsDependOnSeedAndNameOnly) {
  DecoderSpec spec = small(DecoderKind::Llama);
  auto three = made(spec);
  spec.layers = 3;
  spec.spelling = DecoderSpelling::GroupQueryAttention;
  auto deeper = made(spec);
  spec.seed = 4;
  auto other = made(spec);
  const char* name = "model.layers.1.mlp.up_proj.weight";
  auto bytes = [&](Model& model) {
    return llvm::cantFail(model.graph().findValue(name)->initializer()->bytes());
  };
  EXPECT_THAT(bytes(*three), testing::ElementsAreArray(bytes(*deeper)));
  EXPECT_FALSE(std::equal(bytes(*three).begin(), bytes(*three).end(), bytes(*other).begin()));
}

TEST_F(GeneratedDecoder, LayersForNodesIsTheLeast) {
  const DecoderSpec spec = valueOrThrow(resolved(small(DecoderKind::Llama)));
  for (size_t nodes : {size_t{1}, size_t{500}, size_t{2000}}) {
    DecoderSpec built = spec;
    built.layers = layersForNodes(toolkit.ops, spec, nodes);
    EXPECT_GE(nodeCount(*generateDecoder(toolkit.ops, built)), nodes);
    if (built.layers > 1) {
      --built.layers;
      EXPECT_LT(nodeCount(*generateDecoder(toolkit.ops, built)), nodes);
    }
  }
}

} // namespace
} // namespace kvopt
