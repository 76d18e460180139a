// Rules of matrix products and convolution.
#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::check {

namespace {

/// Weights of a product, as exact fractions.
Ref asWeights(Call& call, const Ref& tensor) { return call.real(tensor); }

Ref fewerAxes(const Ref& tensor, bool dropsRow, bool dropsColumn) {
  Extents shape = tensor->shape;
  if (dropsColumn)
    shape.pop_back();
  if (dropsRow)
    shape.erase(shape.end() - (dropsColumn ? 1 : 2));
  return reshaped(tensor, std::move(shape));
}

/// Two tensors that a model knows, multiplied as it would.
std::shared_ptr<Tensor> knownProduct(const Ref& a, const Ref& b, const Extents& shape) {
  auto result = std::make_shared<Tensor>();
  result->kind = a->kind;
  result->type = a->type;
  result->shape = shape;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back(), inner = a->shape.back();
  const int64_t blocks = result->count() / std::max<int64_t>(rows * columns, 1);
  auto multiply = [&](const auto& left, const auto& right, auto& out) {
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          auto sum = left.empty() ? 0 : left[0] * 0;
          for (int64_t k = 0; k < inner; ++k)
            sum += left[size_t((block * rows + i) * inner + k)] *
                   right[size_t((block * inner + k) * columns + j)];
          out.push_back(sum);
        }
  };
  if (a->isInteger())
    multiply(a->integers, b->integers, result->integers);
  else
    multiply(a->known, b->known, result->known);
  return result;
}

/// The growths of a product of known matrices: those of its sums of products.
void traceProduct(Growths& growths, const Tensor& a, const Tensor& b, Tensor& result) {
  const int64_t rows = result.shape[result.shape.size() - 2], columns = result.shape.back();
  const int64_t inner = a.shape.back();
  for (int64_t at = 0; at < result.count(); ++at) {
    const int64_t row = at / columns, block = row / std::max<int64_t>(rows, 1);
    Growths::Number sum;
    for (int64_t k = 0; k < inner; ++k) {
      const Growths::Number x = a.number(size_t(row * inner + k));
      const Growths::Number y = b.number(size_t((block * inner + k) * columns + at % columns));
      const Growths::Number product{growths.product(x, y), x.value * y.value};
      sum = {k == 0 ? product.id : growths.sum(sum, product), sum.value + product.value};
    }
    result.growths.push_back(growths.stored(sum.id, result.type));
  }
}

/// A row of a product of numbers. Rows of the second matrix are read in order.
class ProductRow {
public:
  ProductRow(const Field& field, int64_t columns)
      : p(field.modulusP()), q(field.modulusQ()), sumsP(size_t(columns)), sumsQ(size_t(columns)) {}

  /// Appends the product of a row and a matrix to `out`.
  void append(llvm::ArrayRef<Exact> row, const Exact* matrix, std::vector<Exact>& out) {
    const uint64_t wrapP = p << 32, wrapQ = q << 32;
    std::fill(sumsP.begin(), sumsP.end(), 0);
    std::fill(sumsQ.begin(), sumsQ.end(), 0);
    for (const Exact& x : row)
      for (size_t j = 0; j < sumsP.size(); ++j, ++matrix) {
        sumsP[j] += uint64_t(x.p) * matrix->p;
        sumsQ[j] += uint64_t(x.q) * matrix->q;
        sumsP[j] -= sumsP[j] >= wrapP ? wrapP : 0;
        sumsQ[j] -= sumsQ[j] >= wrapQ ? wrapQ : 0;
      }
    for (size_t j = 0; j < sumsP.size(); ++j)
      out.push_back({uint32_t(sumsP[j] % p), uint32_t(sumsQ[j] % q)});
  }

private:
  uint64_t p, q;
  std::vector<uint64_t> sumsP, sumsQ;
};

bool isPlain(const Ref& tensor) {
  return llvm::all_of(tensor->reals, [](const Exact& x) { return x.isNumber() && x.hasExponent; });
}

} // namespace

