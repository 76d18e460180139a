// Sequential order of parallel moves: first overwrites rows that are not needed, then resolves
// cycles.
#include "runtime/cache/row_moves.h"

#include <cassert>

namespace kvopt::runtime {

std::vector<RowMove> rowMoves(llvm::ArrayRef<int64_t> sources) {
  auto count = static_cast<int64_t>(sources.size());
  auto source = [&](int64_t row) { return sources[static_cast<size_t>(row)]; };
  std::vector<int64_t> readers(sources.size(), 0);
  std::vector<bool> pending(sources.size(), false);
  for (int64_t row = 0; row < count; ++row) {
    assert(source(row) >= 0 && source(row) < count);
    if (source(row) == row)
      continue;
    pending[static_cast<size_t>(row)] = true;
    ++readers[static_cast<size_t>(source(row))];
  }
  std::vector<RowMove> moves;
  std::vector<int64_t> free;
  for (int64_t row = 0; row < count; ++row)
    if (pending[static_cast<size_t>(row)] && readers[static_cast<size_t>(row)] == 0)
      free.push_back(row);
  while (!free.empty()) {
    int64_t row = free.back();
    free.pop_back();
    moves.push_back({source(row), row});
    pending[static_cast<size_t>(row)] = false;
    auto read = static_cast<size_t>(source(row));
    if (--readers[read] == 0 && pending[read])
      free.push_back(source(row));
  }
  for (int64_t first = 0; first < count; ++first) {
    if (!pending[static_cast<size_t>(first)])
      continue;
    moves.push_back({first, RowMove::aside});
    int64_t row = first;
    for (; source(row) != first; row = source(row)) {
      moves.push_back({source(row), row});
      pending[static_cast<size_t>(row)] = false;
    }
    moves.push_back({RowMove::aside, row});
    pending[static_cast<size_t>(row)] = false;
  }
  return moves;
}

} // namespace kvopt::runtime
