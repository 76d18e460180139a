// Rows of functions of positions that are rotations, and near misses.
#include "passes/analysis/rotation/row_rotation.h"

#include <gmock/gmock.h>

#include <cmath>

namespace kvopt {
using namespace analysis;

namespace {

using Kind = PositionFunction::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

PositionForm waveOf(Kind kind, double slope, double token, double factor, int64_t atom) {
  PositionFunction function;
  function.kind = kind;
  function.slope = slope;
  function.offset = slope * token;
  return *PositionForm::product(PositionForm::function(function, factor), PositionForm::raw(atom));
}

/// cos a * first + sin a * second of the token's position plus `token`.
PositionForm turned(double slope, double token, int64_t first, double factor, int64_t second,
                    double other) {
  PositionForm form = waveOf(Kind::Cosine, slope, token, factor, first);
  form.add(waveOf(Kind::Sine, slope, token, other, second));
  return form;
}

/// Two tokens of one head, [1,1,2,columns]; `rowOf` makes the row of a token whose elements begin
/// with raw element `first`.
template <class RowOf> FormTensor twoTokens(RowOf&& rowOf) {
  FormTensor rows;
  std::vector<PositionForm> forms;
  for (int64_t token : {0, 1}) {
    const std::vector<PositionForm> row = rowOf(static_cast<double>(token), token * 100);
    rows.shape = {1, 1, 2, static_cast<int64_t>(row.size())};
    forms.insert(forms.end(), row.begin(), row.end());
  }
  rows.take(std::move(forms));
  return rows;
}

std::string refusalOf(const FormTensor& rows) {
  RotationFinder finder;
  auto found = finder.find(rows, {0, 1, 2, 3});
  const auto* why = std::get_if<std::string>(&found);
  return why ? *why : "";
}

RowRotation rotationOf(const FormTensor& rows) {
  RotationFinder finder;
  auto found = finder.find(rows, {0, 1, 2, 3});
  if (const auto* why = std::get_if<std::string>(&found)) {
    ADD_FAILURE() << *why;
    return {};
  }
  return std::get<RowRotation>(found);
}

TEST(RowRotation, HalvesAndNeighbors) {
  const RowRotation halves = rotationOf(twoTokens([](double token, int64_t a) {
    return std::vector<PositionForm>{
        turned(1, token, a, 1, a + 2, -1), turned(0.5, token, a + 1, 1, a + 3, -1),
        turned(1, token, a + 2, 1, a, 1), turned(0.5, token, a + 3, 1, a + 1, 1)};
  }));
  EXPECT_THAT(halves.theta, ElementsAre(1, 0.5));
  EXPECT_EQ(halves.first, 0);
  EXPECT_EQ(halves.width, 4);
  EXPECT_FALSE(halves.interleaved);
  const RowRotation neighbors = rotationOf(twoTokens([](double token, int64_t a) {
    return std::vector<PositionForm>{PositionForm::raw(a + 9), turned(1, token, a, 2, a + 1, -2),
                                     turned(1, token, a + 1, 2, a, 2),
                                     turned(0.5, token, a + 2, 1, a + 3, -1),
                                     turned(0.5, token, a + 3, 1, a + 2, 1)};
  }));
  EXPECT_THAT(neighbors.theta, ElementsAre(1, 0.5));
  EXPECT_EQ(neighbors.first, 1);
  EXPECT_TRUE(neighbors.interleaved);
  EXPECT_FALSE(halves.isRelativeTo(neighbors));
  EXPECT_TRUE(halves.isRelativeTo(halves));
}

TEST(RowRotation, TurnsTheOtherWay) {
  const RowRotation found = rotationOf(twoTokens([](double token, int64_t a) {
    return std::vector<PositionForm>{
        turned(1, token, a, 1, a + 2, 1), turned(-0.5, token, a + 1, 1, a + 3, -1),
        turned(1, token, a + 2, 1, a, -1), turned(-0.5, token, a + 3, 1, a + 1, 1)};
  }));
  EXPECT_THAT(found.theta, ElementsAre(-1, -0.5));
}

TEST(RowRotation, PairsWithoutAnAngleStay) {
  // The second of two pairs is not rotated: columns 1 and 3 are as they were.
  const RowRotation found = rotationOf(twoTokens([](double token, int64_t a) {
    return std::vector<PositionForm>{turned(1, token, a, 1, a + 2, -1), PositionForm::raw(a + 1),
                                     turned(1, token, a + 2, 1, a, 1), PositionForm::raw(a + 3)};
  }));
  EXPECT_THAT(found.theta, ElementsAre(1, 0));
  EXPECT_EQ(found.first, 0);
  const RowRotation nothing = rotationOf(twoTokens([](double, int64_t a) {
    return std::vector<PositionForm>{PositionForm::raw(a), PositionForm::raw(a + 1)};
  }));
  EXPECT_TRUE(nothing.theta.empty());
}

TEST(RowRotation, NearMisses) {
  const auto pair = [](PositionForm first, PositionForm second) {
    return std::vector<PositionForm>{std::move(first), std::move(second)};
  };
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                return pair(turned(1, t, a, 1, a + 1, 1), turned(1, t, a + 1, 1, a, 1));
              })),
              HasSubstr("no partner"));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                return pair(turned(1, t, a, 1, a + 1, -1), turned(1, t, a + 1, 2, a, 2));
              })),
              HasSubstr("no partner"));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                return pair(turned(1, t, a, 1, a + 1, -1), turned(0.5, t, a + 1, 1, a, 1));
              })),
              HasSubstr("no partner"));
  // Every second position only.
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                return pair(turned(1, 2 * t, a, 1, a + 1, -1), turned(1, 2 * t, a + 1, 1, a, 1));
              })),
              HasSubstr("do not increase by one"));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                PositionForm sum = turned(1, t, a, 1, a + 1, -1);
                sum.add(PositionForm::raw(a));
                return pair(sum, turned(1, t, a + 1, 1, a, 1));
              })),
              HasSubstr("only partly rotated"));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                PositionForm sum = turned(1, t, a, 1, a + 1, -1);
                sum.add(waveOf(Kind::Cosine, 0.5, t, 1, a));
                return pair(sum, turned(1, t, a + 1, 1, a, 1));
              })),
              HasSubstr("more than one angle"));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                PositionForm sum = turned(1, t, a, 1, a + 1, -1);
                sum.add(waveOf(Kind::Cosine, 1, t, 1, noAtom));
                return pair(sum, turned(1, t, a + 1, 1, a, 1));
              })),
              testing::Not(testing::IsEmpty()));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                return pair(waveOf(Kind::Position, 0, t, 1, a), PositionForm::raw(a + 1));
              })),
              HasSubstr("multiplied by the position"));
  EXPECT_THAT(refusalOf(twoTokens([&](double t, int64_t a) {
                return t == 0 ? pair(turned(1, t, a, 1, a + 1, -1), turned(1, t, a + 1, 1, a, 1))
                              : pair(PositionForm::raw(a), PositionForm::raw(a + 1));
              })),
              HasSubstr("different ways"));
}

