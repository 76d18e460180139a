// Parsing of lowering options.
#include "passes/targets/lower_options.h"

#include "support/diagnostic.h"

#include "llvm/ADT/SmallVector.h"

namespace kvopt::targets {

llvm::Expected<std::optional<int64_t>> parseCapacity(llvm::StringRef text) {
  if (text == "dynamic")
    return std::nullopt;
  int64_t capacity = 0;
  if (text.getAsInteger(10, capacity) || capacity <= 0)
    return usageError("invalid capacity '{}'", text);
  return capacity;
}

llvm::Expected<std::vector<unsigned>> parseLayers(llvm::StringRef text, char separator) {
  std::vector<unsigned> layers;
  llvm::SmallVector<llvm::StringRef, 4> ranges;
  text.split(ranges, separator);
  constexpr unsigned mostLayers = 100000;
  for (llvm::StringRef range : ranges) {
    auto [firstText, lastText] = range.split('-');
    unsigned first = 0;
    unsigned last = 0;
    if (firstText.getAsInteger(10, first))
      return usageError("invalid layer or range of layers '{}'", range);
    if (range.contains('-') ? lastText.getAsInteger(10, last) : (last = first, false))
      return usageError("invalid layer or range of layers '{}'", range);
    if (last < first || last >= mostLayers)
      return usageError("invalid range of layers '{}'", range);
    for (unsigned layer = first; layer <= last; ++layer)
      layers.push_back(layer);
  }
  return layers;
}

} // namespace kvopt::targets
