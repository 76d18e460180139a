// The same bits for any number of threads, and for sessions that run at the same time.
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include <thread>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// Everything a session showed: outputs and valid cache contents of every step.
using Trace = std::vector<std::vector<std::byte>>;

void append(Trace& trace, const TensorView& view) {
  Tensor copy = valueOrThrow(Tensor::copyOf(std::make_shared<Allocator>(), view));
  trace.emplace_back(copy.view.data, copy.view.data + copy.view.byteSize());
}

/// A prompt, a chunk and a few decoding steps.
Trace traceOf(const DrivenModel& driven, const KernelRegistry& kernels, SessionOptions options) {
  auto session = openSession(driven, kernels, options);
  TokenStream tokens(*driven.model, options.batch);
  Trace trace;
  for (int64_t count : {33, 5, 1, 1, 1}) {
    StepResult result = tokens.feed(*session, count);
    for (const NamedTensor& output : result.outputs)
      append(trace, output.tensor.view);
    for (size_t i = 0; i < session->cacheCount(); ++i)
      append(trace, valueOrThrow(session->cacheRows(i)).view);
  }
  return trace;
}

SessionOptions optionsFor(const DrivenModel& driven, unsigned threads) {
  SessionOptions options;
  options.threads = threads;
  options.batch = 2;
  if (driven.manifest.contract == CacheUpdate::InPlace)
    options.capacity = driven.manifest.capacityValue.value_or(48);
  return options;
}

void expectEqualBits(const DrivenModel& driven, const KernelRegistry& kernels) {
  Trace expected = traceOf(driven, kernels, optionsFor(driven, 1));
  ASSERT_GE(expected.size(), 5u);
  for (unsigned threads : {2u, 3u, 5u})
    EXPECT_TRUE(traceOf(driven, kernels, optionsFor(driven, threads)) == expected)
        << threads << " threads";
}

using ThreadsTest = ShippedModelTest;

TEST_P(ThreadsTest, GiveTheSameBits) {
  expectEqualBits(asExported(path(), toolkit), toolkit.runner->kernels());
  expectEqualBits(rewritten(path(), toolkit), toolkit.runner->kernels());
}

TEST_P(ThreadsTest, SessionsAtTheSameTimeDoNotInterfere) {
  DrivenModel driven = rewritten(path(), toolkit);
  Trace expected = traceOf(driven, toolkit.runner->kernels(), optionsFor(driven, 1));
  auto shared = std::make_shared<ThreadPool>(2);
  for (bool isShared : {true, false}) {
    std::vector<Trace> traces(3);
    std::vector<std::thread> callers;
    for (Trace& trace : traces)
      callers.emplace_back([&] {
        SessionOptions options = optionsFor(driven, 2);
        if (isShared)
          options.pool = shared;
        trace = traceOf(driven, toolkit.runner->kernels(), options);
      });
    for (std::thread& caller : callers)
      caller.join();
    for (const Trace& trace : traces)
      EXPECT_TRUE(trace == expected) << (isShared ? "one pool" : "a pool each");
  }
}

INSTANTIATE_TEST_SUITE_P(, ThreadsTest, shippedModels(), shippedModelName);

class ThreadsCorpusTest : public CorpusTest {
protected:
  Toolkit toolkit;
};

/// Models of every exporter and element type: fused operators, half precision, int4, branches.
TEST_F(ThreadsCorpusTest, GiveTheSameBits) {
  for (const char* name :
       {"llama_gqa-ts17-eager-fp16", "llama_gqa-genai-int4-cpu", "qwen2-genai-fp32-cpu",
        "gemma2-ts17-eager", "bloom-ts17-None", "deepseek_v3-ts17-sdpa", "gptneox-ts14-eager"}) {
    SCOPED_TRACE(name);
    std::string path = (corpusFolder() / name / "model.onnx").string();
    expectEqualBits(asExported(path, toolkit), toolkit.runner->kernels());
  }
}

} // namespace
} // namespace kvopt
