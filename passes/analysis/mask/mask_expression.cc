// Construction of mask expressions: uniqueness, numbers, arithmetic and predicates.
#include "passes/analysis/mask/mask_expression.h"

#include "support/half.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

constexpr unsigned maxExpressionDepth = 64;
constexpr size_t maxOperands = 32;
constexpr unsigned maxLeaves = 16;

double heldAs(double value, ElementType type) {
  switch (type) {
  case ElementType::Float:
    return static_cast<double>(static_cast<float>(value));
  case ElementType::Float16:
    return static_cast<double>(f16ToFloat(floatToF16(static_cast<float>(value))));
  case ElementType::BFloat16:
    return static_cast<double>(bf16ToFloat(floatToBf16(static_cast<float>(value))));
  default:
    return value;
  }
}

bool isSameNumber(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

} // namespace

std::optional<double> MaskExpression::constant() const {
  if (kind == Kind::Number)
    return number;
  if (kind == Kind::Integer)
    if (std::optional<int64_t> integer = dim.value())
      return static_cast<double>(*integer);
  return std::nullopt;
}

bool holdsIndices(ElementType type) {
  // 32-bit floats are exact up to 2^24, which bounds the lengths that a proof covers; 16-bit floats
  // are not exact at common lengths.
  return type == ElementType::Int32 || type == ElementType::Int64 || type == ElementType::Float ||
         type == ElementType::Double;
}

ExprRef MaskExpressions::unique(MaskExpression expression) {
  using namespace llvm;
  auto hash = static_cast<unsigned>(static_cast<size_t>(hash_combine(
      static_cast<int>(expression.kind), expression.isBoolean, hash_value(expression.dim),
      std::bit_cast<uint64_t>(expression.number), expression.value, expression.name,
      hash_combine_range(expression.operands.begin(), expression.operands.end()))));
  hash &= 0x7FFFFFFF; // away from DenseMap's empty and tombstone keys
  SmallVector<unsigned, 1>& bucket = byHash[hash];
  for (unsigned id : bucket) {
    const MaskExpression& other = storage[id];
    if (other.kind == expression.kind && other.isBoolean == expression.isBoolean &&
        other.dim == expression.dim && isSameNumber(other.number, expression.number) &&
        other.value == expression.value && other.name == expression.name &&
        other.operands == expression.operands)
      return &other;
  }
  for (ExprRef operand : expression.operands) {
    expression.variables |= operand->variables;
    expression.depth = std::max(expression.depth, operand->depth + 1);
  }
  if (expression.depth > maxExpressionDepth || expression.operands.size() > maxOperands)
    return opaque(expression.value, expression.isBoolean, expression.variables);
  expression.id = static_cast<unsigned>(storage.size());
  bucket.push_back(expression.id);
  storage.push_back(std::move(expression));
  return &storage.back();
}

ExprRef MaskExpressions::opaque(const Value* value, bool isBoolean, IndexSet variables) {
  MaskExpression expression;
  expression.value = value;
  expression.isBoolean = isBoolean;
  expression.variables = variables;
  expression.id = static_cast<unsigned>(storage.size());
  storage.push_back(std::move(expression));
  return &storage.back();
}

ExprRef MaskExpressions::integer(const Dim& dim) {
  if (dim.isUnknown())
    return opaque(nullptr, false);
  MaskExpression expression;
  expression.kind = Kind::Integer;
  expression.dim = dim;
  expression.variables = IndexSpace::variablesOf(dim);
  return unique(std::move(expression));
}

ExprRef MaskExpressions::number(double value) {
  constexpr double exactIntegers = 9007199254740992.0; // 2^53
  if (value == std::trunc(value) && std::abs(value) < exactIntegers)
    return integer(Dim::fixed(static_cast<int64_t>(value)));
  if (std::isnan(value))
    return opaque(nullptr, false, noIndices);
  MaskExpression expression;
  expression.kind = Kind::Number;
  expression.number = value;
  return unique(std::move(expression));
}

ExprRef MaskExpressions::number(double value, ElementType type) {
  return number(heldAs(value, type));
}

ExprRef MaskExpressions::leaf(const Value& value, ExprList index) {
  MaskExpression expression;
  expression.kind = Kind::Leaf;
  expression.isBoolean = value.type().elementType() == ElementType::Bool;
  expression.value = &value;
  expression.operands.assign(index.begin(), index.end());
  return unique(std::move(expression));
}

ExprRef MaskExpressions::apply(llvm::StringRef name, ExprList operands, bool isBoolean) {
  MaskExpression expression;
  expression.kind = Kind::Apply;
  expression.isBoolean = isBoolean;
  expression.name = name;
  expression.operands.assign(operands.begin(), operands.end());
  return unique(std::move(expression));
}

