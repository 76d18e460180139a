// Largest magnitudes in caches, and scales from them.
#include "driver/verify/calibration.h"

#include "driver/verify/plan.h"
#include "driver/verify/row_numbers.h"
#include "passes/pass.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/memory/element_storage.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <algorithm>
#include <cmath>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Raises `largest` [G,D] to the magnitudes of the finite numbers of `view` [B,G,T,D].
void raise(const TensorView& view, std::vector<float>& largest) {
  const Extents& shape = view.shape;
  const Extents& strides = view.strides;
  for (int64_t batch = 0; batch < shape[0]; ++batch)
    for (int64_t head = 0; head < shape[1]; ++head)
      for (int64_t row = 0; row < shape[2]; ++row)
        for (int64_t column = 0; column < shape[3]; ++column) {
          const auto number = static_cast<float>(
              std::fabs(numberAt(view, batch * strides[0] + head * strides[1] + row * strides[2] +
                                           column * strides[3])));
          float& most = largest[static_cast<size_t>(head * shape[3] + column)];
          if (std::isfinite(number))
            most = std::max(most, number);
        }
}

class Calibration {
public:
  Calibration(TextReader opened, const TextPlan& given, const TextStep& extents)
      : reader(std::move(opened)), plan(given), step(extents) {}

  llvm::Error run(ProgressListener* listener) {
    auto read = [this](llvm::ArrayRef<int64_t> window) { return readWindow(window); };
    if (llvm::Error error = forEachWindow(plan, listener, "calibrating", read))
      return error;
    if (steps == 0)
      return usageError("the text for calibration has {} tokens, and a step of the model {}",
                        plan.tokens.size(), step.tokens);
    return llvm::Error::success();
  }

  targets::CodeScales scales(int bits) const {
    targets::CodeScales result;
    result.bits = bits;
    for (const auto& [past, magnitudes] : largest) {
      std::vector<float>& made = result.ofPast[past];
      const size_t width = widths.at(past);
      for (size_t i = 0; i < magnitudes.size(); ++i) {
        const auto* head = magnitudes.data() + i / width * width;
        const float most =
            magnitudes[i] != 0 ? magnitudes[i] : *std::max_element(head, head + width);
        const float scale = most / (bits == 8 ? 127.0f : 7.0f);
        made.push_back(scale != 0 ? scale : 1.0f);
      }
    }
    return result;
  }

private:
  llvm::Error readWindow(llvm::ArrayRef<int64_t> window) {
    if (llvm::Error error = reader.startWindow())
      return error;
    const auto count = static_cast<size_t>(step.tokens);
    for (size_t begin = 0; begin < window.size(); begin += count) {
      const llvm::ArrayRef<int64_t> tokens = window.slice(begin).take_front(count);
      if (step.isFixed && tokens.size() < count)
        break;
      auto result = reader.step(tokens);
      if (!result)
        return result.takeError();
      ++steps;
    }
    const Session& session = reader.state();
    for (size_t i = 0; i < session.cacheCount(); ++i) {
      const ManifestCache& cache = session.cacheInfo(i);
      auto rows = session.cacheRows(i);
      if (!rows)
        return rows.takeError();
      const TensorView& view = rows->view;
      if (!cache.isOneBuffer() || view.rank() != 4 || !storageOf(view.element))
        continue;
      std::vector<float>& magnitudes = largest[cache.past];
      widths[cache.past] = static_cast<size_t>(view.shape[3]);
      magnitudes.resize(static_cast<size_t>(view.shape[1] * view.shape[3]), 0.0f);
      raise(view, magnitudes);
    }
    return llvm::Error::success();
  }

  TextReader reader;
  const TextPlan& plan;
  TextStep step;
  int64_t steps = 0;
  std::map<std::string, std::vector<float>> largest;
  std::map<std::string, size_t> widths;
};

} // namespace

llvm::Expected<targets::CodeScales> calibrate(const Model& model, const Manifest& manifest,
                                              const TextPlan& given, int bits,
                                              const Toolkit& toolkit) {
  TextPlan plan = given;
  plan.context = std::min(plan.context, manifest.capacityValue.value_or(plan.context));
  auto vocabulary = vocabularyOf(model.graph(), manifest.inputs);
  if (!vocabulary)
    return vocabulary.takeError();
  for (int64_t token : plan.tokens)
    if (token < 0 || token >= *vocabulary)
      return usageError("token {} of the text for calibration is outside of the vocabulary of {} "
                        "tokens",
                        token, *vocabulary);
  const TextStep extents = textStepOf(model, manifest, std::min(plan.chunk, plan.context));
  if (extents.tokens > plan.context)
    return usageError("the model takes {} tokens at a time, which are more than the {} that the "
                      "text for calibration is read in",
                      extents.tokens, plan.context)
        .hint("--calibration-context");
  auto reader = TextReader::open(model, manifest, extents.batch, plan, 1, toolkit);
  if (!reader)
    return reader.takeError();
  Calibration calibration(std::move(*reader), plan, extents);
  if (llvm::Error error = calibration.run(toolkit.progress))
    return withNote(std::move(error),
                    formatted("the text for calibration is read {} tokens at a time, which "
                              "--calibration-context changes",
                              plan.context));
  return calibration.scales(bits);
}

llvm::Expected<targets::CodeScales> calibrateFor(const Model& model, const Manifest& manifest,
                                                 const std::optional<Manifest>& exported,
                                                 const RewriteRequest& request,
                                                 const Toolkit& toolkit) {
  EquivalencePlan fitted;
  if (exported)
    fitFixedPast(*exported, fitted);
  if (fitted.pastRows > 0)
    return unsupported("no text can be read for calibration: every step of the model follows {} "
                       "earlier tokens",
                       fitted.pastRows)
        .hint("kvopt make-dynamic gives the past a symbol")
        .as<passes::RefusedError>();
  if (request.calibratesWithText)
    if (llvm::Error error = checkByteTokens(model.graph(), manifest.inputs, "--calibration-text",
                                            "--calibration-tokens"))
      return error;
  TextPlan plan;
  plan.tokens = request.calibration;
  plan.recipes = request.recipes;
  plan.context = request.calibrationContext;
  return calibrate(model, manifest, plan, request.form.calibratedBits(), toolkit);
}

} // namespace kvopt::driver
