// Sums of products: matrix products and Einsum.
#include "meaning/definitions.h"
#include "meaning/operators/products.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::meaning {

Tensor matrixProduct(Call& call, Tensor a, Tensor b, ir::ElementType type) {
  const bool isRow = a.rank() == 1, isColumn = b.rank() == 1;
  if (a.rank() == 0 || b.rank() == 0) {
    call.reject("a factor is a scalar");
    return a;
  }
  if (isRow)
    a = Tensor({call.integer(1), a.extent(0)}, a.type(),
               [a](Index index) { return a.at({index[1]}); });
  if (isColumn)
    b = Tensor({b.extent(0), call.integer(1)}, b.type(),
               [b](Index index) { return b.at({index[0]}); });
  const unsigned rankA = a.rank(), rankB = b.rank();
  const Tensor leadA(listed(a.extents().drop_back(2)), type, nullptr),
      leadB(listed(b.extents().drop_back(2)), type, nullptr);
  Scalars extents = call.broadcastExtents({leadA, leadB});
  const Scalar depth =
      call.equalExtents(a.extent(rankA - 1), b.extent(rankB - 2), "inner extents differ");
  if (!isRow)
    extents.push_back(a.extent(rankA - 2));
  if (!isColumn)
    extents.push_back(b.extent(rankB - 1));
  return Tensor(extents, type, [=](Index index) {
    const size_t tail = (isRow ? 0u : 1u) + (isColumn ? 0u : 1u);
    const Index lead = index.drop_back(tail);
    const Scalar row = isRow ? depth.integer(0) : index[lead.size()];
    const Scalar column = isColumn ? depth.integer(0) : index.back();
    const Scalars placeA = broadcastIndex(leadA, lead), placeB = broadcastIndex(leadB, lead);
    return wrapped(sum(depth,
                       [&](Scalar k) {
                         return a.at(joined(placeA, {row, k})) * b.at(joined(placeB, {k, column}));
                       }),
                   type);
  });
}

Tensor lastTwoExchanged(const Tensor& matrix) {
  llvm::SmallVector<int64_t> order;
  for (unsigned axis = 0; axis < matrix.rank(); ++axis)
    order.push_back(axis);
  if (order.size() < 2)
    return matrix;
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transposed(matrix, order);
}

Tensor withoutZeroPoint(Call& call, const Tensor& codes, unsigned operand, int64_t axis) {
  const Tensor zero = call.has(operand) ? call[operand] : Tensor();
  const unsigned along =
      static_cast<unsigned>(std::max<int64_t>(axis < 0 ? axis + codes.rank() : axis, 0));
  return Tensor(listed(codes.extents()), ir::ElementType::Int32, [=](Index index) {
    const Scalar code = codes.at(index);
    if (!zero)
      return code;
    if (zero.rank() == 0 || (zero.rank() == 1 && zero.extent(0).is(1)))
      return code - zero.at(Scalars(zero.rank(), code.integer(0)));
    return code -
           (zero.rank() == 1 ? zero.at({index[along]}) : zero.at(broadcastIndex(zero, index)));
  });
}

