// Binding of symbols to sizes.
#include "check/caches/symbol_sizes.h"

#include "ir/manifest/documented_inputs.h"

namespace kvopt::check {

bool isMaskOfOtherRows(const ir::Value& input) {
  const ir::DocumentedInput* known = ir::documentedInput(input);
  return known && known->feed == ir::InputFeed::VisibleKeys &&
         known->axes[known->rank - 1] == ir::DocumentedExtent::Other;
}

void SymbolSizes::bind(const ir::Value& input, size_t axis, Size size) {
  if (!input.type().hasRank() || axis >= input.type().rank())
    return;
  const auto names = input.type().shape()[axis].symbols();
  if (names.size() == 1 && ir::Dim::symbol(names[0]) == input.type().shape()[axis])
    symbols.try_emplace(names[0], size);
}

void SymbolSizes::bindDocumented(const ir::Value& input) {
  const ir::DocumentedInput* known = ir::documentedInput(input);
  for (unsigned axis = 0; known && axis < known->rank; ++axis)
    switch (known->axes[axis]) {
    case ir::DocumentedExtent::Batch:
      bind(input, axis, Size::Batch);
      break;
    case ir::DocumentedExtent::NewTokens:
      bind(input, axis, Size::Tokens);
      break;
    case ir::DocumentedExtent::AllTokens:
      bind(input, axis, Size::Total);
      break;
    case ir::DocumentedExtent::Other:
      break;
    }
}

SymbolSizes::SymbolSizes(DrivenModel before, DrivenModel after, const CachePairs& caches) {
  for (const bool isAfter : {false, true})
    for (const auto& input : (isAfter ? after : before).model.graph().inputs()) {
      bindDocumented(*input);
      const CacheInput* known = caches.input(isAfter, input->name());
      const ir::ManifestCache* cache = known ? known->cache : nullptr;
      if (cache && cache->update() == ir::CacheUpdate::Grows && !cache->isOneBuffer() && !isAfter)
        bind(*input, static_cast<size_t>(cache->sequenceAxis), Size::Past);
      // The first axis of a pool is its blocks.
      if (auto layout = cache && !cache->isPool() ? cache->layout() : std::nullopt;
          layout && !layout->hasFoldedHeads())
        if (auto axis = layout->axisOf('B'))
          bind(*input, *axis, Size::Batch);
    }
}

std::optional<int64_t> SymbolSizes::of(const ir::Dim& dim, const Step& step) const {
  if (dim.isUnknown())
    return std::nullopt;
  return dim.evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
    auto known = symbols.find(name);
    if (known == symbols.end())
      return std::nullopt;
    switch (known->second) {
    case Size::Batch:
      return step.batch;
    case Size::Tokens:
      return step.tokens;
    case Size::Past:
      return step.past;
    case Size::Total:
      break;
    }
    return step.total();
  });
}

} // namespace kvopt::check
