// Construction of mask expressions: predicates.
#include "passes/analysis/mask/mask_expression.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

constexpr unsigned maxImplicationDepth = 3;
constexpr size_t maxPairwise = 24;
constexpr unsigned maxChanges = 64;
constexpr unsigned maxEffort = 400000;
Dim one() { return Dim::fixed(1); }

bool isAtom(ExprRef e) {
  return e->is(Kind::AtLeastZero) || e->is(Kind::IsZero) || e->is(Kind::IsNotZero);
}

} // namespace

ExprRef MaskExpressions::boolean(bool value) {
  MaskExpression expression;
  expression.kind = value ? Kind::True : Kind::False;
  expression.isBoolean = true;
  return unique(std::move(expression));
}

ExprRef MaskExpressions::atLeastZero(const Dim& dim) {
  if (dim.isUnknown())
    return opaque(nullptr, true);
  if (range.isNonNegative(dim))
    return boolean(true);
  if (range.isNonNegative(-dim - one()))
    return boolean(false);
  MaskExpression expression;
  expression.kind = Kind::AtLeastZero;
  expression.isBoolean = true;
  expression.dim = dim;
  expression.variables = IndexSpace::variablesOf(dim);
  return unique(std::move(expression));
}

ExprRef MaskExpressions::isZero(const Dim& dim) {
  if (dim.isUnknown())
    return opaque(nullptr, true);
  if (dim.value())
    return boolean(*dim.value() == 0);
  if (range.isNonNegative(dim - one()) || range.isNonNegative(-dim - one()))
    return boolean(false);
  // Where one side of 0 is out of reach, the other side decides.
  if (range.isNonNegative(dim))
    return atLeastZero(-dim);
  if (range.isNonNegative(-dim))
    return atLeastZero(dim);
  MaskExpression expression;
  expression.kind = Kind::IsZero;
  expression.isBoolean = true;
  expression.dim = dim;
  expression.variables = IndexSpace::variablesOf(dim);
  return unique(std::move(expression));
}

ExprRef MaskExpressions::isNotZero(const Dim& dim) {
  ExprRef zero = isZero(dim);
  if (!zero->is(Kind::IsZero))
    return negate(zero);
  MaskExpression expression;
  expression.kind = Kind::IsNotZero;
  expression.isBoolean = true;
  expression.dim = dim;
  expression.variables = IndexSpace::variablesOf(dim);
  return unique(std::move(expression));
}

ExprRef MaskExpressions::negate(ExprRef predicate) {
  switch (predicate->kind) {
  case Kind::True:
    return boolean(false);
  case Kind::False:
    return boolean(true);
  case Kind::AtLeastZero:
    return atLeastZero(-predicate->dim - one());
  case Kind::IsZero:
    return isNotZero(predicate->dim);
  case Kind::IsNotZero:
    return isZero(predicate->dim);
  case Kind::Not:
    return predicate->operands[0];
  case Kind::And:
  case Kind::Or: {
    if (auto known = negations.find(predicate); known != negations.end())
      return known->second;
    // The dual of a simple form is simple.
    ExprVector parts;
    for (ExprRef part : predicate->operands)
      parts.push_back(negate(part));
    ExprRef dual = rawList(predicate->is(Kind::And) ? Kind::Or : Kind::And, parts);
    negations[predicate] = dual;
    return dual;
  }
  default:
    break;
  }
  MaskExpression expression;
  expression.kind = Kind::Not;
  expression.isBoolean = true;
  expression.operands = {predicate};
  return unique(std::move(expression));
}

ExprRef MaskExpressions::rawList(Kind kind, llvm::SmallVectorImpl<ExprRef>& parts) {
  llvm::sort(parts, [](ExprRef a, ExprRef b) { return a->id < b->id; });
  if (kind != Kind::Sum)
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.size() == 1)
    return parts.front();
  MaskExpression expression;
  expression.kind = kind;
  expression.isBoolean = kind != Kind::Sum;
  expression.operands.assign(parts.begin(), parts.end());
  return unique(std::move(expression));
}

bool MaskExpressions::isAtLeast(ExprRef a, ExprRef b) const {
  if (!b->is(Kind::Integer))
    return false;
  if (a->is(Kind::Integer))
    return range.isNonNegative(a->dim - b->dim);
  // 0 or its operand.
  return a->is(Kind::Apply) && a->name == "Broadcast" && range.isNonNegative(-b->dim) &&
         isAtLeast(a->operands[0], b);
}

