// Delta debugging over a list.
#include "driver/reduce/chunks.h"

#include <algorithm>

namespace kvopt::driver {

llvm::Expected<std::vector<std::string>> removeInChunks(std::vector<std::string> items,
                                                        size_t largest, ChunkTrial trial) {
  for (size_t size = std::min(items.size(), largest); size > 0; size /= 2) {
    size = std::min(size, std::max<size_t>(items.size(), 1));
    bool removes = false;
    for (size_t end = items.size(); end > 0;) {
      const size_t begin = end - std::min(end, size);
      auto removed = trial(llvm::ArrayRef<std::string>(items).slice(begin, end - begin));
      if (!removed)
        return removed.takeError();
      if (*removed)
        items.erase(items.begin() + static_cast<std::ptrdiff_t>(begin),
                    items.begin() + static_cast<std::ptrdiff_t>(end));
      removes |= *removed;
      end = begin;
    }
    if (removes && size > 1)
      size = std::min(2 * size, 2 * items.size()); // The same size again.
  }
  return items;
}

} // namespace kvopt::driver