Ref matrixProduct(Call& call, const Ref& first, const Ref& second) {
  if (first->rank() == 0 || second->rank() == 0)
    return nullptr;
  const bool isVectorA = first->rank() == 1, isVectorB = second->rank() == 1;
  Ref a = isVectorA ? reshaped(first, {1, first->shape[0]}) : first;
  Ref b = isVectorB ? reshaped(second, {second->shape[0], 1}) : second;
  const int64_t rows = a->shape[a->shape.size() - 2], inner = a->shape.back();
  const int64_t columns = b->shape.back();
  if (b->shape[b->shape.size() - 2] != inner)
    return nullptr;
  auto outer = broadcastShape(llvm::ArrayRef<int64_t>(a->shape).drop_back(2),
                              llvm::ArrayRef<int64_t>(b->shape).drop_back(2));
  if (!outer)
    return nullptr;
  Extents shape = *outer;
  shape.push_back(rows);
  shape.push_back(columns);
  if (elementCount(shape) < 0)
    return nullptr;
  if (a->isHollow || b->isHollow)
    return fewerAxes(hollowTensor(shape, a->isSpecial || b->isSpecial ||
                                             Constants::hasSpecial(*a) ||
                                             Constants::hasSpecial(*b)),
                     isVectorA, isVectorB);
  Extents shapeA = *outer, shapeB = *outer;
  shapeA.append({rows, inner});
  shapeB.append({inner, columns});
  const bool isKnown = !a->isReal() && a->kind == b->kind && !a->isWeight && !b->isWeight;
  if (isKnown) {
    const Ref left = broadcastTo(a, shapeA), right = broadcastTo(b, shapeB);
    const auto product = knownProduct(left, right, shape);
    constexpr int64_t mostTraced = 64; // terms of a sum
    if (const size_t last = first->shape.size() - 1; first->extentGrowth(last) != fixedGrowth)
      product->growths.assign(
          static_cast<size_t>(product->count()),
          call.math.growths.untraced(call.node.describe() + " sums as many numbers as sizes say"));
    else if (!(left->growths.empty() && right->growths.empty()) && inner <= mostTraced)
      traceProduct(call.math.growths, *left, *right, *product);
    return fewerAxes(product, isVectorA, isVectorB);
  }
  if (call.math.isBySizes && !first->isReal() && !second->isReal() &&
      first->extentGrowth(first->shape.size() - 1) != fixedGrowth)
    call.math.thresholds.noteOpen(call.node.describe() + " sums as many numbers as sizes say");
  for (const Ref& operand : {a, b})
    if (!operand->isReal())
      call.math.countElements(*operand);
  a = broadcastTo(asWeights(call, a), shapeA);
  b = asWeights(call, b);
  const bool isSharedB = b->count() == inner * columns; // all blocks have one second operand
  if (!isSharedB)
    b = broadcastTo(b, shapeB);
  auto result = std::make_shared<Tensor>();
  result->shape = shape;
  call.math.work += result->count() * inner;
  result->reals.reserve(static_cast<size_t>(result->count()));
  const int64_t blocks = elementCount(*outer);
  const bool areNumbers = isPlain(a) && isPlain(b);
  ProductRow sums(call.field(), columns);
  for (int64_t block = 0; block < blocks; ++block) {
    const Exact* matrix = b->reals.data() + (isSharedB ? 0 : block * inner * columns);
    for (int64_t i = 0; i < rows; ++i) {
      const Exact* row = a->reals.data() + (block * rows + i) * inner;
      if (areNumbers) {
        sums.append({row, size_t(inner)}, matrix, result->reals);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j) {
        ExactSum sum(call.field());
        for (int64_t k = 0; k < inner; ++k)
          sum.add(row[k], matrix[k * columns + j]);
        result->reals.push_back(sum.sum(true));
      }
    }
  }
  return fewerAxes(result, isVectorA, isVectorB);
}

