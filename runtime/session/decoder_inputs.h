// Inputs of a decoder other than caches: token ids, attention mask, positions.
#pragma once

#include "runtime/session/decoder_step.h"
#include "runtime/session/input_plan.h"
#include "runtime/session/session.h"

#include <vector>

namespace kvopt::runtime {

/// Values for graph inputs: from the step's recipes, from `described` (Manifest::inputs), or from
/// the documented interface names of exported decoders (recognition never uses names):
///
///   input_ids, decoder_input_ids   the tokens, [B,S]; with an axis of fixed extent among three for
///                                  each codebook; with several rows for each batch row if the
///                                  graph splits them (`tokenIdsOf`)
///   attention_mask                 1 for visible positions, 0 for hidden ones, [B,P+S], followed
///                                  by 0 if the declared extent is fixed
///   position_ids                   visible positions counted from 0, hidden ones 0, [B,S]
///   cache_position                 P … P+S-1, [S]
///   encoder_attention_mask         1 everywhere
///   inputs_embeds                  synthetic, like an encoder's output, [B,S,·]
///
/// Described masks with an axis of queries are also causal. Segments change every eight tokens.
///
/// Element types are those declared (int64, int32, bool, float, float16, bfloat16). Floating-point
/// inputs with three or more axes are outputs of an encoder (its states, caches of
/// cross-attention): they receive numbers in [-1, 1) that depend only on the input's name and the
/// element and are the same at every step, with `encoderTokens` for extents that no other input
/// determines. So do all other inputs of known rank, except that integers are 0 and bools true
/// (`guessedInputs`). An input without a declared rank is an error that names it, and so is a
/// recipe for an unknown input.
///
/// StepInputs creates them for consecutive steps.
llvm::Expected<std::vector<NamedTensor>>
decoderInputs(llvm::ArrayRef<const ir::Value*> inputs, const DecoderStep& step,
              const std::shared_ptr<Allocator>& allocator,
              llvm::ArrayRef<ir::ManifestInput> described = {}, int64_t slots = 0);

/// Inputs that are created for a step of the session: those from its caller, and lengths with a
/// recipe.
llvm::SmallVector<const ir::Value*, 8> drivenInputs(const Session& session,
                                                    llvm::ArrayRef<ir::InputRecipe> recipes);

/// The same for the inputs of a session.
llvm::Expected<std::vector<NamedTensor>> decoderInputs(const Session& session,
                                                       const DecoderStep& step);

/// Runs one step of a session; DecoderStep::pastLength is the session's length.
llvm::Expected<StepResult> stepDecoder(Session& session, const DecoderStep& step);

} // namespace kvopt::runtime
