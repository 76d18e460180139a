// A tensor extent as an integer polynomial in named symbols (P + S, B*T, 4*B), with predicates that
// hold for every value the symbols can take.
#pragma once

#include "support/format.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace kvopt::ir {

/// An integer polynomial in symbols, or unknown. Symbols stand for tensor extents: integers >= 0.
///
/// Values are canonical (one representation a polynomial), immutable and cheap to copy; copies may
/// be used from several threads. Results that do not fit (a coefficient beyond int64_t, more than
/// `maxTerms` terms, a degree above `maxDegree`) are unknown, never wrong.
///
/// Every `isKnown…` predicate is sound and incomplete: true is a proof for all symbol values, false
/// means only "cannot prove". An unknown takes part in no proof: it is not even known equal to
/// itself, since two occurrences may stand for two extents.
class Dim {
public:
  static constexpr size_t maxTerms = 64;
  static constexpr size_t maxDegree = 16;
  /// The longest symbol name, in bytes.
  static constexpr size_t maxNameBytes = 1024;
  /// The longest text that `parse` accepts, in bytes.
  static constexpr size_t maxTextBytes = 4096;

  /// An unknown extent.
  Dim() = default;
  static Dim unknown() { return Dim(); }
  /// Any integer; negative values occur in differences.
  static Dim fixed(int64_t value);
  /// The symbol `name`, any text. Unknown when `name` is empty or longer than `maxNameBytes`.
  static Dim symbol(llvm::StringRef name);

  bool isUnknown() const { return kind_ == Kind::Unknown; }
  /// The value of a constant; nullopt for unknown and for anything that depends on a symbol.
  std::optional<int64_t> value() const;

  bool isKnownEqual(const Dim& other) const;
  bool isKnownDifferent(const Dim& other) const;
  bool isKnownNonNegative() const;
  bool isKnownPositive() const;
  bool isKnownLess(const Dim& other) const;
  bool isKnownLessEqual(const Dim& other) const;

  /// Unknown absorbs, in a product with zero too.
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a);

  /// The polynomial q with q * divisor == *this as polynomials: (B*T) / B is T. Nullopt when there
  /// is none, when either side is unknown, and when the divisor could be 0 although every symbol is
  /// positive (0, P - S, S - 1). Where a symbol of the divisor is 0 the quotient of the two values
  /// is undefined, but q * divisor == *this still holds.
  std::optional<Dim> dividedBy(const Dim& divisor) const;

  /// The symbols that occur, each once, in byte order.
  llvm::SmallVector<std::string> symbols() const;

  /// Replaces all symbols at the same time; a symbol for which `lookup` gives nullopt stays.
  Dim substitute(llvm::function_ref<std::optional<Dim>(llvm::StringRef)> lookup) const;

  /// The value at one point; nullopt when unknown, when `lookup` has no value for a symbol, and on
  /// overflow of int64_t.
  std::optional<int64_t>
  evaluate(llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> lookup) const;

  /// "past + sequence", "4*batch", "x*x - 1", "?" for unknown: higher degrees first, then names in
  /// byte order. `parse` reads it back, unless a symbol's name is no identifier. Such a name stands
  /// verbatim when the polynomial is that one symbol, and in braces ("2*{a / b}") otherwise.
  std::string str() const;

  /// Reads identifiers ([A-Za-z_][A-Za-z0-9_.:]*), decimal integers, + - * and parentheses, or "?"
  /// alone. Nullopt for anything else, for text that is too long or too deeply nested, and for
  /// polynomials that do not fit.
  static std::optional<Dim> parse(llvm::StringRef text);

  /// Equality of representation: unlike `isKnownEqual`, unknown == unknown.
  friend bool operator==(const Dim& a, const Dim& b);
  friend bool operator!=(const Dim& a, const Dim& b) { return !(a == b); }
  friend llvm::hash_code hash_value(const Dim& dim);

private:
  struct Polynomial;
  enum class Kind : uint8_t { Unknown, Constant, Polynomial };

  Kind kind_ = Kind::Unknown;
  int64_t constant_ = 0;
  std::shared_ptr<const Polynomial> polynomial_;
};

} // namespace kvopt::ir

template <> struct fmt::formatter<kvopt::ir::Dim> : fmt::formatter<std::string_view> {
  template <class Context> auto format(const kvopt::ir::Dim& dim, Context& context) const {
    return fmt::formatter<std::string_view>::format(dim.str(), context);
  }
};
