// Tensor extents as integer polynomials in named symbols (P + S, B*T, 4*B), with predicates that
// hold for all values of the symbols.
#pragma once

#include "llvm/ADT/ArrayRef.h"
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

/// An integer polynomial in symbols, or unknown. Symbols are tensor extents: integers >= 0.
///
///  Values are canonical (each polynomial has one representation), immutable and cheap to copy;
///  copies may be used from several threads. Results that do not fit (a coefficient beyond int64_t,
///  more than `maxTerms` terms, a degree above `maxDegree`) become unknown.
///
///  Every `isKnown…` predicate is sound but incomplete: true is a proof for all values of the
///  symbols, false means only "cannot prove". Nothing can be proved about an unknown: it does not
///  even equal itself, since two occurrences may be different extents.
class Dim {
public:
  static constexpr size_t maxTerms = 64;
  static constexpr size_t maxDegree = 16;
  /// Maximum length of a symbol's name in bytes.
  static constexpr size_t maxNameBytes = 1024;
  /// Maximum length of a text that `parse` accepts, in bytes.
  static constexpr size_t maxTextBytes = 4096;

  /// An unknown extent.
  Dim() = default;
  static Dim unknown() { return Dim(); }
  /// An integer; negative values occur in differences.
  static Dim fixed(int64_t value);
  /// The symbol `name`, which may be any text. Unknown if `name` is empty or longer than
  /// `maxNameBytes`.
  static Dim symbol(llvm::StringRef name);

  bool isUnknown() const { return kind_ == Kind::Unknown; }
  /// Value of a constant; nullopt for unknown and for polynomials that contain symbols.
  std::optional<int64_t> value() const;

  bool isKnownEqual(const Dim& other) const;
  bool isKnownDifferent(const Dim& other) const;
  bool isKnownNonNegative() const;
  bool isKnownPositive() const;
  bool isKnownLess(const Dim& other) const;
  bool isKnownLessEqual(const Dim& other) const;

  /// A sum, difference or product with an unknown is unknown, even a product with zero.
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a);

  /// The polynomial q with q * divisor == *this: (B*T) / B is T. nullopt if there is none, if
  /// either side is unknown, or if the divisor could be 0 for positive symbols (0, P - S, S - 1).
  /// If a symbol of the divisor is 0, the quotient of the two values is undefined, but q * divisor
  /// == *this still holds.
  std::optional<Dim> dividedBy(const Dim& divisor) const;

  /// Calls `use` for each term of the polynomial: its coefficient and its symbols. A power repeats
  /// its symbol. An unknown and 0 have no terms.
  void forEachTerm(llvm::function_ref<void(int64_t, llvm::ArrayRef<llvm::StringRef>)> use) const;

  /// The symbols that occur, without duplicates, in byte order.
  llvm::SmallVector<std::string> symbols() const;

  /// Replaces all symbols simultaneously. A symbol for which `lookup` returns nullopt is kept.
  Dim substitute(llvm::function_ref<std::optional<Dim>(llvm::StringRef)> lookup) const;

  /// Value for given values of the symbols; nullopt if unknown, if `lookup` has no value for a
  /// symbol, or if int64_t overflows.
  std::optional<int64_t>
  evaluate(llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> lookup) const;

  /// Text such as "past + sequence", "4*batch", "x*x - 1", or "?" for unknown. Terms are sorted by
  /// degree (highest first), then by name in byte order. `parse` reads the text back, unless a
  /// symbol's name is not an identifier. Such a name is printed verbatim if it is the whole
  /// polynomial, and in braces ("2*{a / b}") otherwise.
  std::string str() const;

  /// Parses identifiers ([A-Za-z_][A-Za-z0-9_.:]*), decimal integers, + - * and parentheses, or "?"
  /// alone. nullopt for other text, for text that is too long or too deeply nested, and for
  /// polynomials that do not fit.
  static std::optional<Dim> parse(llvm::StringRef text);

  /// Equality of representation. Unlike `isKnownEqual`, unknown == unknown.
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
