// Polynomials of the IR and of formulas are alike but for what a symbol is.
#include "meaning/extents/dims.h"

#include "support/format.h"
#include "support/string_ends.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

namespace {

// No file has a symbol with this byte: names of axes are text.
constexpr llvm::StringRef openMark = "\1";

bool isOpen(const ir::Dim& dim) {
  return llvm::any_of(dim.symbols(),
                      [](llvm::StringRef name) { return startsWith(name, openMark); });
}

} // namespace

Expr Dims::of(const ir::Dim& dim) {
  if (std::optional<int64_t> value = dim.value())
    return formulas_.integer(*value);
  Expr& known = polynomials_[dim];
  if (!known)
    known = polynomialOf(dim);
  return known;
}

Expr Dims::polynomialOf(const ir::Dim& dim) {
  Expr sum = formulas_.integer(0);
  dim.forEachTerm([&](int64_t coefficient, llvm::ArrayRef<llvm::StringRef> names) {
    Expr term = formulas_.integer(coefficient);
    for (llvm::StringRef name : names) {
      Expr& symbol = symbols_[name];
      if (!symbol) {
        symbol = formulas_.symbol(name, {0, mostExtent});
        dims_.resize(static_cast<size_t>(formulas_.arena()[symbol].value) + 1);
        dims_.back() = ir::Dim::symbol(name);
      }
      term = formulas_.multiply(term, symbol);
    }
    sum = formulas_.add(sum, term);
  });
  return sum;
}

Expr Dims::open() {
  const Expr symbol = formulas_.symbol({"?", {0, mostExtent}, /*isOpaque=*/true});
  const auto number = static_cast<size_t>(formulas_.arena()[symbol].value);
  dims_.resize(number + 1);
  dims_.back() = ir::Dim::symbol(formatted("{}{}", openMark.str(), number));
  return symbol;
}

ir::Dim Dims::dimOf(Scalar scalar, bool isExtent) {
  if (scalar.isBoolean()) {
    const std::optional<bool> known = formulas_.booleanOf(scalar.expr());
    return known ? ir::Dim::fixed(*known ? 1 : 0) : ir::Dim::unknown();
  }
  if (scalar.isReal())
    return ir::Dim::unknown();
  if (std::optional<int64_t> value = scalar.number())
    return ir::Dim::fixed(*value);
  const auto [entry, isNew] = (isExtent ? extents_ : elements_).try_emplace(scalar.expr().id());
  if (isNew) {
    ir::Dim dim = dimOf(scalar.expr(), isExtent, 8); // which does not change the map
    if (!isOpen(dim))
      entry->second = std::move(dim);
  }
  return entry->second;
}

ir::Dim Dims::dimOf(Expr integer, bool isExtent, unsigned depth) {
  if (std::optional<int64_t> value = formulas_.integerOf(integer))
    return ir::Dim::fixed(*value);
  if (depth == 0)
    return ir::Dim::unknown();
  const Polynomials& polynomials = formulas_.polynomials();
  ir::Dim sum = ir::Dim::fixed(0);
  for (const Term& term : polynomials.terms(integer)) {
    ir::Dim product = ir::Dim::fixed(term.coefficient);
    for (Expr atom : polynomials.factors(term.monomial))
      product = product * dimOfAtom(atom, isExtent, depth - 1);
    sum = sum + product;
    if (sum.isUnknown())
      break;
  }
  return sum;
}

ir::Dim Dims::dimOfAtom(Expr atom, bool isExtent, unsigned depth) {
  const Node& node = formulas_.arena()[atom];
  const llvm::ArrayRef<Expr> operands = formulas_.arena().operands(atom);
  switch (node.op) {
  case Op::Symbol: {
    const auto number = static_cast<size_t>(node.value);
    return number < dims_.size() ? dims_[number] : ir::Dim::unknown();
  }
  case Op::Quotient: {
    const ir::Dim dividend = dimOf(operands[0], isExtent, depth),
                  divisor = dimOf(operands[1], isExtent, depth);
    if (!isExtent && !divisor.isKnownPositive())
      return ir::Dim::unknown();
    return dividend.dividedBy(divisor).value_or(ir::Dim::unknown());
  }
  case Op::Wrapped: {
    const auto type = static_cast<ir::ElementType>(node.detail);
    const ir::Dim dim = dimOf(operands[0], isExtent, depth);
    const bool isWide = ir::bitWidth(type).value_or(0) >= 32;
    return isWide && !dim.value() && (!ir::isUnsigned(type) || dim.isKnownNonNegative())
               ? dim
               : ir::Dim::unknown();
  }
  case Op::Reduce:
    if (const Expr all = unrolled(atom))
      return dimOf(all, isExtent, depth);
    return ir::Dim::unknown();
  default:
    return ir::Dim::unknown();
  }
}

Expr Dims::unrolled(Expr reduction) {
  const Node& node = formulas_.arena()[reduction];
  const std::optional<int64_t> count =
      formulas_.integerOf(formulas_.arena().operands(reduction)[0]);
  if (!count || *count < 1 || *count > 64)
    return Expr();
  const Expr index = formulas_.index("k", formulas_.integer(*count));
  const Expr body = formulas_.opened(reduction, 1, index);
  Expr all;
  for (int64_t k = 0; k < *count; ++k) {
    Substitution substitution(formulas_);
    substitution.set(index, formulas_.integer(k));
    const Expr each = substitution(body);
    switch (static_cast<Reduction>(node.detail)) {
    case Reduction::Sum:
      all = all ? formulas_.add(all, each) : each;
      break;
    case Reduction::Product:
      all = all ? formulas_.multiply(all, each) : each;
      break;
    case Reduction::Minimum:
      all = all ? formulas_.minimum(all, each) : each;
      break;
    case Reduction::Maximum:
      all = all ? formulas_.maximum(all, each) : each;
      break;
    default:
      return Expr();
    }
  }
  return all;
}

bool Dims::readsElements(Scalar scalar) const {
  llvm::SmallVector<Expr> pending{scalar.expr()};
  llvm::DenseSet<uint32_t> seen;
  while (!pending.empty()) {
    const Expr expr = pending.pop_back_val();
    if (!seen.insert(expr.id()).second)
      continue;
    const Op op = formulas_.arena()[expr].op;
    if (op == Op::Element || op == Op::Unknown)
      return true;
    llvm::append_range(pending, formulas_.arena().operands(expr));
  }
  return false;
}

} // namespace kvopt::meaning
