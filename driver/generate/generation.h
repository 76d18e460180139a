// Generation of tokens for prompts, one token at a time: the most likely token, or a random one.
#pragma once

#include "runtime/session/token_choice.h"
#include "runtime/session/token_feed.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// Reason that a sequence ended.
enum class StopReason {
  Steps,    ///< the requested number of tokens was generated
  Token,    ///< the last token is a stop token
  Sequence, ///< the last tokens are a stop sequence
  Capacity, ///< the caches are full, and the last token is not in them
};

/// A model that guesses tokens, so that another one with the same vocabulary checks several at
/// once.
struct DraftOptions {
  runtime::Session* session = nullptr; ///< batch of one, empty caches; null: no guesses
  int64_t tokens = 4;                  ///< maximum number of guesses before each step of the model
  runtime::FeedOptions feed;
};

/// Handling of full caches: the first tokens are kept, and half of the others are dropped.
struct ContextShiftOptions {
  bool isOn = false;
  int64_t kept = 4; ///< number of tokens at the start that are never dropped
  /// Maximum number of tokens in the caches; 0: their capacity.
  int64_t capacity = 0;
};

struct GenerationOptions {
  int64_t steps = 32; ///< maximum number of tokens to generate
  int64_t chunk = 0;  ///< number of tokens of a prefill step; 0: the whole prompt
  runtime::FeedOptions feed;
  runtime::SamplingOptions sampling;
  DraftOptions draft;
  ContextShiftOptions shift;
  std::vector<int64_t> stopTokens;
  std::vector<std::vector<int64_t>> stopSequences;

  /// Called for every token as soon as it is known.
  std::function<void(int64_t row, int64_t token)> onToken;
};

struct GeneratedSequence {
  std::vector<int64_t> tokens; ///< without the prompt, including a stop token or sequence
  StopReason stopped = StopReason::Steps;
};

struct GenerationResult {
  std::vector<GeneratedSequence> sequences; ///< one per prompt
  int64_t promptTokens = 0;                 ///< total over all prompts
  int64_t decodedTokens = 0;       ///< total over all sequences, without the first token of each
  int64_t draftedTokens = 0;       ///< guesses
  int64_t acceptedTokens = 0;      ///< guesses that the model confirmed
  int64_t contextShifts = 0;       ///< number of times that tokens were dropped
  int64_t droppedTokens = 0;       ///< from each sequence
  std::vector<std::string> madeUp; ///< inputs whose contents nothing determined
  double prefillSeconds = 0;       ///< until the first token of each sequence is known
  double decodeSeconds = 0;
};

/// Length, bytes of caches and of temporary memory of a session, by the names that reports and the
/// interfaces for other languages share.
OrderedJson memoryJson(const runtime::Session& session);

/// Appends the prompts, one per batch row, to the session's tokens, and generates. Shorter prompts
/// are padded on the left, and the model's attention_mask hides the padding; fails for a model
/// without a mask, and for one that computes other scores for the shortest prompt alone. If the
/// model counts tokens by its mask (Manifest::padsRight), they are padded on the right; such
/// prompts are a single step and start from empty caches. The session's length grows by the longest
/// prompt and by all steps but the last, whose tokens are not in the caches yet. A sequence that
/// has ended repeats its last token until all others end.
///
/// Full caches end the generation; a prompt that does not fit is an error. With a context shift
/// (Xiao et al., "Efficient Streaming Language Models with Attention Sinks"), full caches keep the
/// first tokens and drop the older half of the others (Session::shift), and generation continues.
/// This requires a session that supports shifts, prompts of equal length, and no draft.
///
/// With a draft (Leviathan et al., "Fast inference from transformers via speculative decoding"),
/// the draft selects tokens as the model would, with the same seed at the same positions, and the
/// model computes the scores of all of them in one step. The model's own selection is used, up to
/// and including the first token that differs from the draft; the caches of both are cropped to it.
/// The tokens are therefore those of generation without a draft, provided that steps of several
/// tokens give the same scores as steps of single tokens. Requires one prompt, and sessions whose
/// caches can be cropped.
llvm::Expected<GenerationResult> generate(runtime::Session& session,
                                          llvm::ArrayRef<std::vector<int64_t>> prompts,
                                          const GenerationOptions& options);

} // namespace kvopt::driver