namespace {

Results matMul(Call& call) {
  Ref product = matrixProduct(call, call.in(0), call.in(1));
  return product ? Results{product} : call.fail("its operands do not fit");
}

Ref flipped(const Ref& tensor) {
  std::vector<int64_t> order(tensor->shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (order.size() >= 2)
    std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transposed(tensor, order);
}

Results gemm(Call& call) {
  const Ref a = call.integer("transA", 0) ? flipped(call.in(0)) : call.in(0);
  const Ref b = call.integer("transB", 0) ? flipped(call.in(1)) : call.in(1);
  Ref result = matrixProduct(call, call.real(a), call.real(b));
  const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
  if (result && alpha != 1)
    result = multiplyReals(call, result, realScalar(call, alpha));
  if (result && call.in(2)) {
    Ref added = call.in(2);
    if (beta != 1)
      added = multiplyReals(call, call.real(added), realScalar(call, beta));
    result = addReals(call, result, added);
  }
  return result ? Results{result} : call.fail("its operands do not fit");
}

Results fusedMatMul(Call& call) {
  const Ref a = call.integer("transA", 0) ? flipped(call.in(0)) : call.in(0);
  const Ref b = call.integer("transB", 0) ? flipped(call.in(1)) : call.in(1);
  if (call.integer("transBatchA", 0) || call.integer("transBatchB", 0))
    return call.unsupported("its batch is transposed");
  Ref result = matrixProduct(call, call.real(a), call.real(b));
  if (result)
    result = multiplyReals(call, result, realScalar(call, call.number("alpha", 1)));
  return result ? Results{result} : call.fail("its operands do not fit");
}

Results einsum(Call& call) {
  std::string equation = call.text("equation", "");
  llvm::erase_if(equation, [](char c) { return c == ' '; });
  const size_t arrow = equation.find("->"), comma = equation.find(',');
  if (call.operands.size() != 2 || arrow == std::string::npos || comma == std::string::npos ||
      equation.find('.') != std::string::npos)
    return call.unsupported("its equation is unknown");
  const std::string ofA = equation.substr(0, comma);
  const std::string ofB = equation.substr(comma + 1, arrow - comma - 1);
  const std::string ofResult = equation.substr(arrow + 2);
  const Ref a = call.real(0), b = call.real(1);
  if (ofA.size() != a->shape.size() || ofB.size() != b->shape.size())
    return call.fail("its equation does not fit");
  int64_t extents[128] = {};
  std::fill(std::begin(extents), std::end(extents), -1);
  for (const auto& [letters, operand] : {std::pair(&ofA, &a), std::pair(&ofB, &b)})
    for (size_t i = 0; i < letters->size(); ++i) {
      int64_t& extent = extents[(*letters)[i] & 127];
      if (extent >= 0 && extent != (*operand)->shape[i])
        return call.fail("extents differ");
      extent = (*operand)->shape[i];
    }
  for (char c : ofResult)
    if (extents[c & 127] < 0)
      return call.fail("its equation does not fit");
  std::string summed;
  for (char c : ofA + ofB)
    if (ofResult.find(c) == std::string::npos && summed.find(c) == std::string::npos)
      summed += c;
  Extents shape, inner;
  for (char c : ofResult)
    shape.push_back(extents[c & 127]);
  for (char c : summed)
    inner.push_back(extents[c & 127]);
  if (call.isHollow())
    return call.hollow(shape);
  const Extents stridesA = stridesOf(a->shape), stridesB = stridesOf(b->shape);
  int64_t place[128] = {};
  auto indexIn = [&](const std::string& letters, const Extents& strides) {
    int64_t at = 0;
    for (size_t i = 0; i < letters.size(); ++i)
      at += place[letters[i] & 127] * strides[i];
    return static_cast<size_t>(at);
  };
  auto result = std::make_shared<Tensor>();
  result->shape = shape;
  forEachPlace(shape, [&](llvm::ArrayRef<int64_t> outside) {
    for (size_t i = 0; i < outside.size(); ++i)
      place[ofResult[i] & 127] = outside[i];
    ExactSum sum(call.field());
    forEachPlace(inner, [&](llvm::ArrayRef<int64_t> inside) {
      for (size_t i = 0; i < inside.size(); ++i)
        place[summed[i] & 127] = inside[i];
      sum.add(a->reals[indexIn(ofA, stridesA)], b->reals[indexIn(ofB, stridesB)]);
    });
    result->reals.push_back(sum.sum(true));
  });
  return {result};
}

/// Convolution along one axis, without strides or dilations.
Results conv(Call& call) {
  const Ref x = call.real(0), w = call.real(1), bias = call.in(2) ? call.real(2) : nullptr;
  auto strides = call.integers("strides").value_or(std::vector<int64_t>{1});
  auto dilations = call.integers("dilations").value_or(std::vector<int64_t>{1});
  auto pads = call.integers("pads").value_or(std::vector<int64_t>{0, 0});
  const int64_t groups = call.integer("group", 1);
  const std::string padding = call.text("auto_pad", "NOTSET");
  if (padding == "VALID")
    pads = {0, 0};
  else if (padding != "NOTSET")
    return call.unsupported("its padding follows from extents");
  if (x->rank() != 3 || w->rank() != 3 || strides != std::vector<int64_t>{1} ||
      dilations != std::vector<int64_t>{1} || pads.size() != 2 || groups < 1 ||
      w->shape[1] * groups != x->shape[1] || w->shape[0] % groups != 0 ||
      (bias && bias->shape != Extents{w->shape[0]}))
    return call.unsupported("its form is unknown");
  const int64_t taps = w->shape[2], each = w->shape[1], outputs = w->shape[0];
  Extents shape{x->shape[0], outputs, x->shape[2] + pads[0] + pads[1] - taps + 1};
  if (elementCount(shape) < 0)
    return call.unsupported("its form is unknown");
  if (call.isHollow())
    return call.hollow(shape);
  auto result = std::make_shared<Tensor>();
  result->shape = shape;
  forEachPlace(shape, [&](llvm::ArrayRef<int64_t> place) {
    ExactSum sum(call.field());
    const int64_t group = place[1] / (outputs / groups);
    for (int64_t c = 0; c < each; ++c)
      for (int64_t k = 0; k < taps; ++k) {
        const int64_t at = place[2] + k - pads[0];
        if (at < 0 || at >= x->shape[2])
          continue;
        sum.add(x->reals[size_t((place[0] * x->shape[1] + group * each + c) * x->shape[2] + at)],
                w->reals[size_t((place[1] * each + c) * taps + k)]);
      }
    if (bias)
      sum.add(bias->reals[size_t(place[1])]);
    result->reals.push_back(sum.sum(true));
  });
  return {result};
}

} // namespace

void addProductRules(RuleTable& rules) {
  rules["MatMul"] = matMul;
  rules["Gemm"] = gemm;
  rules["Einsum"] = einsum;
  rules["Conv"] = conv;
  rules["com.microsoft::FusedMatMul"] = fusedMatMul;
}

} // namespace kvopt::check
