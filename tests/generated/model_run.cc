// The steps that generated decoders are compared over.
#include "tests/generated/model_run.h"

#include "runtime/exec/executor.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/string_ends.h"

#include <cmath>

namespace kvopt::generated {
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t batchRows = 3;
/// Tokens of each step: no two of batch, tokens and earlier tokens are alike for long.
constexpr int64_t stepLengths[] = {7, 1, 4, 1, 2};

std::vector<std::vector<int64_t>> tokensOf(int64_t past, int64_t count) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t row = 0; row < batchRows; ++row) {
    rows.emplace_back();
    for (int64_t i = past; i < past + count; ++i)
      rows.back().push_back((i * i * 5 + i * 3 + row * 11) % vocabularySize);
  }
  return rows;
}

RecordedTensor recorded(llvm::StringRef name, const TensorView& view) {
  RecordedTensor tensor;
  tensor.name = name.str();
  tensor.shape.assign(view.shape.begin(), view.shape.end());
  tensor.numbers.resize(static_cast<size_t>(view.elementCount()));
  auto* bytes = reinterpret_cast<std::byte*>(tensor.numbers.data());
  if (!tensor.numbers.empty())
    copyElements(view, TensorView::contiguous(ElementType::Float, view.shape, bytes));
  return tensor;
}

/// Steps of a model that are fed by what its inputs are called.
class BuiltRun {
public:
  BuiltRun(const Model& built, Executor& running) : model(built), executor(running) {}

  llvm::Error step(int64_t past, int64_t count) {
    std::vector<Tensor> fed;
    std::vector<NamedView> views;
    size_t caches = 0;
    for (const std::unique_ptr<Value>& input : model.graph().inputs()) {
      const bool isCache = startsWith(input->name(), "past.");
      auto tensor = isCache ? cache(*input, caches++) : integers(*input, past, count);
      if (!tensor)
        return tensor.takeError();
      fed.push_back(std::move(*tensor));
      views.push_back({input->name(), fed.back().view});
    }
    auto results = executor.run(views);
    if (!results)
      return results.takeError();
    outputs = std::move(*results);
    return llvm::Error::success();
  }

  std::vector<Tensor> outputs; ///< of the latest step: logits and presents

private:
  llvm::Expected<Tensor> cache(const Value& input, size_t index) {
    if (!outputs.empty())
      return std::move(outputs[1 + index]);
    Extents shape;
    for (const Dim& extent : input.type().shape())
      shape.push_back(*extent.evaluate([](llvm::StringRef name) {
        return std::optional<int64_t>(name == "B" ? batchRows : 0);
      }));
    auto tensor = Tensor::create(executor.allocator(), ElementType::Float, shape);
    if (tensor)
      std::fill_n(tensor->view.as<float>(), tensor->view.elementCount(), 0.0F);
    return tensor;
  }

  llvm::Expected<Tensor> integers(const Value& input, int64_t past, int64_t count) {
    const llvm::StringRef name = input.name();
    const bool isMask = name == "attention_mask";
    const std::optional<int64_t> fixed = input.type().shape().back().value();
    const int64_t columns = isMask ? fixed.value_or(past + count) : count;
    Extents shape{columns};
    if (name != "cache_position")
      shape.insert(shape.begin(), batchRows);
    auto tensor = Tensor::create(executor.allocator(), ElementType::Int64, shape);
    if (!tensor)
      return tensor;
    const auto tokens = tokensOf(past, count);
    for (int64_t i = 0; i < tensor->view.elementCount(); ++i) {
      const int64_t column = i % columns;
      int64_t number = past + column;
      if (isMask)
        number = column < past + count ? 1 : 0;
      else if (name == "input_ids")
        number = tokens[static_cast<size_t>(i / columns)][static_cast<size_t>(column)];
      tensor->view.as<int64_t>()[i] = number;
    }
    return tensor;
  }

