// How manifests spell what they enumerate.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::ir {

constexpr const char* manifestSchema = "kvopt/manifest/1";

template <typename Enum> struct ManifestWord {
  Enum value;
  const char* text;
};

constexpr ManifestWord<CacheUpdate> contractWords[] = {{CacheUpdate::Grows, "growing"},
                                                       {CacheUpdate::InPlace, "shared-buffer"},
                                                       {CacheUpdate::State, "stateful"},
                                                       {CacheUpdate::Blocks, "blocks"}};
/// Whether a cache is only read.
constexpr ManifestWord<bool> kindWords[] = {{false, "self"}, {true, "cross"}};
constexpr ManifestWord<CacheRole> roleWords[] = {{CacheRole::Key, "key"},
                                                 {CacheRole::Value, "value"},
                                                 {CacheRole::Latent, "latent"},
                                                 {CacheRole::KeyScale, "key_scale"},
                                                 {CacheRole::ValueScale, "value_scale"},
                                                 {CacheRole::LatentScale, "latent_scale"},
                                                 {CacheRole::State, "state"}};
/// The kind tells what is only read from what is static.
constexpr ManifestWord<CacheUpdate> policyWords[] = {
    {CacheUpdate::Grows, "fixed"},  {CacheUpdate::Ring, "ring"},
    {CacheUpdate::Blocks, "block"}, {CacheUpdate::Static, "static"},
    {CacheUpdate::State, "state"},  {CacheUpdate::ReadOnly, "static"}};
constexpr ManifestWord<LengthFeed> feedWords[] = {
    {LengthFeed::PastLength, "past_length"},
    {LengthFeed::TotalLength, "total_length"},
    {LengthFeed::PastLengthPerBatch, "past_length_per_batch"},
    {LengthFeed::TotalLengthPerBatch, "total_length_per_batch"},
    {LengthFeed::TotalLengthMinusOne, "total_length_minus_one"},
    {LengthFeed::TotalLengthPerBatchMinusOne, "total_length_per_batch_minus_one"},
    {LengthFeed::NewLength, "new_length"},
    {LengthFeed::HasPast, "has_past"},
    {LengthFeed::NoPast, "no_past"},
    {LengthFeed::BlockTable, "block_table"}};
constexpr ManifestWord<InputFeed> inputFeedWords[] = {
    {InputFeed::Tokens, "token_ids"},           {InputFeed::Positions, "position_ids"},
    {InputFeed::VisibleKeys, "visible_keys"},   {InputFeed::HiddenKeys, "hidden_keys"},
    {InputFeed::AdditiveMask, "additive_mask"}, {InputFeed::Segments, "segment_ids"},
    {InputFeed::BatchRows, "batch_rows"},       {InputFeed::Any, "any"}};

} // namespace kvopt::ir
