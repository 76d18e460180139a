// The loop of prefill and decode steps.
#include "runtime/session/generation.h"

#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <chrono>

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

llvm::Expected<TensorView> lastScores(const Tensor& logits, int64_t row) {
  const TensorView& view = logits.view;
  if (!holdsScores(view) || row < 0 || row >= view.shape[0] || view.shape[1] == 0 ||
      view.shape[2] == 0)
    return invalid("there are no scores of batch row {}", row);
  TensorView scores = view;
  auto width = static_cast<int64_t>(*byteWidth(view.element));
  scores.data += (row * view.strides[0] + (view.shape[1] - 1) * view.strides[1]) * width;
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

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool endsWith(llvm::ArrayRef<int64_t> tokens, llvm::ArrayRef<int64_t> end) {
  return !end.empty() && tokens.size() >= end.size() && tokens.take_back(end.size()) == end;
}

class Generator {
public:
  Generator(Session& drivenSession, const GenerationOptions& settings)
      : session(drivenSession), options(settings), result{std::vector<GeneratedSequence>(
                                                       static_cast<size_t>(session.batch()))},
        hasEnded(result.sequences.size(), false) {}

  llvm::Expected<GenerationResult> run(llvm::ArrayRef<std::vector<int64_t>> prompts) {
    if (llvm::Error error = checkPadding(prompts))
      return error;
    auto start = Clock::now();
    auto outputs = prefill(prompts);
    if (!outputs)
      return outputs.takeError();
    if (llvm::Error error = takeTokens(*outputs))
      return error;
    result.prefillSeconds = secondsSince(start);

    start = Clock::now();
    for (int64_t step = 1; step < options.steps && !llvm::all_of(hasEnded, isTrue); ++step) {
      outputs = decode();
      if (outputs.errorIsA<CapacityError>()) {
        llvm::consumeError(outputs.takeError());
        stopAll(StopReason::Capacity);
        break;
      }
      if (!outputs)
        return outputs.takeError();
      result.decodedTokens += llvm::count(hasEnded, false);
      if (llvm::Error error = takeTokens(*outputs))
        return error;
    }
    result.decodeSeconds = secondsSince(start);
    return std::move(result);
  }

private:
  static bool isTrue(bool value) { return value; }

  llvm::Error checkPadding(llvm::ArrayRef<std::vector<int64_t>> prompts) const {
    auto isAsLong = [&](const std::vector<int64_t>& prompt) {
      return prompt.size() == prompts.front().size();
    };
    if (llvm::all_of(prompts, isAsLong))
      return llvm::Error::success();
    auto hides = [](const Value* input) { return input->name() == "attention_mask"; };
    if (llvm::none_of(session.callerInputs(), hides))
      return usageError("the prompts differ in length, and the model has no attention_mask that "
                        "could hide padding");
    for (const Node& node : session.graph().nodes())
      if (node.is("com.microsoft::GroupQueryAttention"))
        return usageError("the prompts differ in length, and the model takes no padding on the "
                          "left: it counts tokens by its attention_mask");
    return llvm::Error::success();
  }

  /// Runs all prompts, padded on the left; the last step's outputs.
  llvm::Expected<StepResult> prefill(llvm::ArrayRef<std::vector<int64_t>> prompts) {
    size_t longest = 0;
    for (const std::vector<int64_t>& prompt : prompts) {
      longest = std::max(longest, prompt.size());
      result.promptTokens += static_cast<int64_t>(prompt.size());
    }
    std::vector<std::vector<int64_t>> padded;
    for (const std::vector<int64_t>& prompt : prompts) {
      const size_t padding = longest - prompt.size();
      padded.emplace_back(padding, 0);
      padded.back().insert(padded.back().end(), prompt.begin(), prompt.end());
      visible.emplace_back(static_cast<size_t>(session.length()), 1);
      visible.back().insert(visible.back().end(), padding, 0);
      paddings.push_back(static_cast<int64_t>(padding));
      hidesAny |= padding != 0;
    }
    const auto most = static_cast<size_t>(session.mostStepTokens());
    const size_t chunk =
        std::min(most, options.chunk > 0 ? static_cast<size_t>(options.chunk) : longest);
    for (size_t begin = 0;; begin += chunk) {
      const size_t end = std::min(longest, begin + chunk);
      std::vector<std::vector<int64_t>> tokens;
      for (const std::vector<int64_t>& row : padded)
        tokens.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(begin),
                            row.begin() + static_cast<std::ptrdiff_t>(end));
      auto outputs = runStep(tokens);
      if (!outputs || end == longest)
        return outputs;
    }
  }

  /// Runs the last tokens. Inputs of fixed extents are not made for a token without room.
  llvm::Expected<StepResult> decode() {
    if (llvm::Error error = session.checkRoom(1))
      return error;
    return runStep(lastTokens());
  }

  llvm::Expected<StepResult> runStep(const std::vector<std::vector<int64_t>>& tokens) {
    if (session.cacheCount() == 0)
      return runWhole(tokens);
    DecoderStep step;
    step.tokens = tokens;
    step.pastLength = session.length();
    return runInputs(step);
  }

  /// A model without caches is given the whole sequence every time.
  llvm::Expected<StepResult> runWhole(const std::vector<std::vector<int64_t>>& tokens) {
    whole.resize(tokens.size());
    for (size_t row = 0; row < tokens.size(); ++row)
      whole[row].insert(whole[row].end(), tokens[row].begin(), tokens[row].end());
    DecoderStep step;
    step.tokens = whole;
    return runInputs(step);
  }

  llvm::Expected<StepResult> runInputs(DecoderStep& step) {
    const size_t total = static_cast<size_t>(step.pastLength) + step.tokens.front().size();
    if (hidesAny)
      for (std::vector<uint8_t>& row : visible) {
        step.visible.push_back(row);
        step.visible.back().resize(total, 1);
      }
    step.recipes = options.recipes;
    std::vector<const Value*> made;
    llvm::copy_if(session.callerInputs(), std::back_inserter(made),
                  [&](const Value* input) { return !isComputed(*input); });
    auto inputs = decoderInputs(made, step, session.allocator(), session.manifest().inputs);
    if (!inputs)
      return inputs.takeError();
    inputs->insert(inputs->end(), options.computed.begin(), options.computed.end());
    std::vector<NamedView> views;
    for (const NamedTensor& input : *inputs)
      views.push_back({input.name, input.tensor.view});
    const auto tokens = static_cast<int64_t>(step.tokens.front().size());
    auto outputs = session.step(views, tokens);
    if (outputs && options.onStep)
      if (llvm::Error error = options.onStep(tokens, *inputs, *outputs))
        return error;
    return outputs;
  }

  bool isComputed(const Value& input) const {
    return llvm::any_of(options.computed,
                        [&](const NamedTensor& computed) { return computed.name == input.name(); });
  }

  llvm::Error takeTokens(const StepResult& outputs) {
    auto logits = findLogits(outputs);
    if (!logits)
      return logits.takeError();
    for (size_t row = 0; row < result.sequences.size(); ++row)
      if (!hasEnded[row])
        if (llvm::Error error = takeToken(**logits, static_cast<int64_t>(row)))
          return error;
    return llvm::Error::success();
  }

  llvm::Error takeToken(const Tensor& logits, int64_t row) {
    auto view = lastScores(logits, row);
    if (!view)
      return view.takeError();
    auto scores = readScores(*view);
    if (!scores)
      return scores.takeError();
    const auto length =
        session.cacheCount() == 0 ? static_cast<int64_t>(whole.front().size()) : session.length();
    const int64_t position = length - paddings[static_cast<size_t>(row)];
    const int64_t token = sampleToken(*scores, options.sampling, {position, row});
    GeneratedSequence& sequence = result.sequences[static_cast<size_t>(row)];
    sequence.tokens.push_back(token);
    if (options.onToken)
      options.onToken(row, token);
    auto isEnd = [&](llvm::ArrayRef<int64_t> end) { return endsWith(sequence.tokens, end); };
    if (llvm::is_contained(options.stopTokens, token))
      stop(row, StopReason::Token);
    else if (llvm::any_of(options.stopSequences, isEnd))
      stop(row, StopReason::Sequence);
    return llvm::Error::success();
  }

  std::vector<std::vector<int64_t>> lastTokens() const {
    std::vector<std::vector<int64_t>> tokens;
    for (const GeneratedSequence& sequence : result.sequences)
      tokens.push_back({sequence.tokens.back()});
    return tokens;
  }

  void stop(int64_t row, StopReason reason) {
    hasEnded[static_cast<size_t>(row)] = true;
    result.sequences[static_cast<size_t>(row)].stopped = reason;
  }

  void stopAll(StopReason reason) {
    for (size_t row = 0; row < hasEnded.size(); ++row)
      if (!hasEnded[row])
        stop(static_cast<int64_t>(row), reason);
  }

  Session& session;
  const GenerationOptions& options;
  GenerationResult result;
  std::vector<bool> hasEnded;
  /// Positions up to the prompt's padding, per row; all later ones are visible.
  std::vector<std::vector<uint8_t>> visible;
  std::vector<int64_t> paddings;
  bool hidesAny = false;
  std::vector<std::vector<int64_t>> whole; ///< tokens so far of a model without caches
};

} // namespace

llvm::Expected<GenerationResult> generate(Session& session,
                                          llvm::ArrayRef<std::vector<int64_t>> prompts,
                                          const GenerationOptions& options) {
  if (llvm::Error error = checkSampling(options.sampling))
    return error;
  if (prompts.empty() || static_cast<int64_t>(prompts.size()) != session.batch())
    return usageError("{} prompts for a batch of {}", prompts.size(), session.batch());
  if (llvm::any_of(prompts, [](const auto& prompt) { return prompt.empty(); }))
    return usageError("a prompt has no tokens");
  if (options.steps < 1 || options.chunk < 0)
    return usageError("cannot generate {} tokens in chunks of {}", options.steps, options.chunk);
  return Generator(session, options).run(prompts);
}

} // namespace kvopt::runtime
