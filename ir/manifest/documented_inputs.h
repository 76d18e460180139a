// Inputs with documented names: hosts know from the name what to feed them.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/value.h"

#include "llvm/ADT/ArrayRef.h"

#include <vector>

namespace kvopt::ir {

/// The meaning of an axis of a documented input. Other is a width, codebooks, or rows of an
/// encoder.
enum class DocumentedExtent { Other, Batch, NewTokens, AllTokens };

struct DocumentedInput {
  const char* name;
  unsigned rank;
  InputFeed feed;           ///< Any: the output of an encoder or an embedding
  DocumentedExtent axes[3]; ///< the first `rank`
};

constexpr DocumentedInput documentedInputs[] = {
    {"input_ids", 2, InputFeed::Tokens, {DocumentedExtent::Batch, DocumentedExtent::NewTokens}},
    // With several codebooks.
    {"input_ids",
     3,
     InputFeed::Tokens,
     {DocumentedExtent::Batch, DocumentedExtent::Other, DocumentedExtent::NewTokens}},
    {"decoder_input_ids",
     2,
     InputFeed::Tokens,
     {DocumentedExtent::Batch, DocumentedExtent::NewTokens}},
    {"decoder_input_ids",
     3,
     InputFeed::Tokens,
     {DocumentedExtent::Batch, DocumentedExtent::Other, DocumentedExtent::NewTokens}},
    {"inputs_embeds", 3, InputFeed::Any, {DocumentedExtent::Batch, DocumentedExtent::NewTokens}},
    {"attention_mask",
     2,
     InputFeed::VisibleKeys,
     {DocumentedExtent::Batch, DocumentedExtent::AllTokens}},
    {"encoder_attention_mask", 2, InputFeed::VisibleKeys, {DocumentedExtent::Batch}},
    {"position_ids",
     2,
     InputFeed::Positions,
     {DocumentedExtent::Batch, DocumentedExtent::NewTokens}},
    {"cache_position", 1, InputFeed::Positions, {DocumentedExtent::NewTokens}},
};

/// Whether an input hides keys of tokens, and not those of an encoder.
inline bool isTokenMask(const DocumentedInput& input) {
  return input.feed == InputFeed::VisibleKeys && input.axes[1] == DocumentedExtent::AllTokens;
}

/// Entry for an input's name and rank; null if there is none.
inline const DocumentedInput* documentedInput(const Value& input) {
  const TensorType& type = input.type();
  for (const DocumentedInput& documented : documentedInputs)
    if (input.name() == documented.name && (!type.hasRank() || type.rank() == documented.rank))
      return &documented;
  return nullptr;
}

/// Whether an input is token ids, by name or description (Manifest::inputs).
bool isTokenInput(const Value& input, llvm::ArrayRef<ManifestInput> described);
std::vector<const Value*> tokenInputs(const Graph& graph,
                                      llvm::ArrayRef<ManifestInput> described = {});

/// Whether the feed specifies which keys are visible.
bool isMaskFeed(InputFeed feed);

/// Whether the feed is a mask whose last columns are the keys of all tokens so far.
bool isAtEnd(InputFeed feed);

} // namespace kvopt::ir
