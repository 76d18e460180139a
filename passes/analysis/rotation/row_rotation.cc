// Matching pairs of columns.
#include "passes/analysis/rotation/row_rotation.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numbers>

namespace kvopt::analysis {

namespace {

using Kind = PositionFunction::Kind;

/// Tolerance for factors and angles that occur twice, because they may have been rounded to float.
constexpr double sameFactor = 1e-6;

bool isClose(double a, double b) {
  return std::abs(a - b) <= sameFactor * std::max({std::abs(a), std::abs(b), 1e-9});
}

/// The angle modulo a turn, in [-pi, pi].
double wrapped(double angle) { return std::remainder(angle, 2 * std::numbers::pi); }

using Parts = std::map<int64_t, double>; // factors by raw element

bool isSame(const Parts& a, const Parts& b, double factor) {
  return a.size() == b.size() && llvm::all_of(a, [&](const auto& part) {
           const auto other = b.find(part.first);
           return other != b.end() && isClose(part.second, factor * other->second);
         });
}

double tableEntry(const PositionFunction& column, int64_t row) {
  const FormTensor& table = *column.table;
  const int64_t inner = stridesOf(table.shape)[column.axis];
  const int64_t rows = table.shape[column.axis];
  return table.numbers[static_cast<size_t>((column.column / inner * rows + row) * inner +
                                           column.column % inner)];
}

/// 2^b for the narrowest floating-point type, with b bits, that represents the number: bfloat16,
/// float16, or float32.
double precisionOf(double number) {
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);
  for (double precision : {0x1p8, 0x1p11})
    if (fraction * precision == std::trunc(fraction * precision))
      return precision;
  return 0x1p24;
}

} // namespace

bool RowRotation::isRelativeTo(const RowRotation& other) const {
  if (theta.empty() && other.theta.empty())
    return true;
  return source == other.source && first == other.first && interleaved == other.interleaved &&
         theta.size() == other.theta.size() &&
         std::equal(theta.begin(), theta.end(), other.theta.begin(), isClose);
}

/// cos(theta p + offset) * cosines + sin(theta p + offset) * sines, with theta > 0; without an
/// angle if it does not depend on positions.
struct RotationFinder::Column {
  bool isRotated = false;
  double theta = 0;
  double offset = 0;
  unsigned source = 0;
  Parts cosines;
  Parts sines;
  int64_t partner = -1;
};

struct RotationFinder::Found {
  RowRotation rotation;
  std::vector<double> offsets; ///< offset of each pair
};

/// Whether two columns of a table are the cosine and the sine of one angle that grows with the row,
/// within the rounding of the table.
const RotationFinder::TableAngle& RotationFinder::angleOf(const PositionFunction& cosine,
                                                          const PositionFunction& sine) {
  TableAngle& angle =
      angles[{{cosine.table, cosine.axis, cosine.column}, {sine.table, sine.axis, sine.column}}];
  if (angle.factor == 0 || angle.isKnown)
    return angle;
  angle.factor = 0; // until it is known
  const int64_t rows = cosine.table->shape[cosine.axis];
  if (rows < 2 || rows != sine.table->shape[sine.axis])
    return angle;
  const auto at = [&](int64_t row) {
    return std::atan2(tableEntry(sine, row), tableEntry(cosine, row));
  };
  const double length = std::hypot(tableEntry(cosine, 0), tableEntry(sine, 0));
  if (length == 0)
    return angle;
  const double phase = at(0);
  double theta = wrapped(at(1) - phase);
  // Rows at twice the distance determine the angle twice as precisely.
  int64_t row = 2;
  for (; row < rows; row *= 2) {
    const double expected = static_cast<double>(row) * theta;
    theta = (expected + wrapped(at(row) - phase - expected)) / static_cast<double>(row);
  }
  // Angles are computed in f32; the precision of entries is estimated from their values.
  constexpr double angleRounding = 0x1p-21;
  double entryRounding = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (const PositionFunction* column : {&cosine, &sine})
      entryRounding = std::max(entryRounding, precisionOf(tableEntry(*column, i)));
  entryRounding = 2 / entryRounding;
  for (int64_t i = 0; i < rows; ++i) {
    const double expected = static_cast<double>(i) * theta + phase;
    const double off = std::max(std::abs(tableEntry(cosine, i) - length * std::cos(expected)),
                                std::abs(tableEntry(sine, i) - length * std::sin(expected)));
    if (!(off <= length * (angleRounding * (1 + std::abs(expected)) + entryRounding)))
      return angle;
  }
  angle = {theta, phase, length, true};
  return angle;
}

