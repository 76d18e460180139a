// Extents of the IR as formulas, and formulas as extents.
#pragma once

#include "ir/dims/dim.h"
#include "ir/element_type.h"
#include "meaning/scalar.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include <unordered_map>
#include <vector>

namespace kvopt::meaning {

/// Formulas over the symbols of extents: the same symbol is the same formula. It grows with each
/// extent, so that a user makes a new one from time to time.
class Dims {
public:
  Formulas& formulas() { return formulas_; }

  /// An extent. One that is unknown is a symbol of its own, which `dimOf` never returns.
  Scalar extent(const ir::Dim& dim) { return {formulas_, dim.isUnknown() ? open() : of(dim)}; }
  /// An element of a list of integers. Nothing is known of one that is unknown.
  Scalar element(const ir::Dim& dim) {
    return {formulas_, dim.isUnknown() ? formulas_.unknown(Sort::Integer) : of(dim)};
  }

  /// The polynomial in symbols that an extent is; unknown if it is none, or if nothing says so. A
  /// quotient is one where the divisor divides its dividend, even where both could be 0: then any
  /// number fits. Integers of at least 32 bits that are computed from extents do not wrap.
  ir::Dim extentOf(Scalar extent) { return dimOf(extent, true); }
  /// The same of an element, with 0 and 1 for booleans. A divisor is not 0.
  ir::Dim elementOf(Scalar element) { return dimOf(element, false); }
  /// Whether a formula depends on elements of tensors, and not on extents alone.
  bool readsElements(Scalar scalar) const;

private:
  Expr of(const ir::Dim& dim);
  Expr polynomialOf(const ir::Dim& dim);
  Expr open();
  ir::Dim dimOf(Scalar scalar, bool isExtent);
  ir::Dim dimOf(Expr integer, bool isExtent, unsigned depth);
  ir::Dim dimOfAtom(Expr atom, bool isExtent, unsigned depth);
  /// A reduction of a few elements, as a formula of them.
  Expr unrolled(Expr reduction);

  struct HashDim {
    size_t operator()(const ir::Dim& dim) const { return hash_value(dim); }
  };

  Formulas formulas_;
  llvm::StringMap<Expr> symbols_;
  std::vector<ir::Dim> dims_;                              ///< by number of the symbol
  std::unordered_map<ir::Dim, Expr, HashDim> polynomials_; ///< with symbols
  llvm::DenseMap<uint32_t, ir::Dim> extents_, elements_;   ///< by formula
};

} // namespace kvopt::meaning
