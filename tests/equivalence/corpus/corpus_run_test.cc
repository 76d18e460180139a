// Models of the corpus without recorded outputs: a sequence in one run, and in several that hand
// their state on, comes to the same scores.
#include "support/string_ends.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include <numeric>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

bool isState(llvm::StringRef input) { return startsWith(input, "past"); }

/// Feeds a decoder of batch size 1 whose state outputs follow the scores in the order of the state
/// inputs.
class StatefulRun {
public:
  StatefulRun(const std::string& path, const Toolkit& toolkit)
      : model(valueOrThrow(importModel(path, toolkit.ops))) {
    successOrThrow(inferShapes(model->graph()));
    executor = valueOrThrow(Executor::create(*model, toolkit.runner->kernels()));
    allocator = executor->allocator();
  }

  /// The scores after `tokens`, [1,S,V].
  Tensor feed(const std::vector<int64_t>& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    std::vector<Tensor> kept;
    std::vector<TensorView> views;
    size_t next = 0;
    const bool first = length == 0;
    for (const std::unique_ptr<Value>& input : model->graph().inputs()) {
      if (isState(input->name())) {
        if (first)
          states.push_back(emptyState(input->type()));
        views.push_back(states[next++].view);
        continue;
      }
      std::vector<int64_t> values = tokens;
      if (input->name() == "attention_mask")
        values.assign(static_cast<size_t>(length + count), 1);
      else if (input->name() == "position_ids")
        std::iota(values.begin(), values.end(), length);
      kept.push_back(integers(input->type().elementType(), values));
      views.push_back(kept.back().view);
    }
    std::vector<Tensor> outputs = valueOrThrow(executor->run(views));
    length += count;
    if (outputs.size() != states.size() + 1)
      throw std::runtime_error("outputs that are no state");
    for (size_t i = 0; i < states.size(); ++i)
      states[i] = std::move(outputs[i + 1]);
    return std::move(outputs.front());
  }

private:
  Tensor integers(ElementType element, const std::vector<int64_t>& values) const {
    const Extents shape{1, static_cast<int64_t>(values.size())};
    if (element == ElementType::Int64)
      return valueOrThrow(
          Tensor::of<int64_t>(allocator, element, shape, std::span<const int64_t>(values)));
    const std::vector<int32_t> narrow(values.begin(), values.end());
    return valueOrThrow(
        Tensor::of<int32_t>(allocator, element, shape, std::span<const int32_t>(narrow)));
  }

  /// Zeros; extents that are not fixed are the batch size, 1, then the past's length, 0, and then
  /// the width of a head, which is 16 where a model does not say.
  Tensor emptyState(const TensorType& type) const {
    Extents shape;
    const int64_t open[] = {1, 0, 16};
    size_t next = 0;
    for (const Dim& dim : type.shape())
      shape.push_back(dim.value() ? *dim.value() : open[next++]);
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const bool half = type.elementType() == ElementType::Float16;
    const std::vector<uint16_t> halves(static_cast<size_t>(count), 0);
    const std::vector<float> floats(static_cast<size_t>(count), 0.0f);
    return valueOrThrow(half ? Tensor::of<uint16_t>(allocator, type.elementType(), shape,
                                                    std::span<const uint16_t>(halves))
                             : Tensor::of<float>(allocator, type.elementType(), shape,
                                                 std::span<const float>(floats)));
  }

  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;
  std::shared_ptr<Allocator> allocator;
  std::vector<Tensor> states;
  int64_t length = 0;
};

/// Rows [first, first + count) of [1,S,V].
TensorView rowsOf(const Tensor& scores, int64_t first, int64_t count) {
  TensorView rows = scores.view;
  rows.data += first * rows.strides[1] * *byteWidth(rows.element);
  rows.shape[1] = count;
  return rows;
}

using CorpusRunTest = CorpusTest;

TEST_F(CorpusRunTest, SeveralRunsAreOne) {
  struct Run {
    const char* path;
    double tolerance;
  };
  const std::vector<int64_t> tokens = {3, 1, 4, 1, 5, 9, 2};
  Toolkit toolkit;
  for (const Run& run :
       {Run{"lfm2-genai-fp32-cpu/model.onnx", 1e-4}, Run{"gemma2-genai-fp32-cpu/model.onnx", 1e-4},
        Run{"llama_gqa-genai-int4-cpu/model.onnx", 1e-4},
        Run{"qwen2-genai-fp16-cpu/model.onnx", 2e-2},
        Run{"real_models/hf-internal-testing_tiny-random-gpt2-fp32/past.onnx", 1e-4},
        Run{"real_models/hf-internal-testing_tiny-random-gpt2-fp16-cuda/past.onnx", 2e-2},
        Run{"real_models/hf-internal-testing_tiny-random-lfm2-fp32/decoder.onnx", 1e-4},
        Run{"real_models/hf-internal-testing_tiny-qwen35-cuda/decoder.onnx", 2e-2}}) {
    SCOPED_TRACE(run.path);
    const std::string path = (corpusFolder() / run.path).string();
    StatefulRun whole(path, toolkit);
    StatefulRun stepwise(path, toolkit);
    const Tensor expected = whole.feed(tokens);
    ASSERT_EQ(expected.view.rank(), 3u);
    int64_t first = 0;
    for (int64_t count : {5, 1, 1}) {
      const Tensor scores = stepwise.feed({tokens.begin() + first, tokens.begin() + first + count});
      const Comparison compared = valueOrThrow(
          compareTensors(scores.view, rowsOf(expected, first, count), {run.tolerance, 0}));
      EXPECT_TRUE(compared.isWithin()) << "tokens from " << first << ": " << compared.maxAbs;
      first += count;
    }
    // Scores that do not depend on the tokens would agree too.
    const Comparison other =
        valueOrThrow(compareTensors(rowsOf(expected, 0, 1), rowsOf(expected, 6, 1)));
    EXPECT_FALSE(other.bitExact);
  }
}

} // namespace
} // namespace kvopt
