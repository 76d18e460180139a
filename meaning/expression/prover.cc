// An atom that is bounded is replaced by the bound that makes the whole smallest, the latest first:
// the extent of an index is older than the index. What is left are sizes, and facts to subtract.
#include "meaning/expression/prover.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace kvopt::meaning {

namespace {

constexpr int64_t noLow = Range::noLow, noHigh = Range::noHigh;

bool isOpen(int64_t end) { return end == noLow || end == noHigh; }

/// A sum of two ends of one side, where `open` is no bound. What does not fit is cut off.
int64_t endOfSum(int64_t a, int64_t b, int64_t open) {
  int64_t sum = 0;
  if (a == open || b == open)
    return open;
  if (__builtin_add_overflow(a, b, &sum))
    return a < 0 ? noLow : noHigh;
  return sum;
}

int64_t endOfProduct(int64_t a, int64_t b) {
  if (a == 0 || b == 0)
    return 0;
  int64_t product = 0;
  if (isOpen(a) || isOpen(b) || __builtin_mul_overflow(a, b, &product))
    return (a < 0) == (b < 0) ? noHigh : noLow;
  return product;
}

Range sumOf(const Range& a, const Range& b) {
  return {endOfSum(a.low, b.low, noLow), endOfSum(a.high, b.high, noHigh)};
}

Range productOf(const Range& a, const Range& b) {
  const int64_t corners[] = {endOfProduct(a.low, b.low), endOfProduct(a.low, b.high),
                             endOfProduct(a.high, b.low), endOfProduct(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

} // namespace

Range Prover::rangeOf(Expr integer, unsigned nesting) {
  Range all{0, 0};
  for (const Term& term : polynomials_.terms(integer)) {
    Range range{term.coefficient, term.coefficient};
    for (Expr atom : polynomials_.factors(term.monomial))
      range = productOf(range, rangeOfAtom(atom, nesting));
    all = sumOf(all, range);
  }
  return all;
}

Range Prover::rangeOfAtom(Expr atom, unsigned nesting) {
  const Node node = arena_[atom];
  const llvm::ArrayRef<Expr> operands = arena_.operands(atom);
  if (node.op == Op::Symbol || node.op == Op::Element)
    return names_[node.value].range;
  if (nesting == 0)
    return {};
  --nesting;
  switch (node.op) {
  case Op::Index:
    return {0, endOfSum(rangeOf(operands[0], nesting).high, -1, noHigh)};
  case Op::Bound:
    return {0, noHigh};
  case Op::Remainder: {
    const Range divisor = rangeOf(operands[1], nesting);
    if (divisor.low < 0)
      return {};
    return {0, divisor.high == 0 ? 0 : endOfSum(divisor.high, -1, noHigh)};
  }
  case Op::Quotient: {
    const Range a = rangeOf(operands[0], nesting), b = rangeOf(operands[1], nesting);
    if (b.low < 0 || a.low < 0)
      return {};
    return {0, a.high};
  }
  case Op::Minimum:
  case Op::Maximum: {
    Range all = rangeOf(operands[0], nesting);
    for (Expr operand : operands.drop_front()) {
      const Range next = rangeOf(operand, nesting);
      const bool isLeast = node.op == Op::Minimum;
      all = {isLeast ? std::min(all.low, next.low) : std::max(all.low, next.low),
             isLeast ? std::min(all.high, next.high) : std::max(all.high, next.high)};
    }
    return all;
  }
  case Op::Select: {
    const Range a = rangeOf(operands[1], nesting), b = rangeOf(operands[2], nesting);
    return {std::min(a.low, b.low), std::max(a.high, b.high)};
  }
  case Op::Reduce: {
    const Range body = rangeOf(operands[1], nesting);
    if (static_cast<Reduction>(node.detail) != Reduction::Sum)
      return {};
    const Range count = rangeOf(operands[0], nesting);
    return productOf({std::max<int64_t>(count.low, 0), std::max<int64_t>(count.high, 0)}, body);
  }
  default:
    return {};
  }
}

bool Prover::isNonNegative(Expr integer, Facts::Path path) {
  if (std::optional<int64_t> value = polynomials_.valueOf(integer))
    return *value >= 0;
  if (auto known = known_.find({integer.id(), path}); known != known_.end())
    return known->second;
  if (nesting_ == mostNesting)
    return false;
  if (nesting_ == 0)
    limit_ = steps_ + mostSteps;
  // Whoever asks the same within the proof gets no answer, for now.
  known_[{integer.id(), path}] = false;
  ++nesting_;
  const bool isProved = prove(integer, path, mostFacts, mostDepth);
  --nesting_;
  // A proof within a proof has less to work with: that it failed says nothing.
  if (isProved || nesting_ == 0)
    known_[{integer.id(), path}] = isProved;
  else
    known_.erase({integer.id(), path});
  return isProved;
}

bool Prover::prove(Expr integer, Facts::Path path, unsigned facts, unsigned depth) {
  if (std::optional<int64_t> value = polynomials_.valueOf(integer))
    return *value >= 0;
  if (depth == 0 || steps_ >= limit_)
    return false;
  ++steps_;
  if (rangeOf(integer).low >= 0)
    return true;
  bool isDecided = false;
  if (proveByBound(integer, path, facts, depth, isDecided))
    return true;
  if (!isDecided && llvm::all_of(polynomials_.atoms(integer),
                                 [&](Expr atom) { return arena_[atom].op == Op::Symbol; })) {
    // A size is its least value and a rest that is not negative.
    Expr shifted = integer;
    for (Expr atom : polynomials_.atoms(integer))
      if (const int64_t low = names_[arena_[atom].value].range.low; low > 0)
        shifted =
            polynomials_.replaced(shifted, atom, polynomials_.sum(atom, polynomials_.number(low)));
      else if (low < 0)
        return proveByFacts(integer, path, facts, depth);
    if (llvm::all_of(polynomials_.terms(shifted),
                     [](const Term& term) { return term.coefficient >= 0; }))
      return true;
  }
  return proveByFacts(integer, path, facts, depth);
}

bool Prover::proveByBound(Expr integer, Facts::Path path, unsigned facts, unsigned depth,
                          bool& isDecided) {
  const Expr one = polynomials_.number(1);
  const llvm::SmallVector<Expr> atoms = polynomials_.atoms(integer);
  for (Expr atom : llvm::reverse(atoms)) {
    const Op op = arena_[atom].op;
    if (op == Op::Symbol || op == Op::Bound)
      continue;
    const auto linear = polynomials_.linearIn(integer, atom);
    if (!linear)
      continue;
    // Whether the whole grows with the atom, or falls.
    bool isUp = false;
    if (std::optional<int64_t> factor = polynomials_.valueOf(linear->factor))
      isUp = *factor > 0;
    else if (isNonNegative(linear->factor, path))
      isUp = true;
    else if (!isNonNegative(polynomials_.scaled(linear->factor, -1), path))
      continue;
    const llvm::ArrayRef<Expr> operands = arena_.operands(atom);
    auto at = [&](Expr bound) {
      return polynomials_.sum(linear->rest, polynomials_.product(linear->factor, bound));
    };
    auto proves = [&](Expr bound, Facts::Path under) {
      return prove(at(bound), under, facts, depth - 1);
    };
    const Expr zero = polynomials_.number(0);
    isDecided = true;
    switch (op) {
    case Op::Index:
      return proves(isUp ? zero : polynomials_.sum(operands[0], one, -1), path);
    case Op::Remainder:
      if (!isPositive(operands[1], path))
        break;
      return proves(isUp ? zero : polynomials_.sum(operands[1], one, -1), path);
    case Op::Quotient:
      if (!isPositive(operands[1], path))
        break;
      return proveQuotient(atom, *linear, isUp, path, facts, depth);
    case Op::Minimum:
    case Op::Maximum: {
      auto each = [&](Expr operand) { return proves(operand, path); };
      return (op == Op::Minimum) == isUp ? llvm::all_of(operands, each)
                                         : llvm::any_of(operands, each);
    }
    case Op::Select:
      return proves(operands[1], facts_.with(path, operands[0], true)) &&
             proves(operands[2], facts_.with(path, operands[0], false));
    default: {
      const Range range = rangeOfAtom(atom, mostNesting);
      const int64_t end = isUp ? range.low : range.high;
      if (!isOpen(end))
        return proves(polynomials_.number(end), path);
    }
    }
    isDecided = false;
  }
  return false;
}

/// With q the quotient a/d: d*q is between a - d + 1 and a. The whole is an integer, so d times it
/// is at least 0 where it is more than -d.
bool Prover::proveQuotient(Expr atom, const Polynomials::Linear& linear, bool isUp,
                           Facts::Path path, unsigned facts, unsigned depth) {
  const Expr a = arena_.operands(atom)[0], d = arena_.operands(atom)[1];
  if (isUp && isNonNegative(a, path) && prove(linear.rest, path, facts, depth - 1))
    return true;
  const Expr less = polynomials_.sum(d, polynomials_.number(-1));
  const Expr bound = isUp ? polynomials_.sum(a, less, -1) : a;
  const Expr scaled = polynomials_.sum(polynomials_.product(linear.factor, bound),
                                       polynomials_.product(d, linear.rest));
  return prove(polynomials_.sum(scaled, less), path, facts, depth - 1);
}

bool Prover::proveByFacts(Expr integer, Facts::Path path, unsigned facts, unsigned depth) {
  if (facts == 0)
    return false;
  const llvm::SmallVector<Term> terms = polynomials_.terms(integer);
  for (Expr fact : facts_.nonNegative(path))
    // As often as a monomial of it occurs.
    for (const Term& term : polynomials_.terms(fact)) {
      const auto same =
          llvm::find_if(terms, [&](const Term& each) { return each.monomial == term.monomial; });
      if (same == terms.end() || polynomials_.factors(term.monomial).empty())
        continue;
      if (same->coefficient == noLow)
        continue;
      const int64_t times = same->coefficient / term.coefficient;
      if (times > 0 && prove(polynomials_.sum(integer, fact, -times), path, facts - 1, depth - 1))
        return true;
    }
  return false;
}

} // namespace kvopt::meaning
