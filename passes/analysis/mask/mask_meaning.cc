// Decomposition of mask elements.
#include "passes/analysis/mask/mask_meaning.h"

#include "support/format.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

/// A number that could outweigh one that hides.
constexpr double suspiciousNumber = 1000;

class MeaningReader {
public:
  explicit MeaningReader(MaskExpressions& expressions) : made(expressions) {}

  MaskMeaning meaning;

  ExprRef hiddenIn(ExprRef element) {
    auto known = answers.find(element);
    if (known != answers.end())
      return known->second;
    ExprRef hidden = compute(element);
    answers[element] = hidden;
    return hidden;
  }

private:
  ExprRef compute(ExprRef element) {
    if (auto number = element->constant())
      return constant(element, *number);
    switch (element->kind) {
    case Kind::Select: {
      size_t before = meaning.bias.size();
      ExprRef a = hiddenIn(element->operands[1]);
      ExprRef b = hiddenIn(element->operands[2]);
      if (meaning.bias.size() != before)
        addBias(element->operands[0]);
      return made.select(element->operands[0], a, b);
    }
    case Kind::Sum: {
      // A large finite number that is always added hides nothing.
      bool hasOffset = llvm::any_of(element->operands, [](ExprRef term) {
        auto number = term->constant();
        return number && std::isfinite(*number) && std::abs(*number) >= suspiciousNumber;
      });
      meaning.isUnderstood &= !hasOffset;
      ExprVector hidden;
      for (ExprRef term : element->operands)
        hidden.push_back(hiddenIn(term));
      return made.disjunction(hidden);
    }
    case Kind::Apply:
      if (element->name == "Max")
        return made.both(hiddenIn(element->operands[0]), hiddenIn(element->operands[1]));
      if (element->name == "Min")
        return made.either(hiddenIn(element->operands[0]), hiddenIn(element->operands[1]));
      break;
    default:
      break;
    }
    addBias(element);
    return made.boolean(false);
  }

  ExprRef constant(ExprRef element, double number) {
    if (number <= hidingThreshold) {
      if (std::isfinite(number)) {
        meaning.hiddenValue = meaning.isExact ? number : std::max(meaning.hiddenValue, number);
        meaning.isExact = false;
      }
      return made.boolean(true);
    }
    if (number >= suspiciousNumber)
      meaning.isUnderstood = false;
    if (number != 0)
      addBias(element);
    return made.boolean(false);
  }

  void addBias(ExprRef part) {
    if (!llvm::is_contained(meaning.bias, part))
      meaning.bias.push_back(part);
  }

  MaskExpressions& made;
  llvm::DenseMap<ExprRef, ExprRef> answers;
};

/// Visits every expression in the given ones once.
void forEachExpression(ExprList roots, llvm::function_ref<void(ExprRef)> visit) {
  llvm::SmallVector<ExprRef, 16> stack(roots.rbegin(), roots.rend());
  llvm::DenseSet<ExprRef> seen(stack.begin(), stack.end());
  while (!stack.empty()) {
    ExprRef next = stack.pop_back_val();
    visit(next);
    for (ExprRef operand : llvm::reverse(next->operands))
      if (seen.insert(operand).second)
        stack.push_back(operand);
  }
}

Dim advanced(const Dim& dim) {
  const Dim& row = IndexSpace::variable(IndexVariable::Row);
  const Dim& key = IndexSpace::variable(IndexVariable::Key);
  const std::string rowName = row.symbols().front();
  const std::string keyName = key.symbols().front();
  return dim.substitute([&](llvm::StringRef symbol) -> std::optional<Dim> {
    if (symbol == rowName)
      return row + Dim::fixed(1);
    if (symbol == keyName)
      return key + Dim::fixed(1);
    return std::nullopt;
  });
}

class Printer {
public:
  std::string print(ExprRef e) {
    std::string text = render(*e);
    return text.size() > longest ? "..." : text;
  }

private:
  static constexpr size_t longest = 160;

  std::string render(const MaskExpression& e) {
    switch (e.kind) {
    case Kind::Integer:
      return IndexSpace::print(e.dim);
    case Kind::Number:
      return formatted("{:g}", e.number);
    case Kind::False:
      return "false";
    case Kind::True:
      return "true";
    case Kind::AtLeastZero:
      return IndexSpace::print(e.dim) + " >= 0";
    case Kind::IsZero:
      return IndexSpace::print(e.dim) + " == 0";
    case Kind::IsNotZero:
      return IndexSpace::print(e.dim) + " != 0";
    case Kind::Not:
      return "not " + nested(e.operands[0]);
    case Kind::And:
      return list(e, " and ");
    case Kind::Or:
      return "(" + list(e, " or ") + ")";
    case Kind::Sum:
      return "(" + list(e, " + ") + ")";
    case Kind::Select:
      return formatted("({} ? {} : {})", nested(e.operands[0]), nested(e.operands[1]),
                       nested(e.operands[2]));
    case Kind::Leaf:
      return e.value->name().str() + "[" + list(e, ", ") + "]";
    case Kind::Apply:
      return application(e);
    case Kind::Opaque:
      return e.value ? e.value->name().str() + "[?]" : "?";
    }
    return "?";
  }

  std::string application(const MaskExpression& e) {
    if (e.name == "NonZero" || e.name == "Broadcast" || e.name == "Wrap" || e.name == "ToFloat")
      return nested(e.operands[0]);
    for (auto [name, sign] : {std::pair("Less", " < "), std::pair("LessOrEqual", " <= "),
                              std::pair("Equal", " == "), std::pair("Mul", "*")})
      if (e.name == name)
        return "(" + list(e, sign) + ")";
    return e.name.str() + "(" + list(e, ", ") + ")";
  }

