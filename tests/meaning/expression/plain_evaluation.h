// What a formula is worth for numbers in the places of its leaves, by plain recursion.
#pragma once

#include "ir/element_type.h"
#include "meaning/expression/formulas.h"

#include <cmath>
#include <functional>
#include <map>
#include <variant>

namespace kvopt::meaning {

using Worth = std::variant<int64_t, bool, double>;

/// Evaluates formulas; nothing is simplified and nothing remembered.
class PlainEvaluation {
public:
  using Elements = std::function<Worth(int64_t value, const std::vector<int64_t>& indices)>;

  PlainEvaluation(const Formulas& formulas, std::map<Expr, int64_t> leaves, Elements elements = {})
      : formulas_(formulas), leaves_(std::move(leaves)), elements_(std::move(elements)) {}

  int64_t integer(Expr expr) { return std::get<int64_t>(worth(expr)); }
  bool boolean(Expr expr) { return std::get<bool>(worth(expr)); }
  double real(Expr expr) { return std::get<double>(worth(expr)); }

  static int64_t quotient(int64_t a, int64_t b) {
    if (b == 0)
      return 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }

  static int64_t remainder(int64_t a, int64_t b) { return b == 0 ? 0 : a - b * quotient(a, b); }

  Worth worth(Expr expr) {
    const Node node = formulas_.arena()[expr];
    const llvm::ArrayRef<Expr> operands = formulas_.arena().operands(expr);
    auto at = [&](size_t i) { return integer(operands[i]); };
    switch (node.op) {
    case Op::Integer:
      return node.value;
    case Op::Boolean:
      return node.value != 0;
    case Op::Real:
      return *formulas_.realOf(expr);
    case Op::Symbol:
    case Op::Index:
      return leaves_.at(expr);
    case Op::Bound:
      return bound_.at(node.value);
    case Op::Unknown:
      throw std::runtime_error("an unknown value");
    case Op::Product: {
      int64_t all = 1;
      for (Expr operand : operands)
        all *= integer(operand);
      return all;
    }
    case Op::Polynomial: {
      int64_t all = 0;
      for (size_t i = 0; i < operands.size(); ++i)
        all += formulas_.arena().coefficients(expr)[i] * at(i);
      return all;
    }
    case Op::Wide:
      return node.detail == 0 ? at(0) + at(1) : at(0) * at(1);
    case Op::Quotient:
      return quotient(at(0), at(1));
    case Op::Remainder:
      return remainder(at(0), at(1));
    case Op::Minimum:
    case Op::Maximum: {
      int64_t all = at(0);
      for (Expr operand : operands)
        all = node.op == Op::Minimum ? std::min(all, integer(operand))
                                     : std::max(all, integer(operand));
      return all;
    }
    case Op::Truncated:
      return static_cast<int64_t>(real(operands[0]));
    case Op::Wrapped:
      return wrapped(at(0), static_cast<ir::ElementType>(node.detail));
    case Op::NonNegative:
      return at(0) >= 0;
    case Op::Zero:
      return at(0) == 0;
    case Op::Compared: {
      const double a = real(operands[0]), b = real(operands[1]);
      return node.detail == 0 ? a < b : node.detail == 1 ? a <= b : a == b;
    }
    case Op::Not:
      return !boolean(operands[0]);
    case Op::And:
    case Op::Or: {
      for (Expr operand : operands)
        if (boolean(operand) != (node.op == Op::And))
          return node.op != Op::And;
      return node.op == Op::And;
    }
    case Op::FromInteger:
      return static_cast<double>(at(0));
    case Op::Function:
      return function(static_cast<Function>(node.detail), operands);
    case Op::Element: {
      std::vector<int64_t> indices;
      for (Expr operand : operands)
        indices.push_back(integer(operand));
      return elements_(node.value, indices);
    }
    case Op::Select:
      return worth(boolean(operands[0]) ? operands[1] : operands[2]);
    case Op::Reduce:
      return reduced(expr);
    case Op::Last: {
      for (int64_t k = at(0) - 1; k >= 0; --k) {
        bound_[node.value] = k;
        if (boolean(operands[2])) {
          bound_[node.value] = k;
          return worth(operands[1]);
        }
      }
      return worth(operands[3]);
    }
    }
    return int64_t(0);
  }

private:
  static int64_t wrapped(int64_t value, ir::ElementType type) {
    switch (type) {
    case ir::ElementType::UInt8:
      return static_cast<uint8_t>(value);
    case ir::ElementType::Int8:
      return static_cast<int8_t>(value);
    case ir::ElementType::Int32:
      return static_cast<int32_t>(value);
    default:
      return value;
    }
  }

  Worth function(Function function, llvm::ArrayRef<Expr> operands) {
    const double a = real(operands[0]), b = operands.size() > 1 ? real(operands[1]) : 0;
    switch (function) {
    case Function::Add:
      return a + b;
    case Function::Multiply:
      return a * b;
    case Function::Divide:
      return a / b;
    case Function::Floor:
      return std::floor(a);
    case Function::Ceiling:
      return std::ceil(a);
    case Function::Round:
      return std::nearbyint(a);
    default:
      throw std::runtime_error("a function without a plain form");
    }
  }

  Worth reduced(Expr expr) {
    const Node node = formulas_.arena()[expr];
    const llvm::ArrayRef<Expr> operands = formulas_.arena().operands(expr);
    const int64_t extent = integer(operands[0]);
    std::optional<Worth> all;
    const auto reduction = static_cast<Reduction>(node.detail);
    for (int64_t k = 0; k < extent; ++k) {
      bound_[node.value] = k;
      const Worth next = worth(operands[1]);
      if (node.sort == Sort::Boolean) {
        const bool before = all ? std::get<bool>(*all) : reduction == Reduction::All;
        all = reduction == Reduction::All ? before && std::get<bool>(next)
                                          : before || std::get<bool>(next);
        continue;
      }
      const int64_t x = std::get<int64_t>(next);
      if (!all)
        all = x;
      else if (const int64_t before = std::get<int64_t>(*all); reduction == Reduction::Sum)
        all = before + x;
      else if (reduction == Reduction::Product)
        all = before * x;
      else
        all = reduction == Reduction::Minimum ? std::min(before, x) : std::max(before, x);
    }
    if (all)
      return *all;
    if (node.sort == Sort::Boolean)
      return reduction == Reduction::All;
    return int64_t(reduction == Reduction::Product);
  }

  const Formulas& formulas_;
  std::map<Expr, int64_t> leaves_;
  Elements elements_;
  std::map<int64_t, int64_t> bound_; ///< by level
};

} // namespace kvopt::meaning
