// Inputs with documented names: hosts know from the name what to feed them.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/value.h"

namespace kvopt::ir {

struct DocumentedInput {
  const char* name;
  unsigned rank;
  InputFeed feed; ///< Any: the output of an encoder or an embedding
};

constexpr DocumentedInput documentedInputs[] = {
    {"input_ids", 2, InputFeed::Tokens},
    {"input_ids", 3, InputFeed::Tokens}, // with several codebooks
    {"decoder_input_ids", 2, InputFeed::Tokens},
    {"decoder_input_ids", 3, InputFeed::Tokens},
    {"inputs_embeds", 3, InputFeed::Any},
    {"attention_mask", 2, InputFeed::VisibleKeys},
    {"encoder_attention_mask", 2, InputFeed::VisibleKeys},
    {"position_ids", 2, InputFeed::Positions},
    {"cache_position", 1, InputFeed::Positions},
};

/// Entry for an input's name and rank; null if there is none.
inline const DocumentedInput* documentedInput(const Value& input) {
  const TensorType& type = input.type();
  for (const DocumentedInput& documented : documentedInputs)
    if (input.name() == documented.name && (!type.hasRank() || type.rank() == documented.rank))
      return &documented;
  return nullptr;
}

} // namespace kvopt::ir