  std::string list(const MaskExpression& e, const char* separator) {
    std::string text;
    for (ExprRef operand : e.operands)
      text += (text.empty() ? "" : separator) + nested(operand);
    return text;
  }

  std::string nested(ExprRef e) {
    // Shared expressions could make a text exponentially long.
    if (++printed > 64)
      return "...";
    return render(*e);
  }

  unsigned printed = 0;
};

enum class Truth { False, True, Unknown };

/// Evaluates a predicate at one point; leaves are unknown.
class TruthOfPredicate {
public:
  explicit TruthOfPredicate(llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> symbols)
      : lookup(symbols) {}

  Truth at(ExprRef e) {
    if (++steps > 200)
      return Truth::Unknown;
    auto of = [](bool value) { return value ? Truth::True : Truth::False; };
    switch (e->kind) {
    case Kind::True:
      return Truth::True;
    case Kind::False:
      return Truth::False;
    case Kind::AtLeastZero:
    case Kind::IsZero:
    case Kind::IsNotZero: {
      auto value = e->dim.evaluate(lookup);
      if (!value)
        return Truth::Unknown;
      return of(e->is(Kind::AtLeastZero) ? *value >= 0 : (*value == 0) == e->is(Kind::IsZero));
    }
    case Kind::And:
    case Kind::Or: {
      Truth decisive = e->is(Kind::And) ? Truth::False : Truth::True;
      Truth result = e->is(Kind::And) ? Truth::True : Truth::False;
      for (ExprRef part : e->operands) {
        Truth truth = at(part);
        if (truth == decisive)
          return decisive;
        if (truth == Truth::Unknown)
          result = Truth::Unknown;
      }
      return result;
    }
    default:
      return Truth::Unknown;
    }
  }

private:
  llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> lookup;
  unsigned steps = 0;
};

} // namespace

MaskMeaning meaningOf(MaskExpressions& made, ExprRef element) {
  MeaningReader reader(made);
  ExprRef hidden = reader.hiddenIn(element);
  reader.meaning.hidden = hidden;
  return std::move(reader.meaning);
}

ExprVector partsOf(ExprRef predicate) {
  if (predicate->is(Kind::True))
    return {};
  if (predicate->is(Kind::And))
    return ExprVector(predicate->operands.begin(), predicate->operands.end());
  return {predicate};
}

bool dependsOnDistanceOnly(ExprRef expression) {
  bool result = true;
  forEachExpression({expression}, [&](ExprRef e) {
    if (e->is(Kind::Opaque) && e->variables != noIndices)
      result = false;
    if (!e->dim.isUnknown() && !advanced(e->dim).isKnownEqual(e->dim))
      result = false;
  });
  return result;
}

std::string printExpression(ExprRef expression) { return Printer().print(expression); }

llvm::SmallVector<const Value*, 4> leafValues(ExprList expressions) {
  llvm::SmallVector<const Value*, 4> values;
  forEachExpression(expressions, [&](ExprRef e) {
    if (e->value && !llvm::is_contained(values, e->value))
      values.push_back(e->value);
  });
  return values;
}

std::string causalCounterExample(const IndexSpace& space, ExprRef predicate) {
  constexpr int64_t tried[] = {0, 1, 2, 3, 7};
  constexpr int64_t largest = 10;
  const Dim& rows = space.extent(IndexVariable::Row);
  const Dim& keys = space.extent(IndexVariable::Key);
  llvm::SmallVector<std::string, 4> names;
  for (const Dim* extent : {&rows, &keys})
    for (std::string& name : extent->symbols())
      if (!llvm::is_contained(names, name))
        names.push_back(std::move(name));
  if (rows.isUnknown() || keys.isUnknown() || names.size() > 3)
    return "";
  int64_t assignments = 1;
  for (size_t k = 0; k < names.size(); ++k)
    assignments *= std::size(tried);
  const std::string rowName = IndexSpace::variable(IndexVariable::Row).symbols().front();
  const std::string keyName = IndexSpace::variable(IndexVariable::Key).symbols().front();
  for (int64_t assignment = 0; assignment < assignments; ++assignment) {
    int64_t row = 0;
    int64_t key = 0;
    auto lookup = [&](llvm::StringRef symbol) -> std::optional<int64_t> {
      if (symbol == rowName)
        return row;
      if (symbol == keyName)
        return key;
      int64_t code = assignment;
      for (const std::string& name : names) {
        if (symbol == name)
          return tried[code % static_cast<int64_t>(std::size(tried))];
        code /= static_cast<int64_t>(std::size(tried));
      }
      return std::nullopt;
    };
    auto rowCount = rows.evaluate(lookup);
    auto keyCount = keys.evaluate(lookup);
    if (!rowCount || !keyCount || *rowCount > largest || *keyCount > largest)
      continue;
    for (row = 0; row < *rowCount; ++row)
      for (key = 0; key < *keyCount; ++key) {
        Truth truth = TruthOfPredicate(lookup).at(predicate);
        bool isCausal = key <= row + *keyCount - *rowCount;
        if (truth != Truth::Unknown && (truth == Truth::True) != isCausal)
          return formatted("row {} {} key {} of S = {}, T = {}", row,
                           isCausal ? "does not see" : "sees", key, *rowCount, *keyCount);
      }
  }
  return "";
}

} // namespace kvopt::analysis
