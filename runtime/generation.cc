// Greedy decoding.
#include "runtime/generation.h"

#include "ir/diagnostic.h"
#include "ir/half.h"
#include "runtime/decoder_inputs.h"

#include <chrono>
#include <cmath>

namespace kvopt {
namespace {

float scoreAt(const TensorView& row, int64_t index) {
  switch (row.element) {
  case ElementType::Float16:
    return f16ToFloat(row.as<uint16_t>()[index]);
  case ElementType::BFloat16:
    return bf16ToFloat(row.as<uint16_t>()[index]);
  default:
    return row.as<float>()[index];
  }
}

bool holdsScores(const TensorView& view) {
  return view.rank() == 3 &&
         (view.element == ElementType::Float || view.element == ElementType::Float16 ||
          view.element == ElementType::BFloat16);
}

} // namespace

llvm::Expected<const Tensor*> findLogits(const StepResult& result) {
  const Tensor* logits = nullptr;
  for (const NamedTensor& output : result.outputs) {
    if (!holdsScores(output.tensor.view))
      continue;
    if (logits)
      return unsupported("the model has several outputs of shape [batch, tokens, scores]");
    logits = &output.tensor;
  }
  if (!logits)
    return unsupported("the model has no output of shape [batch, tokens, scores]");
  return logits;
}

llvm::Expected<int64_t> greedyToken(const Tensor& logits, int64_t batch) {
  const TensorView& view = logits.view;
  if (!holdsScores(view) || batch < 0 || batch >= view.shape[0] || view.shape[1] == 0 ||
      view.shape[2] == 0)
    return invalid("there are no scores of batch row {}", batch);
  TensorView row = view;
  auto width = static_cast<int64_t>(*byteWidth(view.element));
  row.data += (batch * view.strides[0] + (view.shape[1] - 1) * view.strides[1]) * width;
  int64_t best = 0;
  for (int64_t i = 0; i < view.shape[2]; ++i) {
    float score = scoreAt(row, i * view.strides[2]);
    if (std::isnan(score))
      return invalid("the score of token {} is not a number", i);
    if (score > scoreAt(row, best * view.strides[2]))
      best = i;
  }
  return best;
}

llvm::Expected<GenerationResult> generateGreedily(Session& session, llvm::ArrayRef<int64_t> prompt,
                                                  int64_t steps) {
  assert(session.batch() == 1 && !prompt.empty());
  using Clock = std::chrono::steady_clock;
  GenerationResult result;
  result.promptTokens = static_cast<int64_t>(prompt.size());
  std::vector<int64_t> pending(prompt.begin(), prompt.end());
  for (int64_t step = 0; step < steps; ++step) {
    auto start = Clock::now();
    DecoderStep input;
    input.tokens = {pending};
    input.pastLength = session.length();
    auto outputs = stepDecoder(session, input);
    if (!outputs)
      return outputs.takeError();
    std::chrono::duration<double> elapsed = Clock::now() - start;
    (step == 0 ? result.prefillSeconds : result.decodeSeconds) += elapsed.count();
    result.decodeSteps += step == 0 ? 0 : 1;
    auto logits = findLogits(*outputs);
    if (!logits)
      return logits.takeError();
    auto token = greedyToken(**logits, 0);
    if (!token)
      return token.takeError();
    result.tokens.push_back(*token);
    pending = {*token};
  }
  return result;
}

} // namespace kvopt
