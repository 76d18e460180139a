// Inputs that exporters document: hosts know by their names what to feed them.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/value.h"

namespace kvopt::ir {

struct DocumentedInput {
  const char* name;
  unsigned rank;
  InputFeed feed; ///< Any: what an encoder or an embedding hands over
};

constexpr DocumentedInput documentedInputs[] = {
    {"input_ids", 2, InputFeed::Tokens},
    {"input_ids", 3, InputFeed::Tokens}, // of several codebooks
    {"decoder_input_ids", 2, InputFeed::Tokens},
    {"decoder_input_ids", 3, InputFeed::Tokens},
    {"inputs_embeds", 3, InputFeed::Any},
    {"attention_mask", 2, InputFeed::VisibleKeys},
    {"encoder_attention_mask", 2, InputFeed::VisibleKeys},
    {"position_ids", 2, InputFeed::Positions},
    {"cache_position", 1, InputFeed::Positions},
};

/// The entry of an input's name and rank; null without one.
inline const DocumentedInput* documentedInput(const Value& input) {
  const TensorType& type = input.type();
  for (const DocumentedInput& documented : documentedInputs)
    if (input.name() == documented.name && (!type.hasRank() || type.rank() == documented.rank))
      return &documented;
  return nullptr;
}

} // namespace kvopt::ir
