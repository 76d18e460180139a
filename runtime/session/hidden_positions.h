// HiddenPositions: which positions of a batch hold no token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvopt::runtime {

/// Positions that padding takes, for each batch row. Positions that are not named hold tokens.
class HiddenPositions {
public:
  /// Hides the position in that batch row, after all that are hidden there so far.
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
  /// How many positions before `position` are hidden.
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
