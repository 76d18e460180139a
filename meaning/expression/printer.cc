// A formula is a graph, its text a tree: the number of nodes that are printed is limited.
#include "meaning/expression/printer.h"

#include "ir/element_type.h"
#include "support/format.h"

namespace kvopt::meaning {

namespace {

const char* nameOf(Function function) {
  static constexpr const char* names[] = {
      "+",    "*",     "/",    "min",  "max",   "pow",   "fmod",  "abs", "sign", "floor",
      "ceil", "round", "sqrt", "exp",  "log",   "sin",   "cos",   "tan", "asin", "acos",
      "atan", "sinh",  "cosh", "tanh", "asinh", "acosh", "atanh", "erf"};
  return names[static_cast<size_t>(function)];
}

const char* nameOf(Reduction reduction) {
  static constexpr const char* names[] = {"sum", "prod", "min", "max", "any", "all"};
  return names[static_cast<size_t>(reduction)];
}

class Printer {
public:
  Printer(const Formulas& formulas, size_t most) : formulas_(formulas), left_(most) {}

  /// How tightly the operators of a text bind.
  enum class Level { Any, Comparison, Sum, Product, Atom };

  std::string text(Expr expr, Level level = Level::Any) {
    // Deeper than a reader follows, and than a stack should go.
    if (left_ == 0 || depth_ == 60)
      return "…";
    --left_;
    ++depth_;
    auto [written, own] = parts(expr);
    --depth_;
    return own < level ? formatted("({})", written) : written;
  }

private:
  using Text = std::pair<std::string, Level>;

  std::string list(llvm::ArrayRef<Expr> exprs, const char* between = ", ",
                   Level level = Level::Any) {
    std::string all;
    for (Expr expr : exprs) {
      if (!all.empty())
        all += between;
      all += text(expr, level);
    }
    return all;
  }

  std::string call(const char* name, llvm::ArrayRef<Expr> exprs) {
    return formatted("{}({})", name, list(exprs));
  }

  /// A monomial with a coefficient that is not negative.
  std::string term(int64_t coefficient, Expr monomial) {
    if (formulas_.integerOf(monomial) == 1)
      return formatted("{}", coefficient);
    const std::string atoms = text(monomial, Level::Product);
    return coefficient == 1 ? atoms : formatted("{}*{}", coefficient, atoms);
  }

  Text polynomial(Expr expr) {
    const Arena& arena = formulas_.arena();
    const llvm::ArrayRef<Expr> monomials = arena.operands(expr);
    const llvm::ArrayRef<int64_t> coefficients = arena.coefficients(expr);
    std::string all;
    // What is added comes first, and the number last.
    for (int turn = 0; turn < 4; ++turn)
      for (size_t i = 0; i < monomials.size(); ++i) {
        const bool isNumber = formulas_.integerOf(monomials[i]) == 1, isLess = coefficients[i] < 0;
        if (turn != 2 * isNumber + isLess)
          continue;
        const char* sign = all.empty() ? (isLess ? "-" : "") : (isLess ? " - " : " + ");
        const int64_t size =
            isLess && coefficients[i] != Range::noLow ? -coefficients[i] : coefficients[i];
        all += sign + term(size, monomials[i]);
      }
    return {all, monomials.size() > 1 ? Level::Sum : Level::Product};
  }

  /// p >= 0 with what is subtracted on the left side.
  Text inequality(Expr integer, const char* sign) {
    const Arena& arena = formulas_.arena();
    if (arena[integer].op != Op::Polynomial)
      return {formatted("0 {} {}", sign, text(integer, Level::Sum)), Level::Comparison};
    std::string left, right;
    int64_t number = 0;
    auto add = [&](std::string& side, const std::string& part) {
      side += (side.empty() ? "" : " + ") + part;
    };
    for (size_t i = 0; i < arena.operands(integer).size(); ++i) {
      const Expr monomial = arena.operands(integer)[i];
      const int64_t coefficient = arena.coefficients(integer)[i];
      if (formulas_.integerOf(monomial) == 1)
        number = coefficient;
      else if (coefficient < 0 && coefficient != Range::noLow)
        add(left, term(-coefficient, monomial));
      else
        add(right, term(coefficient, monomial));
    }
    std::string shown = sign;
    if (number == -1 && shown == "<=")
      shown = "<";
    else if (number < 0 && number != Range::noLow)
      add(left, formatted("{}", -number));
    else if (number != 0)
      add(right, formatted("{}", number));
    return {formatted("{} {} {}", left.empty() ? "0" : left, shown, right.empty() ? "0" : right),
            Level::Comparison};
  }