namespace {

/// `b` where the condition holds, if that fixes a symbol to one value; symbols are at least 0.
Dim whereItHolds(ExprRef condition, const Dim& b) {
  if (!condition->is(Kind::AtLeastZero) && !condition->is(Kind::IsZero))
    return b;
  auto symbols = condition->dim.symbols();
  if (symbols.size() != 1)
    return b;
  const Dim symbol = Dim::symbol(symbols.front());
  std::optional<int64_t> value;
  if (condition->dim == -symbol)
    value = 0;
  else if (condition->is(Kind::IsZero)) {
    value = (symbol - condition->dim).value();
    if (!value)
      value = (symbol + condition->dim).value();
  }
  if (!value)
    return b;
  return b.substitute([&](llvm::StringRef name) {
    return name == symbols.front() ? std::optional<Dim>(Dim::fixed(*value)) : std::nullopt;
  });
}

} // namespace

ExprRef MaskExpressions::select(ExprRef condition, ExprRef a, ExprRef b) {
  if (condition->is(Kind::True) || a == b)
    return a;
  if (condition->is(Kind::False))
    return b;
  if (a->isBoolean != b->isBoolean)
    return opaque(nullptr, a->isBoolean);
  if (a->is(Kind::True) || b->is(Kind::False))
    return a->is(Kind::True) ? either(condition, b) : both(condition, a);
  if (a->is(Kind::False) || b->is(Kind::True))
    return a->is(Kind::False) ? both(negate(condition), b) : either(negate(condition), a);
  if (a->isBoolean)
    return either(both(condition, a), both(negate(condition), b));
  // One formula with a special first element, as in padded differences of neighbors.
  if (a->is(Kind::Integer) && b->is(Kind::Integer) && whereItHolds(condition, b->dim) == a->dim)
    return b;
  // Nested branches that the condition decides.
  auto decided = [&](ExprRef given, ExprRef tree) -> ExprRef {
    if (implies(given, tree->operands[0]))
      return tree->operands[1];
    return excludes(given, tree->operands[0]) ? tree->operands[2] : nullptr;
  };
  if (a->is(Kind::Select))
    if (ExprRef branch = decided(condition, a))
      return select(condition, branch, b);
  if (b->is(Kind::Select))
    if (ExprRef branch = decided(negate(condition), b))
      return select(condition, a, branch);
  auto branches = [](ExprRef tree, ExprRef x, ExprRef y) {
    return tree->is(Kind::Select) && tree->operands[1] == x && tree->operands[2] == y;
  };
  // One select, if three ends have two values.
  if (a->is(Kind::Select)) {
    ExprRef inner = a->operands[0];
    if (branches(a, a->operands[1], b))
      return select(both(condition, inner), a->operands[1], b);
    if (branches(a, b, a->operands[2]))
      return select(both(condition, negate(inner)), a->operands[2], b);
  }
  if (b->is(Kind::Select)) {
    ExprRef inner = b->operands[0];
    if (branches(b, a, b->operands[2]))
      return select(either(condition, inner), a, b->operands[2]);
    if (branches(b, b->operands[1], a))
      return select(either(condition, negate(inner)), a, b->operands[1]);
  }
  // Where x != 0 is false, x is 0.
  auto tests = [](ExprRef test, ExprRef x) {
    return test->is(Kind::Apply) && test->name == "NonZero" && test->operands[0] == x;
  };
  if (tests(condition, b))
    return select(condition, a, number(0));
  if (condition->is(Kind::Not) && tests(condition->operands[0], a))
    return select(condition, number(0), b);
  MaskExpression expression;
  expression.kind = Kind::Select;
  expression.operands = {condition, a, b};
  expression.leaves = a->leaves + b->leaves;
  return unique(std::move(expression));
}

ExprRef MaskExpressions::distribute(ExprRef a, ExprRef b,
                                    llvm::function_ref<ExprRef(ExprRef, ExprRef)> f) {
  if (a->leaves * b->leaves > maxLeaves)
    return nullptr;
  if (a->is(Kind::Select))
    return select(a->operands[0], f(a->operands[1], b), f(a->operands[2], b));
  if (b->is(Kind::Select))
    return select(b->operands[0], f(a, b->operands[1]), f(a, b->operands[2]));
  return nullptr;
}

