// PositionForm: a sum of constants, raw elements, and functions of a row's position.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>

namespace kvopt::analysis {

struct FormTensor;

/// A function of a position x. Positions from different sources, such as two inputs, are different
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
  /// Table of numbers, its axis of positions, and the index of the column over the table's other
  /// axes in row-major order. Equal columns of one table share the index of the first.
  const FormTensor* table = nullptr;
  unsigned axis = 0;
  int64_t column = 0;

  bool operator==(const PositionFunction&) const = default;
};

/// Marks a term without a raw element.
inline constexpr int64_t noAtom = -1;

/// factor * function(x) * raw element `atom`.
struct FormTerm {
  double factor = 0;
  PositionFunction function;
  int64_t atom = noAtom;
};

/// The form of one element of a tensor. Terms differ in their function or raw element, and no
/// factor is 0.
class PositionForm {
public:
  PositionForm() = default;
  static PositionForm number(double value);
  static PositionForm raw(int64_t atom);
  static PositionForm function(const PositionFunction& function, double factor = 1);

  llvm::ArrayRef<FormTerm> terms() const { return sum; }
  /// Value of a form without functions and raw elements.
  std::optional<double> asNumber() const;
  /// factor, source of x and offset of `factor * x + offset`.
  struct Line {
    double slope = 0;
    double offset = 0;
    unsigned source = 0;
  };
  /// The form as a line that is not constant; nullopt for other forms.
  std::optional<Line> asLine() const;
  /// Whether 1 is the only function.
  bool isPositionFree() const;

  void add(const PositionForm& other, double factor = 1);
  void scale(double factor);
  /// The product if it is a position form again; nullopt for products of two functions, or of two
  /// raw elements.
  static std::optional<PositionForm> product(const PositionForm& a, const PositionForm& b);
  /// cos or sin of a number or of a line.
  static std::optional<PositionForm> wave(const PositionForm& angle, PositionFunction::Kind kind);

private:
  void addTerm(const FormTerm& term);

  llvm::SmallVector<FormTerm, 1> sum;
};

} // namespace kvopt::analysis