/// Sorts the terms of one column; empty, or the reason why it is not a column of a rotation.
std::string RotationFinder::readColumn(const PositionForm& form, Column& column) {
  const PositionFunction* entries[2] = {nullptr, nullptr};
  for (const FormTerm& term : form.terms()) {
    if (term.function.kind != Kind::Entry)
      continue;
    for (const PositionFunction*& entry : entries)
      if (!entry || *entry == term.function) {
        entry = &term.function;
        break;
      }
  }
  TableAngle angle;
  bool isSwapped = false;
  if (entries[0]) {
    if (!entries[1])
      return "a column is multiplied by one table only";
    if (entries[0]->offset != entries[1]->offset || entries[0]->source != entries[1]->source)
      return "the cosine and the sine are of different positions";
    // A table of cosines begins with its largest entry, unless it starts at another angle.
    angle = angleOf(*entries[0], *entries[1]);
    if (!angle.isKnown || std::abs(std::cos(angle.phase)) < std::abs(std::sin(angle.phase))) {
      angle = angleOf(*entries[1], *entries[0]);
      isSwapped = true;
    }
    if (!angle.isKnown)
      return "its tables are not cosines and sines of multiples of the position";
  }
  for (const FormTerm& term : form.terms()) {
    if (term.function.kind == Kind::One && column.isRotated)
      return "a column is only partly rotated";
    double theta = term.function.slope;
    double offset = term.function.offset;
    double factor = term.factor;
    bool isSine = term.function.kind == Kind::Sine;
    if (term.function.kind == Kind::Entry) {
      theta = angle.theta;
      offset = angle.phase + angle.theta * term.function.offset;
      factor *= angle.factor;
      isSine = (term.function == *entries[1]) != isSwapped;
    } else if (term.function.kind == Kind::One) {
      continue;
    } else if (term.function.kind == Kind::Position) {
      return "a column is multiplied by the position";
    }
    if (theta < 0) {
      theta = -theta;
      offset = -offset;
      factor *= isSine ? -1 : 1;
    }
    if (term.atom == noAtom)
      return "a function of the position is added to a column";
    if (!column.isRotated) {
      column.isRotated = true;
      column.theta = theta;
      column.offset = offset;
      column.source = term.function.source;
    } else if (!isClose(column.theta, theta) || column.source != term.function.source ||
               std::abs(wrapped(column.offset - offset)) > sameFactor * (1 + std::abs(offset))) {
      return "a column depends on more than one angle";
    }
    (isSine ? column.sines : column.cosines)[term.atom] += factor;
  }
  if (column.isRotated && !llvm::all_of(form.terms(), [](const FormTerm& term) {
        return term.function.kind != Kind::One;
      }))
    return "a column is only partly rotated";
  return "";
}