bool MaskExpressions::impliesAt(ExprRef a, ExprRef b, unsigned depth) const {
  ++effort;
  if (a == b || a->is(Kind::False) || b->is(Kind::True))
    return true;
  if (isAtom(a) && isAtom(b)) {
    bool isEqual = a->is(Kind::IsZero);
    if (a->is(Kind::IsNotZero))
      return b->is(Kind::IsNotZero) && (a->dim + b->dim).value() == 0;
    switch (b->kind) {
    case Kind::AtLeastZero:
      return range.isNonNegative(b->dim - a->dim) ||
             (isEqual && range.isNonNegative(b->dim + a->dim));
    case Kind::IsZero:
      return isEqual && (a->dim + b->dim).value() == 0;
    default:
      return range.isNonNegative(b->dim - a->dim - one()) ||
             range.isNonNegative(-b->dim - a->dim - one()) ||
             (isEqual && (range.isNonNegative(b->dim + a->dim - one()) ||
                          range.isNonNegative(a->dim - b->dim - one())));
    }
  }
  // x <= y implies x' <= y for every x' <= x, whatever y is; and so on.
  if (a->is(Kind::Apply) && b->is(Kind::Apply) && a->name == b->name &&
      (a->name == "Less" || a->name == "LessOrEqual") &&
      ((a->operands[1] == b->operands[1] && isAtLeast(a->operands[0], b->operands[0])) ||
       (a->operands[0] == b->operands[0] && isAtLeast(b->operands[1], a->operands[1]))))
    return true;
  if (depth == maxImplicationDepth)
    return false;
  auto isImplied = [&](ExprRef part) { return impliesAt(a, part, depth + 1); };
  auto doesImply = [&](ExprRef part) { return impliesAt(part, b, depth + 1); };
  if (b->is(Kind::And) && llvm::all_of(b->operands, isImplied))
    return true;
  if (b->is(Kind::Or) && llvm::any_of(b->operands, isImplied))
    return true;
  if (a->is(Kind::And) && llvm::any_of(a->operands, doesImply))
    return true;
  return a->is(Kind::Or) && llvm::all_of(a->operands, doesImply);
}

bool MaskExpressions::implies(ExprRef a, ExprRef b) const { return impliesAt(a, b, 0); }

bool MaskExpressions::excludesAt(ExprRef a, ExprRef b, unsigned depth) const {
  ++effort;
  if (depth > maxImplicationDepth)
    return false;
  if (a->is(Kind::Not))
    return a->operands[0] == b;
  if (b->is(Kind::Not))
    return b->operands[0] == a;
  auto excludesB = [&](ExprRef part) { return excludesAt(part, b, depth + 1); };
  auto excludesA = [&](ExprRef part) { return excludesAt(a, part, depth + 1); };
  if (a->is(Kind::And))
    return llvm::any_of(a->operands, excludesB);
  if (a->is(Kind::Or))
    return llvm::all_of(a->operands, excludesB);
  if (b->is(Kind::And))
    return llvm::any_of(b->operands, excludesA);
  if (b->is(Kind::Or))
    return llvm::all_of(b->operands, excludesA);
  if (!isAtom(a) || !isAtom(b))
    return false;
  if (b->is(Kind::IsNotZero))
    return a->is(Kind::IsZero) &&
           ((a->dim - b->dim).value() == 0 || (a->dim + b->dim).value() == 0);
  if (a->is(Kind::IsNotZero))
    return excludesAt(b, a, depth + 1);
  // a >= 0 and b >= 0 have a sum that is not negative.
  if (range.isNonNegative(-a->dim - b->dim - one()))
    return true;
  return (a->is(Kind::IsZero) && range.isNonNegative(a->dim - b->dim - one())) ||
         (b->is(Kind::IsZero) && range.isNonNegative(b->dim - a->dim - one()));
}

/// What is left of a predicate where all of `given` hold.
ExprRef MaskExpressions::under(ExprList given, ExprRef predicate, unsigned depth) {
  for (ExprRef fact : given) {
    if (implies(fact, predicate))
      return boolean(true);
    if (excludes(fact, predicate))
      return boolean(false);
  }
  bool isAnd = predicate->is(Kind::And);
  if ((!isAnd && !predicate->is(Kind::Or)) || depth == maxImplicationDepth)
    return predicate;
  ExprVector parts;
  bool isChanged = false;
  for (ExprRef part : predicate->operands) {
    parts.push_back(under(given, part, depth + 1));
    isChanged |= parts.back() != part;
  }
  if (!isChanged)
    return predicate;
  return isAnd ? conjunction(parts) : disjunction(parts);
}

/// One change to a conjunction's parts; false when there is nothing left to change.
bool MaskExpressions::simplify(llvm::SmallVectorImpl<ExprRef>& parts) {
  for (unsigned i = 0; i < parts.size(); ++i)
    for (unsigned k = 0; k < parts.size(); ++k) {
      ExprRef a = parts[i];
      ExprRef b = parts[k];
      if (i == k)
        continue;
      if (implies(a, b)) {
        parts.erase(parts.begin() + k);
        return true;
      }
      if (excludes(a, b)) {
        parts.assign(1, boolean(false));
        return true;
      }
      // a >= 0 and a != 0.
      if (a->is(Kind::AtLeastZero) && b->is(Kind::IsNotZero) &&
          ((a->dim - b->dim).value() == 0 || (a->dim + b->dim).value() == 0)) {
        parts[i] = atLeastZero(a->dim - one());
        parts.erase(parts.begin() + k);
        return true;
      }
    }
  for (ExprRef& part : parts) {
    if (!part->is(Kind::Or))
      continue;
    ExprVector others;
    llvm::copy_if(parts, std::back_inserter(others), [&](ExprRef other) { return other != part; });
    if (ExprRef left = under(others, part, 0); left != part) {
      part = left;
      return true;
    }
  }
  return false;
}

