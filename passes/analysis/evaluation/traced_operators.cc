// Sums, scales and products with numbers, element by element.
#include "passes/analysis/evaluation/traced_operators.h"

#include "passes/analysis/evaluation/number_operators.h"

#include "llvm/ADT/STLExtras.h"

#include <cctype>
#include <cmath>
#include <map>
#include <string>

namespace kvopt::analysis {
using namespace ir;

namespace {

using Forms = std::vector<LinearForm>;

struct Traced {
  const Node& node;
  llvm::ArrayRef<int64_t> indices;
  Evaluation& evaluation;
  Forms& forms;

  /// The elements of an operand that is broadcast to the result.
  bool operandForms(unsigned operand, Forms& result) const {
    const Extents* after = evaluation.extents(node.result());
    const Extents* before = evaluation.extents(*node.operand(operand));
    if (!after || !before || before->size() > after->size())
      return false;
    const BroadcastElements read(*after, *before);
    std::vector<int64_t> elements;
    for (int64_t index : indices)
      elements.push_back(read(index));
    return evaluation.trace(*node.operand(operand), elements, result);
  }
};

/// A form that became too long is an element of the result itself.
void addOrBlock(LinearForm& sum, const LinearForm& next, double by, const Value& result,
                int64_t index) {
  if (!sum.add(next, by))
    sum = LinearForm::element(result, index);
}

TraceResult sumOf(const Traced& traced, double firstSign, double nextSign) {
  const size_t count = traced.indices.size();
  traced.forms.assign(count, LinearForm());
  std::vector<bool> isBlock(count, false);
  const bool areIntegers = isInteger(traced.node.operand(0)->type().elementType());
  for (unsigned i = 0; i < traced.node.operands().size(); ++i) {
    Forms part;
    if (!traced.operandForms(i, part))
      return TraceResult::TooMuch;
    for (size_t e = 0; e < count; ++e)
      if (!isBlock[e] && ((areIntegers && !isExact(part[e].constant)) ||
                          !traced.forms[e].add(part[e], i == 0 ? firstSign : nextSign))) {
        traced.forms[e] = LinearForm::element(traced.node.result(), traced.indices[e]);
        isBlock[e] = true;
      }
  }
  return TraceResult::Followed;
}

TraceResult add(const Traced& traced) { return sumOf(traced, 1, 1); }
TraceResult subtract(const Traced& traced) { return sumOf(traced, 1, -1); }
TraceResult negate(const Traced& traced) { return sumOf(traced, -1, -1); }

TraceResult multiply(const Traced& traced) {
  Forms left, right;
  if (!traced.operandForms(0, left) || !traced.operandForms(1, right))
    return TraceResult::TooMuch;
  traced.forms.resize(traced.indices.size());
  for (size_t e = 0; e < traced.indices.size(); ++e) {
    if (!left[e].isNumber())
      std::swap(left[e], right[e]);
    if (left[e].isNumber() && std::isfinite(left[e].constant)) {
      right[e].scale(left[e].constant);
      traced.forms[e] = std::move(right[e]);
    } else {
      traced.forms[e] = LinearForm::element(traced.node.result(), traced.indices[e]);
    }
  }
  return TraceResult::Followed;
}

TraceResult divide(const Traced& traced) {
  if (isInteger(traced.node.operand(0)->type().elementType()))
    return TraceResult::Block; // it truncates
  Forms left, right;
  if (!traced.operandForms(0, left) || !traced.operandForms(1, right))
    return TraceResult::TooMuch;
  traced.forms.resize(traced.indices.size());
  for (size_t e = 0; e < traced.indices.size(); ++e) {
    if (right[e].isNumber() && right[e].constant != 0) {
      left[e].scale(1 / right[e].constant);
      traced.forms[e] = std::move(left[e]);
    } else {
      traced.forms[e] = LinearForm::element(traced.node.result(), traced.indices[e]);
    }
  }
  return TraceResult::Followed;
}

TraceResult sumAlongAxes(const Traced& traced) {
  if (const auto product = productOf(traced.node, traced.evaluation);
      product && traced.evaluation.isData(*product->left) &&
      traced.evaluation.isData(*product->right))
    return TraceResult::Block;
  const Extents* before = traced.evaluation.extents(*traced.node.operand(0));
  const auto axes =
      before ? reducedAxes(traced.node, before->size(), traced.evaluation) : std::nullopt;
  if (!axes || axes->size() != 1)
    return TraceResult::Block;
  const unsigned axis = axes->front();
  const int64_t extent = (*before)[axis];
  const int64_t inner = rowMajorStrides(*before)[axis];
  std::vector<int64_t> elements;
  for (int64_t index : traced.indices)
    for (int64_t k = 0; k < extent; ++k)
      elements.push_back(index / inner * inner * extent + k * inner + index % inner);
  Forms parts;
  if (!traced.evaluation.trace(*traced.node.operand(0), elements, parts))
    return TraceResult::TooMuch;
  traced.forms.assign(traced.indices.size(), LinearForm());
  for (size_t e = 0; e < traced.indices.size(); ++e)
    for (int64_t k = 0; k < extent; ++k)
      if (!traced.forms[e].add(parts[e * static_cast<size_t>(extent) + static_cast<size_t>(k)])) {
        traced.forms[e] = LinearForm::element(traced.node.result(), traced.indices[e]);
        break;
      }
  return TraceResult::Followed;
}

/// A product of elements with numbers that are not weights: a constant with few elements, or
/// computed numbers.
TraceResult multiplyMatrices(const Traced& traced) {
  auto sum = productOf(traced.node, traced.evaluation);
  if (!sum || sum->depth > 4096)
    return TraceResult::Block;
  const Value& left = *sum->left;
  const Value& right = *sum->right;
  const bool leftIsNumbers = traced.evaluation.numbers(left) != nullptr;
  const bool rightIsNumbers = traced.evaluation.numbers(right) != nullptr;
  if (leftIsNumbers == rightIsNumbers)
    return TraceResult::Block;
  const NumberTensor& factors = *traced.evaluation.numbers(leftIsNumbers ? left : right);
  // Rows of numbers with more than a few nonzero elements are weights.
  traced.forms.assign(traced.indices.size(), LinearForm());
  for (size_t e = 0; e < traced.indices.size(); ++e) {
    std::vector<int64_t> elements;
    std::vector<double> weights;
    for (int64_t k = 0; k < sum->depth && elements.size() <= LinearForm::maxTerms; ++k) {
      int64_t a = 0, b = 0;
      sum->at(traced.indices[e], k, a, b);
      const double factor = factors.numbers[static_cast<size_t>(leftIsNumbers ? a : b)];
      if (factor == 0)
        continue;
      elements.push_back(leftIsNumbers ? b : a);
      weights.push_back(factor);
    }
    Forms parts;
    LinearForm& form = traced.forms[e];
    if (elements.size() > LinearForm::maxTerms) {
      form = LinearForm::element(traced.node.result(), traced.indices[e]);
      continue;
    }
    if (!traced.evaluation.trace(leftIsNumbers ? right : left, elements, parts))
      return TraceResult::TooMuch;
    for (auto [part, weight] : llvm::zip(parts, weights))
      addOrBlock(form, part, weight, traced.node.result(), traced.indices[e]);
  }
  return TraceResult::Followed;
}

struct TracedOperator {
  const char* name;
  TraceResult (*trace)(const Traced&);
};

constexpr TracedOperator tracedOperators[] = {
    {"Add", add},
    {"Sum", add},
    {"Sub", subtract},
    {"Neg", negate},
    {"Mul", multiply},
    {"Div", divide},
    {"ReduceSum", sumAlongAxes},
    {"MatMul", multiplyMatrices},
    {"Einsum", multiplyMatrices},
};

/// Product of operands with these extents, according to MatMul.
ProductElements matrixProduct(const Extents& after, const Extents& left, const Extents& right) {
  // An operand of rank 1 is a row on the left and a column on the right.
  Extents rows = left, columns = right;
  Extents full = after;
  if (left.size() == 1) {
    rows.insert(rows.begin(), 1);
    full.insert(right.size() == 1 ? full.end() : full.end() - 1, 1);
  }
  if (right.size() == 1) {
    columns.push_back(1);
    full.push_back(1);
  }
  const int64_t depth = rows.back();
  Extents leftBatch(rows.begin(), rows.end() - 2), rightBatch(columns.begin(), columns.end() - 2);
  Extents batch(full.begin(), full.end() - 2);
  const int64_t m = full[full.size() - 2], n = full.back();
  ProductElements product;
  product.depth = depth;
  product.at = [depth, m, n, leftOf = BroadcastElements(batch, leftBatch),
                rightOf = BroadcastElements(batch, rightBatch)](int64_t element, int64_t k,
                                                                int64_t& a, int64_t& b) {
    const int64_t column = element % n, row = element / n % m, outer = element / n / m;
    a = (leftOf(outer) * m + row) * depth + k;
    b = (rightOf(outer) * depth + k) * n + column;
  };
  return product;
}

/// Factors that are multiplied elementwise, and then summed along one axis.
std::optional<ProductElements> summedProduct(const Node& node, const Extents& left,
                                             const Extents& right, Evaluation& evaluation) {
  const auto full = broadcastOf(left, right);
  const auto axes = full ? reducedAxes(node, full->size(), evaluation) : std::nullopt;
  if (!axes || axes->size() != 1)
    return std::nullopt;
  const int64_t inner = rowMajorStrides(*full)[axes->front()];
  ProductElements product;
  product.depth = (*full)[axes->front()];
  product.at = [depth = product.depth, inner, leftOf = BroadcastElements(*full, left),
                rightOf = BroadcastElements(*full, right)](int64_t element, int64_t k, int64_t& a,
                                                           int64_t& b) {
    const int64_t factor = (element / inner * depth + k) * inner + element % inner;
    a = leftOf(factor);
    b = rightOf(factor);
  };
  return product;
}

/// An equation of two operands without ellipses and without a letter that occurs twice in one
/// operand.
struct Equation {
  std::string left, right, result;

