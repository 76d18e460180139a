// The loop of prefill and decode steps.
#include "driver/generate/generation.h"

#include "driver/generate/draft.h"
#include "driver/generate/padding_test.h"
#include "ir/manifest/documented_inputs.h"
#include "support/diagnostic.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"

#include <chrono>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Maximum number of tokens for which sequences reserve room; it grows during generation.
constexpr int64_t mostReserved = int64_t{1} << 16;

bool endsWithTokens(llvm::ArrayRef<int64_t> tokens, llvm::ArrayRef<int64_t> end) {
  return !end.empty() && tokens.size() >= end.size() && tokens.take_back(end.size()) == end;
}

class Generator {
public:
  Generator(Session& drivenSession, const GenerationOptions& settings)
      : session(drivenSession), options(settings), result{std::vector<GeneratedSequence>(
                                                       static_cast<size_t>(session.batch()))},
        hasEnded(result.sequences.size(), false), feed(drivenSession, settings.feed),
        chooser(settings.sampling) {
    next.resize(result.sequences.size());
    for (GeneratedSequence& sequence : result.sequences)
      sequence.tokens.reserve(static_cast<size_t>(std::min(options.steps, mostReserved)));
  }

  llvm::Expected<GenerationResult> run(llvm::ArrayRef<std::vector<int64_t>> prompts) {
    if (llvm::Error error = checkTokens())
      return error;
    if (llvm::Error error = checkPadding(prompts))
      return error;
    auto test = PaddingTest::create(session, prompts);
    if (!test)
      return test.takeError();
    padding = std::move(*test);
    auto start = Clock::now();
    if (llvm::Error error = prefill(prompts))
      return error;
    if (padding)
      if (llvm::Error error = testPadding())
        return error;
    if (llvm::Error error = takeTokens(session.manifest().padsRight))
      return error;
    result.prefillSeconds = secondsSince(start);
    result.madeUp = feed.madeUp().vec();

    start = Clock::now();
    if (options.draft.session) {
      draft.emplace(options.draft, options.sampling);
      seen = prompts.front();
    }
    for (int64_t made = 1; made < options.steps && !llvm::all_of(hasEnded, isTrue);) {
      auto count = draft ? decodeGuessed(options.steps - made) : decode();
      if (count.errorIsA<CapacityError>()) {
        llvm::consumeError(count.takeError());
        stopAll(StopReason::Capacity);
        break;
      }
      if (!count)
        return count.takeError();
      made += *count;
    }
    result.decodeSeconds = secondsSince(start);
    return std::move(result);
  }

private:
  static bool isTrue(bool value) { return value; }

  /// Checks that an input takes the prompt: token ids, or rows of some embedding.
  llvm::Error checkTokens() const {
    auto takes = [&](const Value* input) {
      const TensorType& type = input->type();
      return isFloatingPoint(type.elementType()) && (!type.hasRank() || type.rank() >= 3);
    };
    auto isGiven = [](const InputRecipe& recipe) {
      return recipe.kind == InputRecipe::Kind::Feed && recipe.feed == InputFeed::Tokens;
    };
    if (!tokenInputs(session.graph(), session.manifest().inputs).empty() ||
        llvm::any_of(options.feed.recipes, isGiven) || llvm::any_of(session.callerInputs(), takes))
      return llvm::Error::success();
    return unsupported("no input takes token ids, so that the prompt would be ignored")
        .hint("--input NAME=token_ids says which one does");
  }