  std::string boundName(int64_t level) {
    return level <= 8 ? std::string(1, static_cast<char>('k' + level - 1))
                      : formatted("k{}", level);
  }

  Text parts(Expr expr) {
    const Node node = formulas_.arena()[expr];
    const llvm::ArrayRef<Expr> operands = formulas_.arena().operands(expr);
    switch (node.op) {
    case Op::Integer:
      return {formatted("{}", node.value), node.value < 0 ? Level::Sum : Level::Atom};
    case Op::Boolean:
      return {node.value ? "true" : "false", Level::Atom};
    case Op::Real:
      return {formatted("{}", *formulas_.realOf(expr)), Level::Atom};
    case Op::Symbol:
    case Op::Index:
      return {formulas_.names()[node.value].name, Level::Atom};
    case Op::Bound:
      return {boundName(node.value), Level::Atom};
    case Op::Unknown:
      return {"?", Level::Atom};
    case Op::Element:
      return {formatted("{}[{}]", formulas_.names()[node.value].name, list(operands)), Level::Atom};
    case Op::Product:
      return {list(operands, "*", Level::Product), Level::Product};
    case Op::Polynomial:
      return polynomial(expr);
    case Op::Wide:
      return {list(operands, node.detail == 0 ? " + " : "*", Level::Product),
              node.detail == 0 ? Level::Sum : Level::Product};
    case Op::Quotient:
      return {list(operands, "//", Level::Atom), Level::Product};
    case Op::Remainder:
      return {list(operands, "%", Level::Atom), Level::Product};
    case Op::Minimum:
      return {call("min", operands), Level::Atom};
    case Op::Maximum:
      return {call("max", operands), Level::Atom};
    case Op::Truncated:
      return {call("trunc", operands), Level::Atom};
    case Op::Wrapped:
      return {call(ir::onnxName(static_cast<ir::ElementType>(node.detail)).str().c_str(), operands),
              Level::Atom};
    case Op::NonNegative:
      return inequality(operands[0], "<=");
    case Op::Zero:
      return inequality(operands[0], "==");
    case Op::Compared: {
      static constexpr const char* signs[] = {" < ", " <= ", " == "};
      return {list(operands, signs[node.detail], Level::Sum), Level::Comparison};
    }
    case Op::Not:
      return {"!" + text(operands[0], Level::Atom), Level::Atom};
    case Op::And:
      return {list(operands, " && ", Level::Comparison), Level::Any};
    case Op::Or:
      return {list(operands, " || ", Level::Comparison), Level::Any};
    case Op::FromInteger:
      return {text(operands[0], Level::Atom), Level::Atom};
    case Op::Function:
      return function(static_cast<Function>(node.detail), operands);
    case Op::Select:
      return {call("select", operands), Level::Atom};
    case Op::Reduce:
      return {formatted("{}({} < {}: {})", nameOf(static_cast<Reduction>(node.detail)),
                        boundName(node.value), text(operands[0]), text(operands[1])),
              Level::Atom};
    case Op::Last:
      return {formatted("last({} < {}: {} if {} else {})", boundName(node.value), text(operands[0]),
                        text(operands[1]), text(operands[2]), text(operands[3])),
              Level::Atom};
    }
    return {"?", Level::Atom};
  }

  Text function(Function function, llvm::ArrayRef<Expr> operands) {
    const char* name = nameOf(function);
    if (function == Function::Add)
      return {list(operands, " + ", Level::Sum), Level::Sum};
    if (function == Function::Multiply || function == Function::Divide)
      return {list(operands, name, Level::Atom), Level::Product};
    return {call(name, operands), Level::Atom};
  }

  const Formulas& formulas_;
  size_t left_;
  unsigned depth_ = 0;
};

} // namespace

std::string printed(const Formulas& formulas, Expr expr, size_t most) {
  return Printer(formulas, most).text(expr);
}

} // namespace kvopt::meaning
