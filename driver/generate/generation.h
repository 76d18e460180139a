// Generation: prompts in, tokens out, one by one, the most likely ones or drawn at random.
#pragma once

#include "runtime/session/token_choice.h"
#include "runtime/session/token_feed.h"

namespace kvopt::driver {

/// Why a sequence ended.
enum class StopReason {
  Steps,    ///< as many tokens as were asked for
  Token,    ///< the last one is a stop token
  Sequence, ///< the last ones are a stop sequence
  Capacity, ///< the caches are full, and the last token is not in them
};

/// A model that guesses tokens, so that another one of the same vocabulary checks several at once.
struct DraftOptions {
  runtime::Session* session = nullptr; ///< of an empty batch of one; null: nobody guesses
  int64_t tokens = 4;                  ///< most guesses before each step of the model
  runtime::FeedOptions feed;
};

/// What becomes of full caches: the first tokens stay, and half of the others are dropped.
struct ContextShiftOptions {
  bool isOn = false;
  int64_t kept = 4; ///< tokens at the start that are never dropped
  /// Tokens that the caches hold at most; 0: as many as they have room for.
  int64_t capacity = 0;
};

struct GenerationOptions {
  int64_t steps = 32; ///< most tokens to generate
  int64_t chunk = 0;  ///< tokens of a prefill step; 0: the whole prompt
  runtime::FeedOptions feed;
  runtime::SamplingOptions sampling;
  DraftOptions draft;
  ContextShiftOptions shift;
  std::vector<int64_t> stopTokens;
  std::vector<std::vector<int64_t>> stopSequences;

  /// Told of every token as soon as it is known.
  std::function<void(int64_t row, int64_t token)> onToken;
};

struct GeneratedSequence {
  std::vector<int64_t> tokens; ///< without the prompt; with what it stopped at
  StopReason stopped = StopReason::Steps;
};

struct GenerationResult {
  std::vector<GeneratedSequence> sequences; ///< one a prompt
  int64_t promptTokens = 0;                 ///< of all prompts
  int64_t decodedTokens = 0;                ///< of all sequences, without the first of each
  int64_t draftedTokens = 0;                ///< guesses
  int64_t acceptedTokens = 0;               ///< guesses that were what the model takes
  int64_t contextShifts = 0;                ///< how often tokens were dropped
  int64_t droppedTokens = 0;                ///< of each sequence
  double prefillSeconds = 0;                ///< until the first token of each is known
  double decodeSeconds = 0;
};

/// Appends the prompts, one a batch row, to what the session holds, and generates. Shorter prompts
/// are padded on the left, which the model's attention_mask hides: an error for a model without
/// one. For a model that counts tokens by its mask (Manifest::padsRight) they are padded on the
/// right; such prompts are one step, from empty caches. The session's length grows by the
/// longest prompt and by all steps but the last, whose tokens are not in the caches yet. A sequence
/// that has ended is fed its last token until the others end, too.
///
/// Caches that become full end generation; a prompt that does not fit is an error. With a context
/// shift (Xiao et al., "Efficient Streaming Language Models with Attention Sinks"), full caches
/// keep the first tokens, drop the older half of the others (Session::shift), and generation
/// continues: for sessions that can be shifted, prompts of one length, and no draft.
///
/// With a draft (Leviathan et al., "Fast inference from transformers via speculative decoding"),
/// the draft draws tokens as the model would, with the same seed at the same positions, and the
/// model computes the scores of all of them in one step. What it draws itself is what is taken, up
/// to and with the first that is another one; the caches of both go back to that. So the tokens are
/// those of generation without a draft, as far as steps of several tokens give the scores of single
/// ones. For one prompt, and for sessions whose caches can go back.
llvm::Expected<GenerationResult> generate(runtime::Session& session,
                                          llvm::ArrayRef<std::vector<int64_t>> prompts,
                                          const GenerationOptions& options);

} // namespace kvopt::driver
