// The words of manifests, and what each means.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/manifest/manifest_field.h"

namespace kvopt::ir {

inline constexpr const char* manifestSchema = "kvopt/manifest/1";

template <typename Enum> struct ManifestWord {
  Enum value;
  const char* text;
  const char* meaning;
};

inline constexpr ManifestWord<CacheUpdate> contractWords[] = {
    {CacheUpdate::Grows, "growing", "each present is the next step's past"},
    {CacheUpdate::InPlace, "shared-buffer",
     "past and present of some caches are one buffer, which the caller allocates once"},
    {CacheUpdate::State, "stateful", "the model keeps its caches to itself"},
    {CacheUpdate::Blocks, "blocks", "some caches are in blocks, each an input"}};

inline constexpr ManifestWord<bool> kindWords[] = {
    {false, "self", "the model adds the rows of new tokens"},
    {true, "cross", "the model only reads the cache, as attention to an encoder's results does"}};

inline constexpr ManifestWord<CacheRole> roleWords[] = {
    {CacheRole::Key, "key", "keys"},
    {CacheRole::Value, "value", "values"},
    {CacheRole::Latent, "latent", "compressed rows, from which attention computes keys and values"},
    {CacheRole::KeyScale, "key_scale", "the scales of the layer's quantized keys"},
    {CacheRole::ValueScale, "value_scale", "the scales of the layer's quantized values"},
    {CacheRole::LatentScale, "latent_scale", "the scales of the layer's quantized latent rows"},
    {CacheRole::State, "state", "a recurrent or convolution state"}};

/// The kind distinguishes a cache that is only read from a static one.
inline constexpr ManifestWord<CacheUpdate> policyWords[] = {
    {CacheUpdate::Grows, "fixed", "each step adds the rows of its tokens"},
    {CacheUpdate::Ring, "ring", "the last rows only: position p is in row p modulo the rows"},
    {CacheUpdate::Blocks, "block", "each step adds the rows of its tokens, in blocks"},
    {CacheUpdate::Static, "static", "a fixed number of rows, which the model writes"},
    {CacheUpdate::State, "state", "each step replaces the whole cache"},
    {CacheUpdate::ReadOnly, "static", ""}};

inline constexpr ManifestWord<bool> newRowWords[] = {
    {true, "new", "the new rows only, which the caller appends to the past's"}};

inline constexpr ManifestWord<bool> attendedWords[] = {
    {true, "attended",
     "rows as attention reads them; the exported model's cache has rows that these are computed "
     "from"}};

inline constexpr ManifestWord<bool> poolWords[] = {
    {true, "pool",
     "`past` and `present` are `[blocks, block_size, heads, width]`, and `shape` is that of the "
     "cache that the blocks of all batch rows make up, `[batch, capacity, heads, width]`"}};

inline constexpr ManifestWord<LengthFeed> feedWords[] = {
    {LengthFeed::PastLength, "past_length", "P"},
    {LengthFeed::TotalLength, "total_length", "P + S"},
    {LengthFeed::PastLengthPerBatch, "past_length_per_batch", "P of each batch row"},
    {LengthFeed::TotalLengthPerBatch, "total_length_per_batch", "P + S of each batch row"},
    {LengthFeed::TotalLengthMinusOne, "total_length_minus_one", "P + S - 1"},
    {LengthFeed::TotalLengthPerBatchMinusOne, "total_length_per_batch_minus_one",
     "P + S - 1 of each batch row"},
    {LengthFeed::PastLengthMinusOne, "past_length_minus_one", "P - 1"},
    {LengthFeed::PastLengthPerBatchMinusOne, "past_length_per_batch_minus_one",
     "P - 1 of each batch row"},
    {LengthFeed::NewLength, "new_length", "S"},
    {LengthFeed::HasPast, "has_past", "1 or true where P > 0"},
    {LengthFeed::NoPast, "no_past", "1 or true where P is 0"},
    {LengthFeed::BlockTable, "block_table",
     "`[batch, blocks of a row]`: the blocks of pools that have each row's tokens, in their "
     "order"}};

inline constexpr ManifestWord<InputFeed> inputFeedWords[] = {
    {InputFeed::Tokens, "token_ids", "the ids of the new tokens"},
    {InputFeed::Positions, "position_ids", "the positions of the new tokens"},
    {InputFeed::VisibleKeys, "visible_keys", "1 or true where a query may see a key, else 0"},
    {InputFeed::HiddenKeys, "hidden_keys", "1 or true where a query may not see a key, else 0"},
    {InputFeed::AdditiveMask, "additive_mask",
     "0 where a query may see a key, else the lowest finite number of the type"},
    {InputFeed::VisibleKeysAtEnd, "visible_keys_at_end",
     "`visible_keys` whose last columns are the keys of all tokens so far"},
    {InputFeed::HiddenKeysAtEnd, "hidden_keys_at_end",
     "`hidden_keys` whose last columns are the keys of all tokens so far, with 1 before them"},
    {InputFeed::AdditiveMaskAtEnd, "additive_mask_at_end",
     "`additive_mask` whose last columns are the keys of all tokens so far"},
    {InputFeed::Slots, "slot_ids",
     "the positions of the new tokens, modulo the number of rows of the caches"},
    {InputFeed::KeyPositions, "key_positions",
     "the position of the token in each row of the caches after the step, -1 where there is none"},
    {InputFeed::Segments, "segment_ids", "segment numbers: a token sees tokens of its segment"},
    {InputFeed::BatchRows, "batch_rows", "0 to batch - 1"},
    {InputFeed::Constant, "constant", "`numbers`, repeated over all elements, at every step"},
    {InputFeed::Any, "any", "what the model's documentation says: the graph does not show it"}};

inline constexpr ManifestWord<EqualityVerdict> verdictWords[] = {
    {EqualityVerdict::Proved, "proved", "equal by construction"},
    {EqualityVerdict::ProvedReduced, "proved-reduced",
     "equal in the scope of a check, and an argument extends it to all sizes"},
    {EqualityVerdict::Tested, "tested",
     "equal in all steps that were compared, which is not a proof"}};

inline constexpr ManifestWord<ComparisonMeans> meansWords[] = {
    {ComparisonMeans::Check, "check", "a check without running the models"},
    {ComparisonMeans::Quick, "quick", "runs of both models, as of `--verify quick`"},
    {ComparisonMeans::Full, "full", "runs of both models, as of `--verify full`"}};

inline constexpr ManifestWord<bool> pairWords[] = {
    {false, "halves", "of n pairs, pair i is columns first + i and first + i + n"},
    {true, "neighbors", "pair i is columns first + 2 i and first + 2 i + 1"}};

inline constexpr ManifestWord<bool> hiddenRowWords[] = {
    {true, "undefined", "padding that sees no token need not come out as in the exported model"}};

inline constexpr ManifestWord<bool> paddingWords[] = {
    {true, "right",
     "the prompt is one step from empty caches, and its padding follows its tokens"}};

} // namespace kvopt::ir