  llvm::Error checkPadding(llvm::ArrayRef<std::vector<int64_t>> prompts) const {
    auto isAsLong = [&](const std::vector<int64_t>& prompt) {
      return prompt.size() == prompts.front().size();
    };
    if (llvm::all_of(prompts, isAsLong))
      return llvm::Error::success();
    auto hides = [&](const Value* input) {
      return hidesPositions(*input, session.manifest().inputs);
    };
    if (llvm::none_of(session.callerInputs(), hides))
      return usageError("the prompts differ in length, and the model has no mask of each batch row "
                        "that could hide padding");
    if (!session.manifest().padsRight)
      return llvm::Error::success();
    // The rest of a prompt cannot follow padding, so the prompts must be one step.
    if (session.length() != 0 || promptChunk(longestOf(prompts)) < longestOf(prompts))
      return usageError("the prompts differ in length, and the model takes padding on the right "
                        "only: it counts tokens by its mask")
          .hint("prompts are then one step from empty caches: --chunk at least as long as the "
                "longest of them, or prompts of one length");
    return llvm::Error::success();
  }

  llvm::Error testPadding() {
    auto logits = findLogits(outputs);
    if (!logits)
      return logits.takeError();
    const int64_t after = session.manifest().padsRight ? paddings[padding->row()] : 0;
    if ((*logits)->view.shape[1] <= after) {
      padding.reset();
      return llvm::Error::success(); // takeTokens says so
    }
    return padding->run(options.feed, promptChunk(SIZE_MAX), **logits, after);
  }

  /// Tests the first step after padded prompts, and ends the test.
  llvm::Error testNextOfPadding() {
    auto logits = findLogits(outputs);
    llvm::Error error =
        logits ? padding->runNext(next[padding->row()].back(), **logits) : logits.takeError();
    padding.reset();
    return error;
  }

  static size_t longestOf(llvm::ArrayRef<std::vector<int64_t>> prompts) {
    size_t longest = 0;
    for (const std::vector<int64_t>& prompt : prompts)
      longest = std::max(longest, prompt.size());
    return longest;
  }

  /// Number of tokens in a prompt's steps.
  size_t promptChunk(size_t longest) const {
    const auto most = static_cast<size_t>(mostTokensOfAStep());
    return std::min(most, options.chunk > 0 ? static_cast<size_t>(options.chunk) : longest);
  }

  /// Largest number of tokens of a step for which the model was exported.
  int64_t mostTokensOfAStep() const {
    int64_t most = session.mostStepTokens();
    for (const Value* input : tokenInputs(session.graph(), session.manifest().inputs))
      if (input->type().hasRank() && input->type().rank() != 0)
        if (const auto fixed = input->type().shape().back().value(); fixed && *fixed > 0)
          most = std::min(most, *fixed);
    return most;
  }