std::variant<RotationFinder::Found, std::string>
RotationFinder::rowRotation(llvm::ArrayRef<PositionForm> row) {
  std::vector<Column> columns(row.size());
  for (size_t i = 0; i < row.size(); ++i)
    if (std::string why = readColumn(row[i], columns[i]); !why.empty())
      return why;
  Found found;
  found.rotation.width = static_cast<int64_t>(row.size());
  struct Pair {
    int64_t low, high;
    double theta, offset;
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < columns.size(); ++i) {
    Column& low = columns[i];
    if (!low.isRotated || low.partner >= 0)
      continue;
    // The partner of y[i] = cos a + sin b is ±(sin a - cos b).
    double sign = 0;
    for (size_t j = i + 1; j < columns.size() && sign == 0; ++j) {
      Column& high = columns[j];
      if (!high.isRotated || high.partner >= 0 || high.source != low.source ||
          !isClose(high.theta, low.theta) ||
          std::abs(wrapped(high.offset - low.offset)) > sameFactor * (1 + std::abs(low.offset)))
        continue;
      for (double each : {1.0, -1.0})
        if (isSame(high.sines, low.cosines, each) && isSame(high.cosines, low.sines, -each))
          sign = each;
      if (sign == 0)
        continue;
      low.partner = static_cast<int64_t>(j);
      high.partner = static_cast<int64_t>(i);
    }
    if (sign == 0)
      return formatted("column {} has no partner that makes it a rotation", i);
    if (!pairs.empty() && found.rotation.source != low.source)
      return "columns are rotated by different positions";
    found.rotation.source = low.source;
    pairs.push_back({static_cast<int64_t>(i), low.partner, sign * low.theta, sign * low.offset});
  }
  if (pairs.empty())
    return found;
  const int64_t apart = pairs.front().high - pairs.front().low;
  if (!llvm::all_of(pairs, [&](const Pair& pair) { return pair.high - pair.low == apart; }))
    return "its pairs of columns are not equally far apart";
  const bool interleaved = apart == 1;
  const int64_t step = interleaved ? 2 : 1;
  const int64_t count = interleaved ? (pairs.back().low - pairs.front().low) / 2 + 1 : apart;
  RowRotation& rotation = found.rotation;
  rotation.interleaved = interleaved && rotation.width != 2;
  // Angles of 0 at the start do not change columns.
  rotation.first = std::min(pairs.front().low, rotation.width - 2 * count);
  if (interleaved)
    rotation.first = pairs.front().low;
  rotation.theta.assign(static_cast<size_t>(count), 0);
  found.offsets.assign(static_cast<size_t>(count), 0);
  for (const Pair& pair : pairs) {
    const int64_t place = pair.low - rotation.first;
    if (place < 0 || place % step != 0 || place / step >= count)
      return "its pairs of columns are neither neighbors nor halves";
    rotation.theta[static_cast<size_t>(place / step)] = pair.theta;
    found.offsets[static_cast<size_t>(place / step)] = pair.offset;
  }
  return found;
}

std::variant<RowRotation, std::string> RotationFinder::find(const FormTensor& rows,
                                                            llvm::ArrayRef<unsigned> order) {
  if (rows.shape.size() != 4 || order.size() != 4 || rows.shape[order[0]] != 1)
    return "its axes are not batch, heads, tokens, and columns";
  constexpr int64_t mostColumns = 4096;
  if (rows.shape[order[3]] > mostColumns)
    return "it has too many columns";
  const auto strides = stridesOf(rows.shape);
  std::optional<Found> first;
  std::optional<Found> before;
  for (int64_t head = 0; head < rows.shape[order[1]]; ++head)
    for (int64_t token = 0; token < rows.shape[order[2]]; ++token) {
      std::vector<PositionForm> row;
      for (int64_t column = 0; column < rows.shape[order[3]]; ++column)
        row.push_back(rows.at(head * strides[order[1]] + token * strides[order[2]] +
                              column * strides[order[3]]));
      auto found = rowRotation(row);
      if (auto* why = std::get_if<std::string>(&found))
        return std::move(*why);
      Found& own = std::get<Found>(found);
      if (!first)
        first = own;
      if (!own.rotation.isRelativeTo(first->rotation))
        return "its heads or tokens are rotated in different ways";
      // The next token's angle is one position further.
      if (token > 0)
        for (size_t i = 0; i < own.offsets.size(); ++i)
          if (std::abs(wrapped(own.offsets[i] - before->offsets[i] - own.rotation.theta[i])) > 1e-5)
            return "its positions do not increase by one from one token to the next";
      before = std::move(own);
    }
  if (!first)
    return "it has no rows";
  return first->rotation;
}

} // namespace kvopt::analysis
