// PositionForm: a sum of constants, raw elements, and functions of a row's position.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>

namespace kvopt::analysis {

struct FormTensor;

/// A function of a position x. Positions of different sources (two inputs, say) are different
/// variables.
struct PositionFunction {
  enum class Kind {
    One,      ///< 1
    Position, ///< x
    Cosine,   ///< cos(slope * x + offset)
    Sine,     ///< sin(slope * x + offset)
    Entry     ///< entry x + offset of a column of `table`
  };
  Kind kind = Kind::One;
  unsigned source = 0;
  double slope = 0;
  double offset = 0;
  /// A table of numbers, its axis of positions, and the place of the column among the table's other
  /// axes in row-major order. Equal columns of one table have the place of the first.
  const FormTensor* table = nullptr;
  unsigned axis = 0;
  int64_t column = 0;

  bool operator==(const PositionFunction&) const = default;
};

/// A term without a raw element.
inline constexpr int64_t noAtom = -1;

/// factor * function(x) * raw element `atom`.
struct FormTerm {
  double factor = 0;
  PositionFunction function;
  int64_t atom = noAtom;
};

/// What one element of a tensor is. No two terms have the same function and raw element, and no
/// factor is 0.
class PositionForm {
public:
  PositionForm() = default;
  static PositionForm number(double value);
  static PositionForm raw(int64_t atom);
  static PositionForm function(const PositionFunction& function, double factor = 1);

  llvm::ArrayRef<FormTerm> terms() const { return sum; }
  /// The value of a form that has neither functions nor raw elements.
  std::optional<double> asNumber() const;
  /// factor, x's source and offset of `factor * x + offset`.
  struct Line {
    double slope = 0;
    double offset = 0;
    unsigned source = 0;
  };
  /// The form as a line that is not constant; nullopt if it is something else.
  std::optional<Line> asLine() const;
  /// No function but 1.
  bool isPositionFree() const;

  void add(const PositionForm& other, double factor = 1);
  void scale(double factor);
  /// The product, where it is again such a sum: nullopt for products of two functions, or of two
  /// raw elements.
  static std::optional<PositionForm> product(const PositionForm& a, const PositionForm& b);
  /// cos or sin of a number or of a line.
  static std::optional<PositionForm> wave(const PositionForm& angle, PositionFunction::Kind kind);

private:
  void addTerm(const FormTerm& term);

  llvm::SmallVector<FormTerm, 1> sum;
};

} // namespace kvopt::analysis
