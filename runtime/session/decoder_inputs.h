// What a decoder is fed at its edge besides caches: token ids, attention mask, positions.
#pragma once

#include "runtime/session/decoder_step.h"
#include "runtime/session/input_plan.h"
#include "runtime/session/session.h"

#include <vector>

namespace kvopt::runtime {

/// Values for graph inputs: by the step's recipes, by `described` (Manifest::inputs), and else by
/// the documented interface names of exported decoders (recognition never looks at names):
///
///   input_ids, decoder_input_ids   the tokens, [B,S]; with an axis of fixed extent among three for
///                                  each codebook; with several rows for each batch row where the
///                                  graph splits them (`tokenIdsOf`)
///   attention_mask                 1 where visible, else 0, [B,P+S]; behind that 0, where the
///                                  declared extent is fixed
///   position_ids                   visible positions counted from 0, hidden ones 0, [B,S]
///   cache_position                 P … P+S-1, [S]
///   encoder_attention_mask         1 everywhere
///   inputs_embeds                  made up like an encoder's output, [B,S,·]
///
/// Masks that are described are causal as well where they have an axis of queries. Segments change
/// every eight tokens.
///
/// Element types are those declared (int64, int32, bool, float, float16, bfloat16). Floating-point
/// inputs of three or more axes are what an encoder hands over (its states, caches of
/// cross-attention): they get numbers in [-1, 1) that depend on the input's name and the element
/// only, the same at every step, with `encoderTokens` for extents that no other input fixes. So do
/// all other inputs of a known rank, but that integers are 0 and bools true (`guessedInputs`). An
/// input without a declared rank is an error that names it, and so is a recipe for none of them.
///
/// StepInputs makes them for step after step.
llvm::Expected<std::vector<NamedTensor>>
decoderInputs(llvm::ArrayRef<const ir::Value*> inputs, const DecoderStep& step,
              const std::shared_ptr<Allocator>& allocator,
              llvm::ArrayRef<ir::ManifestInput> described = {});

/// The inputs that are made for a step of the session: those that its caller gives, and the lengths
/// that a recipe is for.
llvm::SmallVector<const ir::Value*, 8> drivenInputs(const Session& session,
                                                    llvm::ArrayRef<InputRecipe> recipes);

/// The same for the inputs of a session.
llvm::Expected<std::vector<NamedTensor>> decoderInputs(const Session& session,
                                                       const DecoderStep& step);

/// Feeds a session one step; DecoderStep::pastLength is the session's length.
llvm::Expected<StepResult> stepDecoder(Session& session, const DecoderStep& step);

} // namespace kvopt::runtime