  const Model& model;
  Executor& executor;
};

llvm::Error recordAsBuilt(const Model& model, const driver::Toolkit& toolkit, RecordedRun& run) {
  ExecutorOptions options;
  options.threads = 1;
  auto executor = Executor::create(model, toolkit.runner->kernels(), options);
  if (!executor)
    return executor.takeError();
  BuiltRun built(model, **executor);
  int64_t past = 0;
  for (int64_t count : stepLengths) {
    if (llvm::Error error = built.step(past, count))
      return error;
    run.logits.push_back(recorded("logits", built.outputs.front().view));
    past += count;
  }
  size_t caches = 0;
  for (const std::unique_ptr<Value>& input : model.graph().inputs())
    if (startsWith(input->name(), "past."))
      run.caches.push_back(recorded(input->name(), built.outputs[++caches].view));
  return llvm::Error::success();
}

llvm::Error recordSession(const Model& model, const Manifest& manifest,
                          const driver::Toolkit& toolkit, RecordedRun& run) {
  SessionOptions options;
  options.batch = batchRows;
  options.threads = 1;
  options.poison = true;
  options.capacity = manifest.caches.empty() ? 0 : cacheCapacity;
  auto session = Session::create(model, toolkit.runner->kernels(), manifest, options);
  if (!session)
    return session.takeError();
  for (int64_t count : stepLengths) {
    DecoderStep step;
    step.pastLength = (*session)->length();
    step.tokens = tokensOf(step.pastLength, count);
    auto result = stepDecoder(**session, step);
    if (!result)
      return result.takeError();
    const Tensor* logits = result->find("logits");
    if (!logits)
      return usageError("the session has no logits");
    run.logits.push_back(recorded("logits", logits->view));
  }
  for (size_t index = 0; index < (*session)->cacheCount(); ++index) {
    auto rows = (*session)->exportedCacheRows(index);
    if (!rows)
      return rows.takeError();
    run.caches.push_back(recorded((*session)->cacheInfo(index).past, rows->view));
  }
  return llvm::Error::success();
}

std::string difference(const RecordedTensor& expected, const RecordedTensor& found) {
  if (expected.shape != found.shape)
    return formatted("the shape [{}] is [{}]", joinedText(expected.shape, ","),
                     joinedText(found.shape, ","));
  constexpr float rounding = 2e-4F;
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    const float a = expected.numbers[i];
    const float b = found.numbers[i];
    if (!(std::fabs(a - b) <= rounding * (1 + std::fabs(a))) && !(std::isnan(a) && std::isnan(b)))
      return formatted("element {} is {} where it was {}", i, b, a);
  }
  return "";
}

} // namespace

RecordedRun runAsBuilt(const Model& model, const driver::Toolkit& toolkit) {
  RecordedRun run;
  if (llvm::Error error = recordAsBuilt(model, toolkit, run))
    run.failure = takeDiagnostic(std::move(error)).str();
  return run;
}

RecordedRun runByManifest(const Model& model, const Manifest& manifest,
                          const driver::Toolkit& toolkit) {
  RecordedRun run;
  if (llvm::Error error = recordSession(model, manifest, toolkit, run))
    run.failure = takeDiagnostic(std::move(error)).str();
  return run;
}

std::string differenceOf(const RecordedRun& expected, const RecordedRun& found) {
  if (!found.failure.empty())
    return found.failure;
  for (size_t step = 0; step < expected.logits.size(); ++step)
    if (std::string text = difference(expected.logits[step], found.logits[step]); !text.empty())
      return formatted("logits of step {}: {}", step, text);
  for (const RecordedTensor& cache : found.caches)
    for (const RecordedTensor& original : expected.caches)
      if (original.name == cache.name)
        if (std::string text = difference(original, cache); !text.empty())
          return formatted("cache {}: {}", cache.name, text);
  return "";
}

} // namespace kvopt::generated