ExprRef MaskExpressions::add(ExprRef a, ExprRef b, ElementType type) {
  if (a->is(Kind::Integer) && b->is(Kind::Integer) && holdsIndices(type))
    if (Dim sum = a->dim + b->dim; !sum.isUnknown())
      return integer(sum);
  auto x = a->constant();
  auto y = b->constant();
  if (x && y)
    return number(*x + *y, type);
  if (x == 0.0)
    return b;
  if (y == 0.0)
    return a;
  if ((x && b->is(Kind::Select)) || (y && a->is(Kind::Select)))
    if (ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return add(p, q, type); }))
      return tree;
  ExprVector terms;
  if (!isInteger(type)) { // floating-point addition does not associate
    terms.append({a, b});
    return rawList(Kind::Sum, terms);
  }
  Dim offset = Dim::fixed(0);
  auto take = [&](ExprRef term) {
    if (term->is(Kind::Integer) && !(offset + term->dim).isUnknown())
      offset = offset + term->dim;
    else
      terms.push_back(term);
  };
  for (ExprRef side : {a, b}) {
    if (side->is(Kind::Sum))
      llvm::for_each(side->operands, take);
    else
      take(side);
  }
  if (offset.value() != 0)
    terms.push_back(integer(offset));
  return terms.size() == 1 ? terms.front() : rawList(Kind::Sum, terms);
}

ExprRef MaskExpressions::subtract(ExprRef a, ExprRef b, ElementType type) {
  return add(a, multiply(b, number(-1), type), type);
}

ExprRef MaskExpressions::multiply(ExprRef a, ExprRef b, ElementType type) {
  if (a->is(Kind::Integer) && b->is(Kind::Integer) && holdsIndices(type))
    if (Dim product = a->dim * b->dim; !product.isUnknown())
      return integer(product);
  auto x = a->constant();
  auto y = b->constant();
  if (x && y)
    return number(*x * *y, type);
  if (x == 1.0)
    return b;
  if (y == 1.0)
    return a;
  if (ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return multiply(p, q, type); }))
    return tree;
  // Sign changes apply to the terms of a sum: they are exact.
  if ((y == -1.0 && a->is(Kind::Sum)) || (x == -1.0 && b->is(Kind::Sum))) {
    ExprRef sum = nullptr;
    for (ExprRef term : (y == -1.0 ? a : b)->operands) {
      ExprRef negated = multiply(term, number(-1), type);
      sum = sum ? add(sum, negated, type) : negated;
    }
    return sum;
  }
  return apply("Mul", {a->id < b->id ? a : b, a->id < b->id ? b : a}, false);
}

ExprRef MaskExpressions::divide(ExprRef a, ExprRef b, ElementType type) {
  if (b->constant() == 1.0)
    return a;
  if (isInteger(type)) {
    if (a->is(Kind::Integer) && b->is(Kind::Integer) && range.isNonNegative(a->dim))
      if (auto division = range.divide(a->dim, b->dim))
        return integer(division->quotient);
    return apply("IntDiv", {a, b}, false);
  }
  auto x = a->constant();
  auto y = b->constant();
  if (x && y && *y != 0.0)
    return number(*x / *y, type);
  if (y)
    if (ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return divide(p, q, type); }))
      return tree;
  return apply("Div", {a, b}, false);
}

ExprRef MaskExpressions::remainder(ExprRef a, ExprRef b, ElementType type) {
  if (isInteger(type) && a->is(Kind::Integer) && b->is(Kind::Integer))
    if (auto division = range.divide(a->dim, b->dim))
      return integer(division->remainder);
  return apply(isInteger(type) ? "IntMod" : "Mod", {a, b}, false);
}

ExprRef MaskExpressions::smaller(ExprRef a, ExprRef b, ElementType type) {
  auto x = a->constant();
  auto y = b->constant();
  if (x && y)
    return *x < *y ? a : b;
  if (a->is(Kind::Integer) && b->is(Kind::Integer)) {
    if (range.isNonNegative(b->dim - a->dim))
      return a;
    if (range.isNonNegative(a->dim - b->dim))
      return b;
  }
  if (x || y)
    if (ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return smaller(p, q, type); }))
      return tree;
  return a == b ? a : apply("Min", {a->id < b->id ? a : b, a->id < b->id ? b : a}, false);
}

ExprRef MaskExpressions::larger(ExprRef a, ExprRef b, ElementType type) {
  auto x = a->constant();
  auto y = b->constant();
  if (x && y)
    return *x < *y ? b : a;
  if (a->is(Kind::Integer) && b->is(Kind::Integer)) {
    if (range.isNonNegative(b->dim - a->dim))
      return b;
    if (range.isNonNegative(a->dim - b->dim))
      return a;
  }
  if (x || y)
    if (ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return larger(p, q, type); }))
      return tree;
  return a == b ? a : apply("Max", {a->id < b->id ? a : b, a->id < b->id ? b : a}, false);
}

ExprRef MaskExpressions::sign(ExprRef a, ElementType type) {
  if (ExprRef known = ofEnds(a, [&](ExprRef end) -> ExprRef {
        if (auto x = end->constant())
          return number(*x > 0 ? 1 : *x < 0 ? -1 : 0);
        if (!end->is(Kind::Integer))
          return nullptr;
        return select(atLeastZero(end->dim - Dim::fixed(1)), number(1),
                      select(isZero(end->dim), number(0), number(-1)));
      }))
    return known;
  return apply("Sign", {a, number(static_cast<double>(type))}, false);
}

