// RowRotation: rotation of pairs of a row's columns by the row's position.
#pragma once

#include "passes/analysis/rotation/form_tensor.h"

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// Pairs of columns of a row at position p, rotated by p * theta: for the pair (i, j)
///
///   y[i] = k (cos(p theta + phi) u - sin(p theta + phi) v)
///   y[j] = k (sin(p theta + phi) u + cos(p theta + phi) v)
///
/// where u and v do not depend on p.
struct RowRotation {
  int64_t width = 0; ///< columns of a row
  int64_t first = 0; ///< the first rotated column
  bool interleaved = false;
  /// Radians per position for each pair: pair i is (first + i, first + i + pairs), or (first + 2 i,
  /// first + 2 i + 1) if interleaved. Empty if nothing is rotated.
  std::vector<double> theta;
  /// Source of the positions that rotate.
  unsigned source = 0;

  /// Whether the products of rows of both depend only on the difference of their positions.
  bool isRelativeTo(const RowRotation& other) const;
};

/// Finds rotations, and caches results for tables.
class RotationFinder {
public:
  /// The rotation of the rows of `rows`, whose axes are `order` = batch, heads, tokens, columns.
  /// Otherwise the reason why they are not rotations by a multiple of the position that is the same
  /// for each head. A table must hold cosines and sines of multiples of the position in all its
  /// rows.
  std::variant<RowRotation, std::string> find(const FormTensor& rows,
                                              llvm::ArrayRef<unsigned> order);

private:
  struct TableAngle {
    double theta = 0;
    double phase = 0;
    double factor = 1;
    bool isKnown = false;
  };
  struct Column;
  struct Found;

  std::variant<Found, std::string> rowRotation(llvm::ArrayRef<PositionForm> row);
  std::string readColumn(const PositionForm& form, Column& column);
  const TableAngle& angleOf(const PositionFunction& cosine, const PositionFunction& sine);

  /// Key of a table, an axis and a column, for cosines and sines.
  using TableColumn = std::tuple<const FormTensor*, unsigned, int64_t>;
  std::map<std::pair<TableColumn, TableColumn>, TableAngle> angles;
};

} // namespace kvopt::analysis
