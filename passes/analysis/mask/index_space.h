// The index variables of an attention mask, [B,H,S,T], and the known bounds of their ranges.
#pragma once

#include "ir/dims/dim.h"

#include <optional>
#include <string>

namespace kvopt::analysis {

/// One index into a mask of shape [B,H,S,T].
enum class IndexVariable : unsigned { Batch, Head, Row, Key };

/// A set of index variables, one bit each.
using IndexSet = unsigned;
inline constexpr IndexSet noIndices = 0;
inline constexpr IndexSet allIndices = 15;
constexpr IndexSet indexBit(IndexVariable variable) {
  return 1u << static_cast<unsigned>(variable);
}

/// Integers over the index variables b, h, i, j (with 0 <= b < B, 0 <= h < H, 0 <= i < S and 0 <= j
/// < T) and the symbols of the model are `Dim` polynomials: the variables are symbols with reserved
/// names. Every proof below may use the ranges, and that B, H, S and T are at least 1, because
/// there is no index otherwise.
class IndexSpace {
public:
  IndexSpace(ir::Dim batch, ir::Dim heads, ir::Dim rows, ir::Dim keys);

  static const ir::Dim& variable(IndexVariable variable);
  /// The polynomial; unknown if a model's symbol has a reserved name.
  static ir::Dim fromModel(const ir::Dim& dim);
  static IndexSet variablesOf(const ir::Dim& dim);
  /// Text with the plain names b, h, i, j.
  static std::string print(const ir::Dim& dim);

  const ir::Dim& extent(IndexVariable variable) const {
    return extents[static_cast<unsigned>(variable)];
  }
  /// The offset in the frontier of causal attention, j <= i + past(): T - S, unless batch rows have
  /// different lengths.
  ir::Dim past() const;
  /// The length of a batch row, as a symbol with a reserved name. It is not an index variable,
  /// although it may depend on b.
  static const ir::Dim& rowLength();
  /// Makes past() the batch row's length.
  void countFromRowLengths() { hasRowLengths = true; }

  /// Adds a fact that holds in every execution of the graph: `dim`, without index variables, is >=
  /// 0.
  void learnNonNegative(const ir::Dim& dim);

  /// Sound and incomplete, like `Dim`'s predicates.
  bool isNonNegative(const ir::Dim& dim) const;
  /// The largest value over all indices, if every factor's sign is known.
  std::optional<ir::Dim> largest(const ir::Dim& dim) const;

  struct Division {
    ir::Dim quotient;
    ir::Dim remainder;
  };
  /// dim == quotient * divisor + remainder with 0 <= remainder < divisor, if that can be proved.
  std::optional<Division> divide(const ir::Dim& dim, const ir::Dim& divisor) const;

  /// The space of those executions in which the symbol has that value.
  IndexSpace where(llvm::StringRef symbol, const ir::Dim& value) const;

  /// Whether the extents are equal.
  friend bool operator==(const IndexSpace& a, const IndexSpace& b);

private:
  std::optional<ir::Dim> atEnds(const ir::Dim& dim, bool upper) const;
  bool isNonNegativeAtOne(const ir::Dim& dim) const;

  ir::Dim extents[4];
  bool hasRowLengths = false;
  llvm::SmallVector<ir::Dim, 4> learned;
};

/// Name of a dim that is a single symbol.
std::optional<std::string> symbolOf(const ir::Dim& dim);

/// The factor of `variable` if `dim` is linear in it; the factor does not depend on the variable.
std::optional<ir::Dim> linearFactor(const ir::Dim& dim, IndexVariable variable);

} // namespace kvopt::analysis