ExprRef MaskExpressions::ofEnds(ExprRef a, llvm::function_ref<ExprRef(ExprRef)> f) {
  if (!a->is(Kind::Select))
    return f(a);
  ExprRef yes = ofEnds(a->operands[1], f);
  ExprRef no = yes ? ofEnds(a->operands[2], f) : nullptr;
  return no ? select(a->operands[0], yes, no) : nullptr;
}

ExprRef MaskExpressions::expanded(ExprRef sum, ElementType type) {
  if (!sum->is(Kind::Sum))
    return sum;
  ExprRef total = nullptr;
  for (ExprRef term : sum->operands) {
    ExprRef next = expanded(term, type);
    total = total ? sumOfTrees(total, next, type) : next;
  }
  return total;
}

ExprRef MaskExpressions::sumOfTrees(ExprRef a, ExprRef b, ElementType type) {
  ExprRef tree = distribute(a, b, [&](ExprRef p, ExprRef q) { return sumOfTrees(p, q, type); });
  return tree ? tree : add(a, b, type);
}

ExprRef MaskExpressions::cast(ExprRef a, ElementType from, ElementType to) {
  if (from == to)
    return a;
  if (to == ElementType::Bool)
    return a->isBoolean ? a : nonZero(a);
  if (a->isBoolean)
    return select(a, number(1), number(0));
  if (from == ElementType::Int32 && to == ElementType::Int64)
    return a;
  if (a->is(Kind::Select))
    if (ExprRef tree =
            distribute(a, number(0), [&](ExprRef p, ExprRef) { return cast(p, from, to); }))
      return tree;
  if (isFloatingPoint(to)) {
    if (auto value = a->constant())
      return number(*value, to);
    if (a->is(Kind::Integer) && holdsIndices(to))
      return a;
    // A number stays zero or nonzero; conversions between floats may not preserve that.
    return apply(isFloatingPoint(from) ? "CastFloat" : "ToFloat",
                 {a, integer(Dim::fixed(static_cast<int64_t>(to)))}, false);
  }
  if (to == ElementType::Int32 || to == ElementType::Int64) {
    if (a->is(Kind::Integer))
      return a;
    if (auto value = a->constant(); value && std::abs(*value) < 1e9)
      return number(std::trunc(*value));
  }
  if (auto value = a->constant(); isInteger(to) && value && *value >= 0 && *value < 128)
    return number(std::trunc(*value));
  return apply("Cast", {a, integer(Dim::fixed(static_cast<int64_t>(to)))}, false);
}

// Predicates.

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
  // If one side of 0 is impossible, the other side decides.
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
    // The dual of a simplified form is simplified.
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
  // x <= y implies x' <= y for every x' <= x, whatever y is; similarly for the others.
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
  // a >= 0 and b >= 0 imply that the sum is not negative.
  if (range.isNonNegative(-a->dim - b->dim - one()))
    return true;
  return (a->is(Kind::IsZero) && range.isNonNegative(a->dim - b->dim - one())) ||
         (b->is(Kind::IsZero) && range.isNonNegative(b->dim - a->dim - one()));
}

/// The remainder of a predicate if all of `given` hold.
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

/// Applies one change to a conjunction's parts; false if no change is possible.
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
  // The maximum of two is below a bound if both are, and above it if one is; the reverse for the
  // minimum.
  auto isExtreme = [](ExprRef e, llvm::StringRef which) {
    return e->is(Kind::Apply) && e->name == which &&
           llvm::all_of(e->operands, [](ExprRef part) { return part->is(Kind::Integer); });
  };
  bool isMaximum = isExtreme(a, "Max") || isExtreme(b, "Max");
  bool isMinimum = isExtreme(a, "Min") || isExtreme(b, "Min");
  bool isLeft = isExtreme(a, "Max") || isExtreme(a, "Min");
  ExprRef rest = isLeft ? b : a;
  if (isMaximum != isMinimum && rest->is(Kind::Integer)) {
    ExprRef extreme = isLeft ? a : b;
    if (name == "Equal") {
      // The extreme equals the operand that the other one does not exceed.
      auto isPart = [&](ExprRef part, ExprRef other) {
        ExprRef isExtremeOne = isMaximum ? lessOrEqual(other, part) : lessOrEqual(part, other);
        return both(compare(name, part, rest), isExtremeOne);
      };
      return either(isPart(extreme->operands[0], extreme->operands[1]),
                    isPart(extreme->operands[1], extreme->operands[0]));
    }
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
