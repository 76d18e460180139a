// Every rearrangement of up to five rows, with and without duplicates.
#include "runtime/cache/row_moves.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace runtime;

namespace {

TEST(RowMoves, NothingToDo) { EXPECT_TRUE(rowMoves({0, 1, 2}).empty()); }

TEST(RowMoves, DuplicatesNeedNoSpace) {
  EXPECT_EQ(rowMoves({2, 2, 2}), (std::vector<RowMove>{{2, 1}, {2, 0}}));
}

TEST(RowMoves, SwapsAreCycles) {
  EXPECT_EQ(rowMoves({1, 0}),
            (std::vector<RowMove>{{0, RowMove::aside}, {1, 0}, {RowMove::aside, 1}}));
}

TEST(RowMoves, EveryRearrangementOfUpToFiveRows) {
  for (int64_t count = 1; count <= 5; ++count) {
    int64_t choices = 1;
    for (int64_t i = 0; i < count; ++i)
      choices *= count;
    for (int64_t choice = 0; choice < choices; ++choice) {
      std::vector<int64_t> sources;
      for (int64_t rest = choice, i = 0; i < count; ++i, rest /= count)
        sources.push_back(rest % count);
      std::vector<int64_t> rows;
      size_t changed = 0;
      for (int64_t row = 0; row < count; ++row) {
        rows.push_back(row);
        changed += sources[static_cast<size_t>(row)] != row ? 1u : 0u;
      }
      int64_t aside = -7;
      size_t cycles = 0;
      std::vector<RowMove> moves = rowMoves(sources);
      for (const RowMove& move : moves) {
        int64_t& from = move.from == RowMove::aside ? aside : rows[static_cast<size_t>(move.from)];
        int64_t& to = move.to == RowMove::aside ? aside : rows[static_cast<size_t>(move.to)];
        to = from;
        cycles += move.to == RowMove::aside ? 1u : 0u;
      }
      EXPECT_EQ(rows, sources);
      EXPECT_EQ(moves.size(), changed + cycles);
    }
  }
}

} // namespace
} // namespace kvopt