ExprRef MaskExpressions::conjunction(ExprList given) {
  ExprVector parts;
  auto flatten = [&](ExprList list) {
    for (ExprRef part : list)
      if (part->is(Kind::And))
        llvm::append_range(parts, part->operands);
      else
        parts.push_back(part);
  };
  flatten(given);
  unsigned changes = 0;
  for (bool changed = true; changed;) {
    llvm::erase_if(parts, [](ExprRef part) { return part->is(Kind::True); });
    if (llvm::any_of(parts, [](ExprRef part) { return part->is(Kind::False); }))
      return boolean(false);
    if (parts.empty())
      return boolean(true);
    changed = parts.size() <= maxPairwise && changes++ < maxChanges && effort < maxEffort &&
              simplify(parts);
    if (changed) {
      ExprVector once(parts.begin(), parts.end());
      parts.clear();
      flatten(once);
    }
  }
  return rawList(Kind::And, parts);
}

ExprRef MaskExpressions::disjunction(ExprList given) {
  ExprVector negated;
  for (ExprRef part : given)
    negated.push_back(negate(part));
  return negate(conjunction(negated));
}

ExprRef MaskExpressions::nonZero(ExprRef a) {
  if (a->isBoolean)
    return a;
  if (a->is(Kind::Integer))
    return isNotZero(a->dim);
  if (a->is(Kind::Number))
    return boolean(true);
  ExprRef tree = expanded(a, ElementType::Float);
  if (tree->is(Kind::Select))
    if (ExprRef split = distribute(tree, number(0), [&](ExprRef p, ExprRef) { return nonZero(p); }))
      return split;
  if (tree->is(Kind::Apply) && tree->name == "ToFloat")
    return nonZero(tree->operands[0]);
  return apply("NonZero", {tree}, true);
}

ExprRef MaskExpressions::compare(llvm::StringRef name, ExprRef a, ExprRef b) {
  a = expanded(a, ElementType::Float);
  b = expanded(b, ElementType::Float);
  bool isLess = name == "Less";
  if (a->is(Kind::Integer) && b->is(Kind::Integer)) {
    Dim distance = b->dim - a->dim;
    if (name == "Equal")
      return isZero(distance);
    return atLeastZero(isLess ? distance - one() : distance);
  }
  auto x = a->constant();
  auto y = b->constant();
  if (x && y)
    return boolean(name == "Equal" ? *x == *y : isLess ? *x < *y : *x <= *y);
  if (ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return compare(name, p, q); }))
    return tree;
  // The larger of two is below where both are, and above where one is.
  auto isExtreme = [](ExprRef e, llvm::StringRef which) {
    return e->is(Kind::Apply) && e->name == which &&
           llvm::all_of(e->operands, [](ExprRef part) { return part->is(Kind::Integer); });
  };
  bool isMaximum = isExtreme(a, "Max") || isExtreme(b, "Max");
  bool isMinimum = isExtreme(a, "Min") || isExtreme(b, "Min");
  bool isLeft = isExtreme(a, "Max") || isExtreme(a, "Min");
  ExprRef rest = isLeft ? b : a;
  if (name != "Equal" && isMaximum != isMinimum && rest->is(Kind::Integer)) {
    ExprRef extreme = isLeft ? a : b;
    auto compareWith = [&](ExprRef part) {
      return isLeft ? compare(name, part, rest) : compare(name, rest, part);
    };
    ExprRef first = compareWith(extreme->operands[0]);
    ExprRef second = compareWith(extreme->operands[1]);
    return isLeft == isMaximum ? both(first, second) : either(first, second);
  }
  return apply(name, {a, b}, true);
}

ExprRef MaskExpressions::less(ExprRef a, ExprRef b) { return compare("Less", a, b); }

ExprRef MaskExpressions::lessOrEqual(ExprRef a, ExprRef b) { return compare("LessOrEqual", a, b); }

ExprRef MaskExpressions::equal(ExprRef a, ExprRef b) {
  if (a->isBoolean && b->isBoolean)
    return either(both(a, b), both(negate(a), negate(b)));
  if (b->constant() == 0.0 && !a->constant())
    return negate(nonZero(a));
  if (a->constant() == 0.0 && !b->constant())
    return negate(nonZero(b));
  if (a->id > b->id)
    std::swap(a, b);
  return compare("Equal", a, b);
}

} // namespace kvopt::analysis
