// Decoders that are composed of random spellings: what each computes is known from its making.
#pragma once

#include "ir/model.h"
#include "tests/generated/decoder_graph.h"

#include <memory>

namespace kvopt::generated {

struct GeneratedDecoder {
  std::unique_ptr<ir::Model> model;
  DecoderSizes sizes;
  std::set<std::string> spellings;
  /// The near miss that it has; null without one.
  const NearMiss* nearMiss = nullptr;
};

/// The sizes and choices of this seed, with `nearMiss` where that fits.
DecoderRecipe randomRecipe(uint64_t seed, const NearMiss* nearMiss);

/// Common spellings throughout but for these, in a decoder that has the parts that they spell.
DecoderRecipe plainRecipe(std::vector<std::string> spellings);

GeneratedDecoder generatedDecoder(const DecoderRecipe& recipe, const ir::OpRegistry& ops);

} // namespace kvopt::generated