  /// Runs all prompts, padded on the side that the model supports.
  llvm::Error prefill(llvm::ArrayRef<std::vector<int64_t>> prompts) {
    const bool padsRight = session.manifest().padsRight;
    const size_t longest = longestOf(prompts);
    std::vector<std::vector<int64_t>> padded;
    for (const std::vector<int64_t>& prompt : prompts) {
      result.promptTokens += static_cast<int64_t>(prompt.size());
      const size_t hidden = longest - prompt.size();
      padded.emplace_back(padsRight ? 0 : hidden, 0);
      padded.back().insert(padded.back().end(), prompt.begin(), prompt.end());
      padded.back().resize(longest, 0);
      feed.hidePadding(hidden, padsRight ? prompt.size() : 0);
      paddings.push_back(static_cast<int64_t>(hidden));
    }
    const size_t chunk = promptChunk(longest);
    for (size_t begin = 0;; begin += chunk) {
      const size_t end = std::min(longest, begin + chunk);
      std::vector<std::vector<int64_t>> tokens;
      for (const std::vector<int64_t>& row : padded)
        tokens.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(begin),
                            row.begin() + static_cast<std::ptrdiff_t>(end));
      if (llvm::Error error = feed.run(tokens, outputs))
        return error;
      if (end == longest)
        return llvm::Error::success();
    }
  }

  /// Runs the last tokens, and selects one more in each row. Inputs of fixed extents are not
  /// created for a token without room.
  llvm::Expected<int64_t> decode() {
    if (llvm::Error error = makeRoom())
      return error;
    for (size_t row = 0; row < next.size(); ++row)
      next[row].assign(1, result.sequences[row].tokens.back());
    if (llvm::Error error = feed.run(next, outputs))
      return error;
    if (padding)
      if (llvm::Error error = testNextOfPadding())
        return error;
    result.decodedTokens += llvm::count(hasEnded, false);
    if (llvm::Error error = takeTokens())
      return error;
    return 1;
  }

  /// Makes room for one more token, by dropping older ones if necessary.
  llvm::Error makeRoom() {
    const ContextShiftOptions& shift = options.shift;
    const int64_t capacity = shift.capacity > 0 ? shift.capacity : INT64_MAX;
    while (shift.isOn && session.length() > shift.kept + 1 &&
           (session.length() >= capacity || llvm::errorToBool(session.checkRoom(1)))) {
      const int64_t dropped = (session.length() - shift.kept) / 2;
      if (llvm::Error error = session.shift(shift.kept, dropped))
        return error;
      ++result.contextShifts;
      result.droppedTokens += dropped;
    }
    return session.checkRoom(1);
  }

  /// Runs the last token with guesses of the following ones, and accepts at most `remaining`: the
  /// correct guesses, and the next token.
  llvm::Expected<int64_t> decodeGuessed(int64_t remaining) {
    if (llvm::Error error = session.checkRoom(1))
      return error;
    int64_t wanted = std::min({options.draft.tokens, remaining - 1, session.mostStepTokens() - 1});
    while (wanted > 0 && llvm::errorToBool(session.checkRoom(wanted + 1)))
      --wanted;
    const int64_t before = session.length();
    seen.resize(static_cast<size_t>(before));
    std::vector<int64_t> tokens{result.sequences.front().tokens.back()};
    seen.push_back(tokens.front());
    auto guesses = draft->guess(seen, wanted);
    if (!guesses)
      return guesses.takeError();
    if (draft->vocabulary() != 0 && draft->vocabulary() != vocabulary)
      return usageError("the draft has a vocabulary of {} tokens, and the model one of {}",
                        draft->vocabulary(), vocabulary);
    tokens.insert(tokens.end(), guesses->begin(), guesses->end());
    if (llvm::Error error = feed.run({tokens}, outputs))
      return error;
    auto logits = findLogits(outputs);
    if (!logits)
      return logits.takeError();
    if (llvm::Error error = checkScores(**logits, tokens.size()))
      return error;
    const auto count = static_cast<int64_t>(tokens.size());
    int64_t taken = 0;
    for (bool isRight = true; isRight && !hasEnded.front() && taken < count;) {
      auto token = chooser.choose(**logits, {before + 1 + taken, 0}, count - 1 - taken);
      if (!token)
        return token.takeError();
      add(*token, 0);
      isRight = ++taken < count && tokens[static_cast<size_t>(taken)] == *token;
    }
    result.decodedTokens += taken;
    result.draftedTokens += count - 1;
    result.acceptedTokens += taken - 1;
    seen.insert(seen.end(), tokens.begin() + 1, tokens.begin() + taken);
    if (taken < count)
      if (llvm::Error error = session.crop(before + taken))
        return error;
    if (llvm::Error error = draft->goBack(before + taken))
      return error;
    return taken;
  }

  /// Checks that every token has scores.
  static llvm::Error checkScores(const Tensor& logits, size_t tokens) {
    if (logits.view.shape[1] != static_cast<int64_t>(tokens))
      return usageError("the model gives scores of {} of {} tokens: guesses cannot be checked",
                        logits.view.shape[1], tokens);
    return llvm::Error::success();
  }

  /// Selects a token for each batch row by the scores of its last token, which padding may follow.
  llvm::Error takeTokens(bool isPaddedBehind = false) {
    auto logits = findLogits(outputs);
    if (!logits)
      return logits.takeError();
    const int64_t most = *std::max_element(paddings.begin(), paddings.end());
    isPaddedBehind &= most != 0;
    if (isPaddedBehind && (*logits)->view.shape[1] <= most)
      return usageError("the model gives scores of {} tokens of a step: none for the last token of "
                        "a shorter prompt, because padding follows it",
                        (*logits)->view.shape[1]);
    vocabulary = (*logits)->view.shape[2];
    for (size_t row = 0; row < result.sequences.size(); ++row)
      if (!hasEnded[row])
        if (llvm::Error error =
                takeToken(**logits, static_cast<int64_t>(row), isPaddedBehind ? paddings[row] : 0))
          return error;
    return llvm::Error::success();
  }

  llvm::Error takeToken(const Tensor& logits, int64_t row, int64_t behind) {
    // Random selection never uses the same position twice.
    const int64_t position =
        feed.length() + result.droppedTokens - paddings[static_cast<size_t>(row)];
    auto token = chooser.choose(logits, {position, row}, behind);
    if (!token)
      return token.takeError();
    add(*token, row);
    return llvm::Error::success();
  }

  void add(int64_t token, int64_t row) {
    GeneratedSequence& sequence = result.sequences[static_cast<size_t>(row)];
    sequence.tokens.push_back(token);
    if (options.onToken)
      options.onToken(row, token);
    auto isEnd = [&](llvm::ArrayRef<int64_t> end) { return endsWithTokens(sequence.tokens, end); };
    if (llvm::is_contained(options.stopTokens, token))
      stop(row, StopReason::Token);
    else if (llvm::any_of(options.stopSequences, isEnd))
      stop(row, StopReason::Sequence);
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
  TokenFeed feed;
  TokenChooser chooser;
  StepResult outputs;                     ///< results of the latest step
  std::vector<std::vector<int64_t>> next; ///< inputs of the next decode step
  std::vector<int64_t> paddings;
  std::optional<PaddingTest> padding; ///< until the first step after the prompts
  int64_t vocabulary = 0;             ///< number of scores per token
  std::optional<Draft> draft;
  std::vector<int64_t> seen; ///< for the draft: all tokens that the session has seen
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
  if (options.shift.isOn) {
    if (llvm::Error error = session.checkShift())
      return error;
    if (options.draft.session)
      return usageError("tokens cannot be dropped from full caches while a draft guesses");
    if (options.shift.kept < 0)
      return usageError("cannot keep {} tokens", options.shift.kept);
    if (options.shift.capacity > 0 && options.shift.kept > options.shift.capacity - 2)
      return usageError("cannot keep {} tokens and go on in caches of {}", options.shift.kept,
                        options.shift.capacity);
    if (llvm::any_of(prompts,
                     [&](const auto& prompt) { return prompt.size() != prompts.front().size(); }))
      return usageError("tokens cannot be dropped from full caches of prompts that differ in "
                        "length: their padding is not at the same places");
  }
  if (Session* draft = options.draft.session) {
    if (prompts.size() != 1 || draft->batch() != 1 || session.length() != 0 || draft->length() != 0)
      return usageError("a draft is for one prompt, from the start of its sequence");
    if (options.draft.tokens < 1)
      return usageError("cannot draft {} tokens", options.draft.tokens);
    if (llvm::Error error = checkGoesBack(session, "the model"))
      return error;
    if (llvm::Error error = checkGoesBack(*draft, "the draft"))
      return error;
  }
  return Generator(session, options).run(prompts);
}

OrderedJson memoryJson(const Session& session) {
  const SessionStatistics& counters = session.statistics();
  return {{"length", session.length()},
          {"cache_bytes", session.cacheBytes()},
          {"cache_bytes_written", counters.cacheBytesWritten},
          {"cache_bytes_copied", counters.inPlaceBytesCopied},
          {"cache_bytes_moved", counters.cacheBytesMoved},
          {"cache_reallocations", counters.cacheReallocations},
          {"temporary_peak_bytes", counters.temporaryPeak}};
}

} // namespace kvopt::driver
