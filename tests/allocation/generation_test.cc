// What the loop of `kvopt run` asks the heap for once it is under way, for every form of cache:
// making inputs, the step, growth, and the choice of a token.
#include "driver/generate/generation.h"

#include "driver/synthetic/decoder.h"
#include "driver/variants.h"
#include "tests/allocation/heap_counter.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// Steps until whatever is sized, placed and started at first use is there. What grows by doubling
/// (the mask that is fed, and what a model computes of it) has room for the rest then.
constexpr int64_t promptTokens = 40;
constexpr int64_t settlingSteps = 30;
constexpr int64_t countedSteps = 36;

/// A form of cache, of a decoder that has it or is rewritten to it.
struct CacheForm {
  const char* name;
  DecoderKind kind;
  DecoderSpelling spelling;
  const char* target; ///< empty: as exported
  const char* options;
  /// Why some steps ask for memory, and how many of the counted ones; empty: none does.
  const char* reason = "";
  int64_t allocatingSteps = 0;
};

void PrintTo(const CacheForm& form, std::ostream* out) { *out << form.name; }

constexpr auto Script = DecoderSpelling::TorchScript;
constexpr const char* longerPresent =
    "each present is longer than its past: memory of the next size, twice the one before, where it "
    "outgrows what earlier steps left";
constexpr const char* nextBlock = "the first token of a block: the block's memory";
constexpr const char* nextBlockAndJoined =
    "the first token of a block: its memory; and blocks are joined for attention, which is longer "
    "than before at each step";
constexpr const char* nextVariant =
    "the first token of a block: its memory; and the executor of the next variant, which is made "
    "when it is first needed and sizes its memory in the steps after that";
constexpr CacheForm forms[] = {
    {"Growing", DecoderKind::Llama, Script, "", "", longerPresent, 1},
    {"GrowingAttention", DecoderKind::Llama, DecoderSpelling::Attention, "", "", longerPresent, 1},
    {"Primitive", DecoderKind::Llama, Script, "primitive", "", longerPresent, 1},
    {"Onnx23", DecoderKind::Llama, Script, "onnx23", "", longerPresent, 1},
    {"Buffer", DecoderKind::Llama, Script, "kvopt", ""},
    {"Int8", DecoderKind::Llama, Script, "int8", ""},
    {"Int4", DecoderKind::Llama, Script, "int4", ""},
    {"Latent", DecoderKind::Mla, Script, "latent", ""},
    {"Onnx24", DecoderKind::Llama, Script, "onnx24", ""},
    {"OrtGqa", DecoderKind::Llama, Script, "ort-gqa", ""},
    {"Ring", DecoderKind::Window, Script, "ring", ""},
    {"Int8Ring", DecoderKind::Window, Script, "int8-ring", ""},
    {"Int4Ring", DecoderKind::Window, Script, "int4-ring", ""},
    {"Onnx24Ring", DecoderKind::Window, Script, "onnx24-ring:64", ""},
    {"Blocks", DecoderKind::Llama, Script, "blocks:16", "capacity=128", nextBlock, 2},
    {"Int8Blocks", DecoderKind::Llama, Script, "int8-blocks:16", "capacity=128", nextBlock, 2},
    {"PlainBlocks", DecoderKind::Llama, Script, "blocks-plain:16", "capacity=128",
     nextBlockAndJoined, 3},
    {"Pyramid", DecoderKind::Llama, Script, "pyramid:16", "capacity=128", nextVariant, 6},
    {"Tiles", DecoderKind::Llama, Script, "tiles:16", "capacity=128", nextBlock, 2},
    {"Paged", DecoderKind::Llama, DecoderSpelling::GroupQueryAttention, "paged:16", ""},
};

/// Of every token but the first: what was asked for since the one before it.
struct Counts {
  std::vector<uint64_t> requests;

  uint64_t sum() const {
    uint64_t sum = 0;
    for (int64_t i = settlingSteps; i < settlingSteps + countedSteps; ++i)
      sum += requests[static_cast<size_t>(i)];
    return sum;
  }
  int64_t allocatingSteps() const {
    return std::count_if(requests.begin() + settlingSteps,
                         requests.begin() + settlingSteps + countedSteps,
                         [](uint64_t count) { return count != 0; });
  }
};

class GenerationAllocationTest : public testing::TestWithParam<CacheForm> {
protected:
  DrivenModel driven() {
    const CacheForm& form = GetParam();
    DecoderSpec spec;
    spec.kind = form.kind;
    spec.spelling = form.spelling;
    spec.headWidth = 8;
    spec.vocabulary = 64;
    spec.window = form.kind == DecoderKind::Window ? 16 : 0;
    const auto generated = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    const std::string path = folder.path("model.onnx");
    successOrThrow(exportModel(*generated, path));
    return form.target[0] == '\0' ? asExported(path, toolkit)
                                  : rewritten(path, toolkit, form.options, form.target);
  }

  static Counts generated(Session& session, int64_t batch, double temperature, bool isPadded) {
    std::vector<std::vector<int64_t>> prompts;
    for (int64_t row = 0; row < batch; ++row)
      for (prompts.emplace_back();
           std::ssize(prompts.back()) < promptTokens - (isPadded ? 3 * row : 0);)
        prompts.back().push_back((std::ssize(prompts.back()) * 7 + row) % 64);
    Counts counts;
    counts.requests.reserve(static_cast<size_t>(settlingSteps + countedSteps + 1));
    GenerationOptions options;
    options.steps = settlingSteps + countedSteps + 1;
    options.chunk = 16;
    options.sampling.temperature = temperature;
    options.sampling.topP = temperature == 0 ? 1 : 0.9;
    uint64_t before = 0;
    int64_t told = 0;
    options.onToken = [&](int64_t row, int64_t) {
      if (row != batch - 1)
        return;
      const uint64_t now = heapRequests();
      if (told++ != 0)
        counts.requests.push_back(now - before);
      before = heapRequests();
    };
    valueOrThrow(generate(session, prompts, options));
    return counts;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_P(GenerationAllocationTest, AStepAsksForNothing) {
  if (!countsHeap())
    GTEST_SKIP() << "the sanitizers have a heap of their own";
  const CacheForm& form = GetParam();
  const DrivenModel model = driven();
  for (unsigned threads : {1u, 3u})
    for (int64_t batch : {1, 2})
      for (double temperature : {0.0, 0.8}) {
        SessionOptions options;
        options.batch = batch;
        options.threads = threads;
        options.capacity = model.manifest.capacityValue ? 0 : 128;
        if (model.manifest.tiles || !model.manifest.variants.empty())
          options.variants = variantsInMemory(*model.model, model.manifest);
        auto session = valueOrThrow(
            Session::create(*model.model, toolkit.runner->kernels(), model.manifest, options));
        const bool isPadded = batch > 1 && !model.manifest.padsRight && form.options[0] == '\0';
        const Counts counts = generated(*session, batch, temperature, isPadded && threads == 1);
        EXPECT_EQ(form.reason[0] == '\0', form.allocatingSteps == 0);
        EXPECT_LE(counts.allocatingSteps(), form.allocatingSteps)
            << form.reason << "; " << threads << " threads, batch " << batch << ", temperature "
            << temperature << ": " << counts.sum() << " requests";
      }
}

INSTANTIATE_TEST_SUITE_P(, GenerationAllocationTest, testing::ValuesIn(forms),
                         [](const auto& tested) { return tested.param.name; });

} // namespace
} // namespace kvopt
