// HiddenPositions: positions of a batch without tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvopt::runtime {

/// Positions of padding for each batch row. Other positions hold tokens.
class HiddenPositions {
public:
  /// Hides the position in that batch row. It must follow all positions that are already hidden
  /// there.
  void hide(size_t row, int64_t position) {
    if (row >= rows.size())
      rows.resize(row + 1);
    rows[row].push_back(position);
  }

  bool contain(int64_t row, int64_t position) const {
    const auto index = static_cast<size_t>(row);
    return index < rows.size() &&
           std::binary_search(rows[index].begin(), rows[index].end(), position);
  }
  /// Number of hidden positions before `position`.
  int64_t countBefore(int64_t row, int64_t position) const {
    const auto index = static_cast<size_t>(row);
    if (index >= rows.size())
      return 0;
    const std::vector<int64_t>& hidden = rows[index];
    return std::lower_bound(hidden.begin(), hidden.end(), position) - hidden.begin();
  }

private:
  std::vector<std::vector<int64_t>> rows; ///< ascending
};

} // namespace kvopt::runtime