/// Rows that multiply by entries of two tables of one column each.
FormTensor ofTables(const FormTensor& cosines, const FormTensor& sines) {
  return twoTokens([&](double token, int64_t a) {
    const auto entry = [&](const FormTensor& table, int64_t atom, double factor) {
      PositionFunction function;
      function.kind = Kind::Entry;
      function.table = &table;
      function.offset = token;
      return *PositionForm::product(PositionForm::function(function, factor),
                                    PositionForm::raw(atom));
    };
    PositionForm first = entry(cosines, a, 1);
    first.add(entry(sines, a + 1, -1));
    PositionForm second = entry(cosines, a + 1, 1);
    second.add(entry(sines, a, 1));
    return std::vector<PositionForm>{first, second};
  });
}

FormTensor waveColumn(int64_t rows, double theta, double factor, bool isSine, double phase = 0) {
  FormTensor table;
  table.shape = {rows, 1};
  for (int64_t row = 0; row < rows; ++row) {
    const double angle = static_cast<double>(row) * theta + phase;
    // As exporters store them.
    table.numbers.push_back(
        static_cast<float>(factor * (isSine ? std::sin(angle) : std::cos(angle))));
  }
  return table;
}

TEST(RowRotation, TablesHoldOneAngle) {
  for (double theta : {1.0, 0.37, 1e-4, 3.0})
    for (double factor : {1.0, 1.19})
      for (double phase : {0.0, 1.0}) {
        const FormTensor cosines = waveColumn(5000, theta, factor, false, phase);
        const FormTensor sines = waveColumn(5000, theta, factor, true, phase);
        const RowRotation found = rotationOf(ofTables(cosines, sines));
        ASSERT_EQ(found.theta.size(), 1U) << theta;
        EXPECT_NEAR(found.theta.front(), theta, 1e-8) << theta;
      }
}

TEST(RowRotation, TablesAreReadWhole) {
  FormTensor cosines = waveColumn(300, 0.37, 1, false);
  FormTensor sines = waveColumn(300, 0.37, 1, true);
  EXPECT_EQ(refusalOf(ofTables(cosines, sines)), "");
  cosines.numbers[299] += 0.1;
  EXPECT_THAT(refusalOf(ofTables(cosines, sines)), HasSubstr("not cosines and sines"));
  // Another frequency from some row on, as where an export stretches long contexts.
  FormTensor late = waveColumn(300, 0.37, 1, false);
  FormTensor lateSines = waveColumn(300, 0.37, 1, true);
  for (size_t row = 200; row < 300; ++row) {
    late.numbers[row] = std::cos(0.2 * static_cast<double>(row));
    lateSines.numbers[row] = std::sin(0.2 * static_cast<double>(row));
  }
  EXPECT_THAT(refusalOf(ofTables(late, lateSines)), HasSubstr("not cosines and sines"));
  const FormTensor other = waveColumn(300, 0.2, 1, true);
  const FormTensor clean = waveColumn(300, 0.37, 1, false);
  EXPECT_THAT(refusalOf(ofTables(clean, other)), HasSubstr("not cosines and sines"));
}

} // namespace
} // namespace kvopt
