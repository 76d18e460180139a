// SymbolSizes: what the symbolic extents of inputs are in a step.
#pragma once

#include "check/caches/cache_pairs.h"
#include "check/caches/step.h"
#include "ir/dims/dim.h"

#include "llvm/ADT/StringMap.h"

#include <optional>

namespace kvopt::check {

/// Whether a documented mask is of rows that are not the decoder's own, such as an encoder's.
bool isMaskOfOtherRows(const ir::Value& input);

/// Symbols whose size documented inputs and caches show.
class SymbolSizes {
public:
  SymbolSizes(DrivenModel before, DrivenModel after, const CachePairs& caches);

  /// Value of an extent of the first model; nullopt if it is unknown.
  std::optional<int64_t> of(const ir::Dim& dim, const Step& step) const;

private:
  enum class Size { Batch, Tokens, Past, Total };
  void bind(const ir::Value& input, size_t axis, Size size);
  void bindDocumented(const ir::Value& input);

  llvm::StringMap<Size> symbols;
};

} // namespace kvopt::check
