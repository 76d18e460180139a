// Scores of tokens, and the selected tokens.
#include "runtime/session/token_choice.h"

#include "support/diagnostic.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

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

llvm::Expected<TensorView> lastScores(const Tensor& logits, int64_t row, int64_t before) {
  const TensorView& view = logits.view;
  if (!holdsScores(view) || row < 0 || row >= view.shape[0] || before < 0 ||
      before >= view.shape[1] || view.shape[2] == 0)
    return invalid("there are no scores of batch row {}", row);
  TensorView scores = view;
  auto width = static_cast<int64_t>(*byteWidth(view.element));
  const int64_t token = view.shape[1] - 1 - before;
  scores.data += (row * view.strides[0] + token * view.strides[1]) * width;
  scores.shape.assign({view.shape[2]});
  scores.strides.assign({view.strides[2]});
  return scores;
}

llvm::Expected<int64_t> greedyToken(const Tensor& logits, int64_t batch) {
  auto view = lastScores(logits, batch);
  if (!view)
    return view.takeError();
  auto scores = readScores(*view);
  if (!scores)
    return scores.takeError();
  return largestScore(*scores);
}

llvm::Expected<int64_t> TokenChooser::choose(const Tensor& logits, SamplingPlace place,
                                             int64_t before) {
  auto view = lastScores(logits, place.row, before);
  if (!view)
    return view.takeError();
  if (llvm::Error error = readScores(*view, scores))
    return error;
  return sampleToken(scores, options, place, candidates);
}

} // namespace kvopt::runtime