  static std::optional<Equation> parse(llvm::StringRef text) {
    Equation equation;
    std::string clean;
    for (char c : text)
      if (c != ' ')
        clean += c;
    const auto [operands, result] = llvm::StringRef(clean).split("->");
    const auto [left, right] = operands.split(',');
    equation = {left.str(), right.str(), result.str()};
    auto isPlain = [](const std::string& letters) {
      for (size_t i = 0; i < letters.size(); ++i)
        if (!std::isalpha(static_cast<unsigned char>(letters[i])) ||
            letters.find(letters[i], i + 1) != std::string::npos)
          return false;
      return !letters.empty();
    };
    if (right.contains(',') || !isPlain(equation.left) || !isPlain(equation.right) ||
        !isPlain(equation.result))
      return std::nullopt;
    return equation;
  }
};

std::optional<ProductElements> einsumProduct(const Node& node, const Extents& left,
                                             const Extents& right) {
  const auto equation = Equation::parse(node.stringAttr("equation", ""));
  if (!equation || equation->left.size() != left.size() || equation->right.size() != right.size())
    return std::nullopt;
  // Extents and strides by letter; letters that are not in the result are summed over.
  struct Letter {
    int64_t extent = 1, left = 0, right = 0;
  };
  std::map<char, Letter> letters;
  const Extents leftStrides = rowMajorStrides(left), rightStrides = rowMajorStrides(right);
  for (size_t i = 0; i < left.size(); ++i)
    letters[equation->left[i]] = {left[i], leftStrides[i], 0};
  for (size_t i = 0; i < right.size(); ++i) {
    Letter& letter = letters[equation->right[i]];
    letter.extent = right[i];
    letter.right = rightStrides[i];
  }
  std::vector<Letter> kept, summed;
  for (char c : equation->result) {
    if (!letters.count(c))
      return std::nullopt;
    kept.push_back(letters[c]);
  }
  int64_t depth = 1;
  for (const auto& [c, letter] : letters)
    if (equation->result.find(c) == std::string::npos) {
      summed.push_back(letter);
      depth *= letter.extent;
    }
  ProductElements product;
  product.depth = depth;
  product.at = [kept, summed](int64_t element, int64_t k, int64_t& a, int64_t& b) {
    a = b = 0;
    for (const auto* list : {&kept, &summed}) {
      int64_t rest = list == &kept ? element : k;
      for (const Letter& letter : llvm::reverse(*list)) {
        a += rest % letter.extent * letter.left;
        b += rest % letter.extent * letter.right;
        rest /= letter.extent;
      }
    }
  };
  return product;
}

std::optional<Extents> matrixExtents(const Extents& left, const Extents& right) {
  if (left.empty() || right.empty())
    return std::nullopt;
  Extents leftBatch, rightBatch;
  if (left.size() > 1)
    leftBatch.assign(left.begin(), left.end() - 2);
  if (right.size() > 1)
    rightBatch.assign(right.begin(), right.end() - 2);
  auto after = broadcastOf(leftBatch, rightBatch);
  const int64_t depth = right.size() > 1 ? right[right.size() - 2] : right.back();
  if (!after || left.back() != depth)
    return std::nullopt;
  if (left.size() > 1)
    after->push_back(left[left.size() - 2]);
  if (right.size() > 1)
    after->push_back(right.back());
  return after;
}

} // namespace

TraceResult traceThrough(const Node& node, llvm::ArrayRef<int64_t> indices, Evaluation& evaluation,
                         std::vector<LinearForm>& forms) {
  for (const TracedOperator& entry : tracedOperators)
    if (node.op() == OpName(entry.name))
      return entry.trace({node, indices, evaluation, forms});
  return TraceResult::Block;
}

std::optional<ProductElements> productOf(const Node& node, Evaluation& evaluation) {
  const Node* factors =
      node.is("ReduceSum") && node.operand(0) ? node.operand(0)->producer() : &node;
  if (!factors || factors->operands().size() != 2 || !factors->operand(0) || !factors->operand(1))
    return std::nullopt;
  const Value& leftValue = *factors->operand(0);
  const Value& rightValue = *factors->operand(1);
  const Extents* left = evaluation.extents(leftValue);
  const Extents* right = evaluation.extents(rightValue);
  if (!left || !right)
    return std::nullopt;
  std::optional<ProductElements> product;
  if (node.is("Einsum")) {
    product = einsumProduct(node, *left, *right);
  } else if (node.is("MatMul")) {
    if (const auto after = matrixExtents(*left, *right))
      product = matrixProduct(*after, *left, *right);
  } else if (factors != &node && factors->is("Mul")) {
    product = summedProduct(node, *left, *right, evaluation);
  }
  if (product) {
    product->left = &leftValue;
    product->right = &rightValue;
  }
  return product;
}

} // namespace kvopt::analysis
