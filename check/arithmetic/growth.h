// Growth: how integers and known numbers depend on the sizes of a step.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace kvopt::check {

/// Number of a growth in Growths.
using GrowthId = uint32_t;
/// Growth of what no size, position or id changes.
inline constexpr GrowthId fixedGrowth = 0;
/// The growths of a tensor's extents.
using ExtentIds = llvm::SmallVector<GrowthId, 4>;

/// Sizes of a step that grow independently of each other. Numbers from firstData on are those of
/// integers that no size determines, such as token ids.
enum class GrowingSize : uint8_t { Batch, Past, Tokens, Free, Other };
inline constexpr uint32_t firstData = 5;

/// A number as a function of sizes, ids and the indices of its tensor, between the places at which
/// an operator's behavior changes (Thresholds). A number whose growth is not traced is Untraced, so
/// that nothing may depend on it beyond the scope.
struct Growth {
  enum class Kind : uint8_t {
    Affine,     ///< a constant, and multiples of sizes, ids and indices
    Polynomial, ///< the same with products of two of them
    Untraced,   ///< any other function
  };
  Kind kind = Kind::Affine;
  /// Multiples of sizes and ids, by their numbers, in order.
  std::vector<std::pair<uint32_t, double>> multiples;
  /// Sums of the positive and of the negative multiples of indices.
  double rises = 0, falls = 0;
  double constant = 0;
  /// The divisor of quotients and remainders that are part of it; 0 without one, -1 for several.
  int64_t period = 0;
  /// How far quotients and remainders take the number from the multiples, at most.
  double wiggle = 0;
  /// Says which quotients and remainders these are.
  uint64_t parts = 0;
  bool isWhole = true; ///< whether it is an integer; of those with a period only
  /// Bounds at all sizes.
  double low = 0, high = 0;
  /// Of a product of two, if it is nothing else: the factors, without common divisors.
  std::vector<GrowthId> factors;
  std::string why; ///< what is not traced, after the description of the node

  bool isTraced() const { return kind != Kind::Untraced; }
  bool isAffine() const { return kind == Kind::Affine; }
  /// Whether no size, id or index changes the number.
  bool isFixed() const;
  /// Whether it is an integer at all sizes.
  bool isIntegral() const;
  bool operator<(const Growth& other) const;
};

/// All growths of a check, each once, and their arithmetic. A number of the fixed growth is a
/// constant of this value; the functions take the values for it. Not thread-safe.
class Growths {
public:
  Growths();

  const Growth& at(GrowthId id) const { return *all[id]; }
  /// The growth of a number, the number itself if it is fixed.
  Growth of(GrowthId id, double value) const;
  GrowthId keep(Growth growth);
  GrowthId untraced(const std::string& why);

  /// A size with a factor; one that is at least 0 or 1.
  GrowthId size(GrowingSize which, double factor = 1);
  /// An integer that no size determines, which `name` identifies.
  GrowthId data(const std::string& name);
  /// The same of a number of elements that are not counted, which a scope has few of.
  GrowthId count(const std::string& name);
  /// Whether such a number is part of a growth.
  bool hasCount(const Growth& growth) const;
  /// The index along an axis, times a factor, added to a number.
  GrowthId indexed(GrowthId start, double value, double factor);

  struct Number {
    GrowthId id = fixedGrowth;
    double value = 0;
  };
  GrowthId sum(Number a, Number b, double sign = 1);
  GrowthId product(Number a, Number b);
  /// a / b of integers that is truncated, or of other numbers.
  GrowthId quotient(Number a, Number b, bool isTruncated);
  /// The remainder of a by b, with the sign of b or, if `isTruncated`, of a.
  GrowthId remainder(Number a, Number b, bool isTruncated);
  /// The one of both that a maximum or a minimum chooses.
  GrowthId bound(Number chosen, Number other, bool isUpper);
  /// The integer near a number that the rounding `name` makes of it. Where halves become even, it
  /// is not traced.
  GrowthId rounded(Number a, uint64_t name, bool halvesBecomeEven);
  /// What remains of the extents `data` when those of `wanted` are taken out of their product.
  GrowthId rest(llvm::ArrayRef<Number> data, llvm::ArrayRef<Number> wanted);
  /// The growth in a type; untraced, with the reason, if the type may not hold the number.
  GrowthId stored(GrowthId id, ir::ElementType type);
  /// The growth of what `node` computes; one that is not traced names the node.
  GrowthId of(GrowthId id, llvm::ArrayRef<GrowthId> operands,
              llvm::function_ref<std::string()> node);

private:
  enum class Operation : uint8_t { Sum, Difference, Product, Quotient, Truncated, Remainder, Fmod };
  GrowthId memo(Operation operation, Number a, Number b);
  GrowthId compute(Operation operation, const Number& a, const Number& b);
  GrowthId productOf(const Growth& a, const Growth& b);
  GrowthId quotientOf(const Growth& a, double divisor, uint64_t rounding);
  GrowthId remainderOf(const Growth& a, double divisor, bool isTruncated);
  GrowthId primitive(Growth growth);
  bool takeFactors(const Number& number, std::vector<GrowthId>& factors) const;

  std::vector<const Growth*> all;
  std::map<Growth, GrowthId> known;
  llvm::StringMap<uint32_t> names;
  std::set<uint32_t> counts; ///< names of numbers that are not counted
  std::map<std::tuple<Operation, GrowthId, GrowthId, double, double>, GrowthId> results;
};

} // namespace kvopt::check
