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
    return usageError("the capacity '{}' is not a positive number of tokens", text);
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
      return usageError("'{}' is neither a layer nor a range of layers such as 0-3", range);
    if (range.contains('-') ? lastText.getAsInteger(10, last) : (last = first, false))
      return usageError("'{}' is neither a layer nor a range of layers such as 0-3", range);
    if (last < first || last >= mostLayers)
      return usageError("the range of layers '{}' ends before it begins, or beyond {}", range,
                        mostLayers - 1);
    for (unsigned layer = first; layer <= last; ++layer)
      layers.push_back(layer);
  }
  return layers;
}

llvm::Error noSuchLayer(unsigned layer, size_t count) {
  if (count == 0)
    return usageError("there is no layer {}: the model has no attention layers", layer);
  if (count == 1)
    return usageError("there is no layer {}: the only attention layer is 0", layer);
  return usageError("there is no layer {}: the attention layers are 0 to {}", layer, count - 1);
}

} // namespace kvopt::targets