namespace {

using Type = ir::ElementType;

void defineMatMul(Call& call) {
  call.result(matrixProduct(call, call[0], call[1], call[0].type()));
}
void defineMatMulInteger(Call& call) {
  call.result(matrixProduct(call, withoutZeroPoint(call, call[0], 2, -2),
                            withoutZeroPoint(call, call[1], 3, -1), Type::Int32));
}

Tensor scaledBy(Call& call, const Tensor& tensor, double factor) {
  if (factor == 1)
    return tensor;
  return call.elementwise({tensor}, tensor.type(), [=](auto x) {
    return x[0].isReal() ? x[0] * factor : toInteger(toReal(x[0]) * factor);
  });
}
/// transBatch moves the first axis before the last one; trans exchanges the last two, after that.
void defineFusedMatMul(Call& call) {
  auto factor = [&](unsigned operand, llvm::StringRef matrix, llvm::StringRef batch) {
    Tensor all = call[operand];
    if (call.integerAttribute(batch, 0) != 0 && all.rank() > 1) {
      llvm::SmallVector<int64_t> order;
      for (unsigned axis = 1; axis + 1 < all.rank(); ++axis)
        order.push_back(axis);
      order.append({0, int64_t(all.rank()) - 1});
      all = transposed(all, order);
    }
    return call.integerAttribute(matrix, 0) != 0 ? lastTwoExchanged(all) : all;
  };
  const Tensor all = matrixProduct(call, factor(0, "transA", "transBatchA"),
                                   factor(1, "transB", "transBatchB"), call[0].type());
  call.result(scaledBy(call, call.named(all), call.realAttribute("alpha", 1)));
}
/// alpha A B + beta C; none for operands that are no matrices.
std::optional<Tensor> generalProduct(Call& call) {
  if (!call.hasRank(0, 2) || !call.hasRank(1, 2))
    return std::nullopt;
  call.ignoreAttributes({"beta"}); // without a third operand
  const bool isA = call.integerAttribute("transA", 0) != 0,
             isB = call.integerAttribute("transB", 0) != 0;
  const Type type = call[0].type();
  const Tensor all = call.named(matrixProduct(call, isA ? lastTwoExchanged(call[0]) : call[0],
                                              isB ? lastTwoExchanged(call[1]) : call[1], type));
  const Tensor product = scaledBy(call, all, call.realAttribute("alpha", 1));
  if (!call.has(2))
    return product;
  const Tensor more = scaledBy(call, call[2], call.realAttribute("beta", 1));
  if (more.rank() > 2)
    call.reject("the bias is not a matrix");
  const Tensor sums = call.elementwise({product, more}, type, [](auto x) { return x[0] + x[1]; });
  return Tensor(listed(product.extents()), type, [=](Index index) { return sums.at(index); });
}
void defineGemm(Call& call) {
  if (std::optional<Tensor> all = generalProduct(call))
    call.result(*all);
}
/// com.microsoft's Gemm with an activation of the sum.
void defineFusedGemm(Call& call) {
  const std::optional<Tensor> all = generalProduct(call);
  if (!all)
    return;
  call.result(*all);
  call.ignoreAttributes({"activation_alpha", "activation_beta"}); // of functions without them
  const std::string name = call.textAttribute("activation", "").str();
  if (name.empty())
    return;
  const bool isHard = name == "HardSigmoid";
  const double alpha = call.realAttribute("activation_alpha", isHard ? 0.2 : 0.01),
               beta = call.realAttribute("activation_beta", 0.5);
  Scalar (*function)(Scalar, double, double) = nullptr;
  if (name == "Relu")
    function = [](Scalar x, double, double) { return maximum(x, 0); };
  else if (name == "Sigmoid")
    function = [](Scalar x, double, double) {
      return 1.0 / (1.0 + apply(Function::Exponential, -x));
    };
  else if (name == "Tanh")
    function = [](Scalar x, double, double) { return apply(Function::HyperbolicTangent, x); };
  else if (name == "LeakyRelu")
    function = [](Scalar x, double a, double) { return select(x < 0, x * a, x); };
  else if (isHard)
    function = [](Scalar x, double a, double b) { return maximum(minimum(x * a + b, 1), 0); };
  else
    return call.refuse("the activation '" + name + "' is not defined");
  call.result(call.elementwise({*all}, call[0].type(),
                               [=](auto x) { return function(x[0], alpha, beta); }));
}
/// One term of an equation: a letter for each axis; those of the ellipsis are numbers, from the
/// end.
using Term = std::vector<std::string>;

std::optional<Term> termOf(llvm::StringRef text, size_t rank, size_t most) {
  Term term;
  const size_t dots = text.find("...");
  if (dots == llvm::StringRef::npos) {
    for (char letter : text)
      term.emplace_back(1, letter);
    return term.size() == rank ? std::optional(term) : std::nullopt;
  }
  const llvm::StringRef before = text.take_front(dots), after = text.drop_front(dots + 3);
  if (before.size() + after.size() > rank)
    return std::nullopt;
  const size_t hidden = rank - before.size() - after.size();
  for (char letter : before)
    term.emplace_back(1, letter);
  for (size_t k = most - hidden; k < most; ++k)
    term.push_back("." + std::to_string(k));
  for (char letter : after)
    term.emplace_back(1, letter);
  return term;
}

void defineEinsum(Call& call) {
  std::string equation = call.textAttribute("equation", "").str();
  llvm::erase_value(equation, ' ');
  for (char letter : equation)
    if (!llvm::isAlpha(letter) && !llvm::StringRef(",.->").contains(letter))
      return call.reject(formatted("the equation has a '{}'", letter));
  const auto [left, right] = llvm::StringRef(equation).split("->");
  llvm::SmallVector<llvm::StringRef> texts;
  left.split(texts, ',');
  if (texts.size() != call.count())
    return call.reject(
        formatted("the equation has {} terms for {} operands", texts.size(), call.count()));
  size_t most = 0;
  for (unsigned k = 0; k < call.count(); ++k)
    if (texts[k].contains("...") && call[k].rank() + 3 >= texts[k].size())
      most = std::max<size_t>(most, call[k].rank() + 3 - texts[k].size());
  std::vector<Term> terms;
  std::map<std::string, Scalar> sizes;
  std::map<std::string, unsigned> count;
  std::vector<Tensor> operands;
  for (unsigned k = 0; k < call.count(); ++k) {
    const std::optional<Term> term = termOf(texts[k], call[k].rank(), most);
    if (!term)
      return call.reject(
          formatted("operand {} is {}, its term is '{}'", k, call.text(k), texts[k].str()));
    for (unsigned axis = 0; axis < term->size(); ++axis) {
      Scalar& size = sizes[(*term)[axis]];
      const Scalar extent = call[k].extent(axis);
      size = size.expr()
                 ? call.broadcastExtent(
                       size, extent,
                       [&] { return formatted("extents of index '{}' differ", (*term)[axis]); })
                 : extent;
      ++count[(*term)[axis]];
    }
    terms.push_back(*term);
    operands.push_back(call[k]);
  }
  Term result;
  if (equation.find("->") != std::string::npos) {
    const size_t letters = right.contains("...") ? right.size() - 3 + most : right.size();
    const std::optional<Term> term = termOf(right, letters, most);
    if (!term)
      return call.reject("the result of the equation has another number of axes");
    result = *term;
  } else {
    for (size_t k = 0; k < most; ++k)
      result.push_back("." + std::to_string(k));
    for (const auto& [letter, uses] : count)
      if (letter[0] != '.' && uses == 1)
        result.push_back(letter);
  }
  std::vector<std::string> summed;
  Scalars extents;
  for (const std::string& letter : result) {
    if (!sizes.count(letter))
      return call.reject("the result has an index that no operand has");
    if (llvm::count(result, letter) != 1)
      return call.reject(formatted("the result has index '{}' twice", letter));
    extents.push_back(sizes[letter]);
  }
  for (const auto& [letter, size] : sizes)
    if (!llvm::is_contained(result, letter))
      summed.push_back(letter);
  const Type type = call[0].type();
  call.result(Tensor(extents, type, [=](Index index) {
    std::map<std::string, Scalar> places;
    for (size_t k = 0; k < result.size(); ++k)
      places[result[k]] = index[k];
    std::function<Scalar(size_t)> inner = [&](size_t next) -> Scalar {
      if (next < summed.size())
        return sum(sizes.at(summed[next]), [&](Scalar k) {
          places[summed[next]] = k;
          return inner(next + 1);
        });
      Scalar all;
      for (size_t k = 0; k < operands.size(); ++k) {
        Scalars at;
        for (unsigned axis = 0; axis < terms[k].size(); ++axis) {
          const Scalar extent = operands[k].extent(axis);
          at.push_back(extent.is(1) ? extent.integer(0) : places.at(terms[k][axis]));
        }
        const Scalar element = operands[k].at(at);
        all = k == 0 ? element : all * element;
      }
      return all;
    };
    return wrapped(inner(0), type);
  }));
}

/// The determinant along the first row.
void defineDet(Call& call) {
  const Tensor data = call[0];
  const std::optional<int64_t> side =
      data.rank() < 2 ? std::nullopt : data.extent(data.rank() - 1).number();
  if (!side || *side > 5 || data.extent(data.rank() - 2).number() != side)
    return call.refuse("the matrices are not square, or not small");
  const Scalars lead = listed(data.extents().drop_back(2));
  call.result(Tensor(lead, data.type(), [=](Index index) {
    const Scalar zero = data.extent(0).integer(0);
    std::function<Scalar(int64_t, std::vector<int64_t>)> expand =
        [&](int64_t row, std::vector<int64_t> columns) -> Scalar {
      Scalar all = zero.real(columns.empty() ? 1 : 0);
      for (size_t k = 0; k < columns.size(); ++k) {
        std::vector<int64_t> rest = columns;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(k));
        const Scalar element =
            data.at(joined(index, {zero.integer(row), zero.integer(columns[k])}));
        const Scalar part = element * expand(row + 1, rest);
        all = k % 2 == 0 ? all + part : all - part;
      }
      return all;
    };
    std::vector<int64_t> columns;
    for (int64_t k = 0; k < *side; ++k)
      columns.push_back(k);
    return expand(0, columns);
  }));
}

} // namespace

void register_product(Definitions& all) {
  all.add("MatMul", defineMatMul);
  all.add("MatMulInteger", defineMatMulInteger, 10);
  all.add("com.microsoft::FusedMatMul", defineFusedMatMul);
  all.add("Gemm", defineGemm);
  all.add("com.microsoft::FusedGemm", defineFusedGemm);
  all.add("Einsum", defineEinsum, 12);
  all.add("Det", defineDet, 11);
}

} // namespace kvopt::meaning
