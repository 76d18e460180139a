// Operators that reduce along axes, and what is made of sums and extremes: softmax, cumulated sums,
// losses.
#include "meaning/definitions.h"
#include "meaning/operators/reductions.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include <limits>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;
using Axes = llvm::SmallVector<unsigned>;

} // namespace

Tensor reduced(const Tensor& data, llvm::ArrayRef<unsigned> axes, bool keeps, Reduction reduction,
               std::function<Scalar(Scalar)> before, std::function<Scalar(Scalar, Scalar)> after,
               std::optional<Type> type) {
  const Axes along(axes.begin(), axes.end());
  Scalars extents;
  Scalar count;
  for (unsigned axis = 0; axis < data.rank(); ++axis) {
    const Scalar extent = data.extent(axis);
    if (!llvm::is_contained(along, axis))
      extents.push_back(extent);
    else if (keeps)
      extents.push_back(extent.integer(1));
    if (llvm::is_contained(along, axis))
      count = count.expr() ? count * extent : extent;
  }
  return Tensor(extents, type.value_or(data.type()), [=](Index index) {
    Scalars place(data.rank());
    for (unsigned axis = 0, next = 0; axis < data.rank(); ++axis)
      if (!llvm::is_contained(along, axis))
        place[axis] = index[next++];
      else if (keeps)
        ++next;
    std::function<Scalar(size_t)> inner = [&](size_t k) -> Scalar {
      if (k == along.size())
        return before ? before(data.at(place)) : data.at(place);
      return reduce(reduction, data.extent(along[k]), [&](Scalar each) {
        place[along[k]] = each;
        return inner(k + 1);
      });
    };
    const Scalar all = inner(0);
    return after ? after(all, count.expr() ? count : all.integer(1)) : all;
  });
}

Tensor softmaxOf(Call& call, const Tensor& data, unsigned axis, bool isLogarithm) {
  const Tensor most = call.named(reduced(data, axis, true, Reduction::Maximum));
  const Tensor powers = call.named(call.elementwise(
      {data, most}, data.type(), [](auto x) { return apply(Function::Exponential, x[0] - x[1]); }));
  const Tensor total = call.named(reduced(powers, axis, true, Reduction::Sum));
  if (isLogarithm)
    return call.elementwise({data, most, total}, data.type(),
                            [](auto x) { return x[0] - x[1] - apply(Function::Logarithm, x[2]); });
  return call.elementwise({powers, total}, data.type(), [](auto x) { return x[0] / x[1]; });
}

Moments momentsOf(Call& call, const Tensor& data, llvm::ArrayRef<unsigned> axes) {
  auto mean = [](Scalar all, Scalar count) { return all / toReal(count); };
  Moments moments;
  moments.mean = call.named(reduced(data, axes, true, Reduction::Sum, nullptr, mean));
  moments.difference =
      call.elementwise({data, moments.mean}, data.type(), [](auto x) { return x[0] - x[1]; });
  moments.variance = call.named(reduced(
      moments.difference, axes, true, Reduction::Sum, [](Scalar x) { return x * x; }, mean));
  return moments;
}

namespace {

struct Kind {
  const char* name;
  Reduction reduction;
  Scalar (*before)(Scalar);
  Scalar (*after)(Scalar all, Scalar count);
};

Scalar squared(Scalar x) { return x * x; }
/// Of integers: of the type, rounded towards zero.
Scalar asSort(Scalar like, Scalar real) { return like.isReal() ? real : toInteger(real); }
Scalar meanOf(Scalar all, Scalar count) {
  return all.isReal() ? all / toReal(count) : truncatedQuotient(all, count);
}
Scalar root(Scalar all, Scalar) { return asSort(all, apply(Function::SquareRoot, all)); }
Scalar logarithm(Scalar all, Scalar) { return asSort(all, apply(Function::Logarithm, all)); }

constexpr Kind kinds[] = {
    {"ReduceSum", Reduction::Sum, nullptr, nullptr},
    {"ReduceMean", Reduction::Sum, nullptr, meanOf},
    {"ReduceMax", Reduction::Maximum, nullptr, nullptr},
    {"ReduceMin", Reduction::Minimum, nullptr, nullptr},
    {"ReduceProd", Reduction::Product, nullptr, nullptr},
    {"ReduceL1", Reduction::Sum, absolute, nullptr},
    {"ReduceL2", Reduction::Sum, squared, root},
    {"ReduceSumSquare", Reduction::Sum, squared, nullptr},
    {"ReduceLogSum", Reduction::Sum, nullptr, logarithm},
};

/// The axes of a reduction; all of them where none is given. None at all is nothing to do for the
/// element, where `noop_with_empty_axes` says so.
Axes axesOf(Call& call, const Tensor& data) {
  Axes all;
  call.ignoreAttributes({"noop_with_empty_axes"}); // where there are axes
  const auto written = call.axes("axes", 1, data.rank());
  if (written && !written->empty())
    return *written;
  if (call.integerAttribute("noop_with_empty_axes", 0) != 0)
    return {};
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    all.push_back(axis);
  return all;
}

void defineReduction(Call& call) {
  const Kind& kind =
      *llvm::find_if(kinds, [&](const Kind& each) { return call.node().op().type() == each.name; });
  const Tensor data = call[0];
  const bool keeps = call.integerAttribute("keepdims", 1) != 0;
  call.type(0, data.type());
  if (keeps)
    call.rank(0, data.type(), data.rank());
  const Axes axes = axesOf(call, data);
  const Tensor all = reduced(data, axes, keeps, kind.reduction, kind.before, kind.after);
  call.result(Tensor(listed(all.extents()), all.type(), [=, type = data.type()](Index index) {
    return wrapped(all.at(index), type);
  }));
}

/// log(sum(e^x)) = m + log(sum(e^(x - m))) with the largest m; an infinite m is left out.
void defineReduceLogSumExp(Call& call) {
  const Tensor data = call[0];
  const bool keeps = call.integerAttribute("keepdims", 1) != 0;
  call.type(0, data.type());
  if (keeps)
    call.rank(0, data.type(), data.rank());
  const Axes axes = axesOf(call, data);
  const double infinity = std::numeric_limits<double>::infinity();
  auto finite = [=](Scalar x) { return select(same(absolute(x), infinity), x.real(0), x); };
  const Tensor most = call.named(reduced(data, axes, true, Reduction::Maximum)),
               least = keeps ? most : call.named(reduced(data, axes, false, Reduction::Maximum));
  const Tensor powers = call.elementwise({data, most}, data.type(), [=](auto x) {
    return apply(Function::Exponential, x[0] - finite(x[1]));
  });
  const Tensor sums = reduced(powers, axes, keeps, Reduction::Sum);
  call.result(call.elementwise({sums, least}, data.type(), [=](auto x) {
    return apply(Function::Logarithm, x[0]) + finite(x[1]);
  }));
}

/// The first place of the extreme, or the last one.
void defineArgument(Call& call) {
  const Tensor data = call[0];
  const unsigned axis = call.axisAttribute("axis", 0, data.rank());
  if (call.isRefused())
    return;
  const bool isMost = call.node().op().type() == "ArgMax",
             isLast = call.integerAttribute("select_last_index", 0) != 0,
             keeps = call.integerAttribute("keepdims", 1) != 0;
  const Tensor extreme =
      call.named(reduced(data, axis, true, isMost ? Reduction::Maximum : Reduction::Minimum));
  const Tensor place =
      Tensor(replaced(data.extents(), axis, call.integer(1)), Type::Int64, [=](Index index) {
        const Scalar value = extreme.at(index), extent = data.extent(axis);
        // What is not a number is larger, and smaller, than all.
        auto isHere = [&](Scalar k) {
          const Scalar x = data.at(replaced(index, axis, k));
          return x.isReal() ? either(same(x, value), !same(x, x)) : same(x, value);
        };
        if (isLast)
          return last(
              extent, isHere, [](Scalar k) { return k; }, extent.integer(0));
        return reduce(Reduction::Minimum, extent,
                      [&](Scalar k) { return select(isHere(k), k, extent); });
      });
  call.result(keeps ? place : Tensor(without(data.extents(), axis), Type::Int64, [=](Index index) {
    return place.at(inserted(index, axis, data.extent(axis).integer(0)));
  }));
}

/// f along axis 1 of a matrix whose columns are the axes from `axis` on.
Tensor overLastAxes(Call& call, const Tensor& data, int64_t written,
                    llvm::function_ref<Tensor(const Tensor&, unsigned)> f) {
  const int64_t rank = data.rank(), place = written < 0 ? written + rank : written;
  if (place < 0 || place > rank) {
    call.reject(formatted("axis {} is outside rank {}", written, rank));
    return data;
  }
  const auto axis = static_cast<size_t>(place);
  const Tensor matrix = reshaped(call.formulas(), data,
                                 {product(call.formulas(), data.extents().take_front(axis)),
                                  product(call.formulas(), data.extents().drop_front(axis))});
  return reshaped(call.formulas(), f(matrix, 1), listed(data.extents()));
}

/// Up to version 12 the axes from `axis` on are one.
/// Up to version 12 the axes from `axis` on are one.
void overOneAxis(Call& call, llvm::function_ref<Tensor(const Tensor&, unsigned)> f) {
  const Tensor data = call[0];
  call.type(0, data.type());
  if (call.opset() >= 13 || !call.node().op().isOnnx()) {
    const unsigned axis = call.axisAttribute("axis", -1, std::max(data.rank(), 1u));
    const Tensor list = data.rank() ? data : reshaped(call.formulas(), data, {call.integer(1)});
    if (!call.isRefused())
      call.result(reshaped(call.formulas(), f(list, axis), listed(data.extents())));
    return;
  }
  call.result(overLastAxes(call, data, call.integerAttribute("axis", 1), f));
}
/// com.microsoft: of a sum with a bias that is broadcast to the operand.
void defineBiasSoftmax(Call& call) {
  call.ignoreAttributes({"is_inner_broadcast"}); // the bias's extents say it
  const Tensor sums =
      call.elementwise({call[0], call[1]}, call[0].type(), [](auto x) { return x[0] + x[1]; });
  if (sums.rank() != call[0].rank())
    return call.reject("the bias has more axes than the operand");
  const Tensor data = call.named(
      Tensor(listed(call[0].extents()), sums.type(), [=](Index index) { return sums.at(index); }));
  call.result(overLastAxes(
      call, data, call.integerAttribute("axis", 1),
      [&](const Tensor& matrix, unsigned axis) { return softmaxOf(call, matrix, axis); }));
}
void defineSoftmax(Call& call) {
  const bool isLogarithm = call.node().op().type() == "LogSoftmax";
  overOneAxis(call, [&](const Tensor& data, unsigned axis) {
    return softmaxOf(call, data, axis, isLogarithm);
  });
}
/// One at the first largest element.
void defineHardmax(Call& call) {
  overOneAxis(call, [&](const Tensor& data, unsigned axis) {
    const Tensor most = call.named(reduced(data, axis, true, Reduction::Maximum));
    return Tensor(listed(data.extents()), data.type(), [=](Index index) {
      const Scalar extent = data.extent(axis);
      const Scalar value = most.at(replaced(index, axis, extent.integer(0)));
      const Scalar first = reduce(Reduction::Minimum, extent, [&](Scalar k) {
        return select(same(data.at(replaced(index, axis, k)), value), k, extent);
      });
      return select(same(first, index[axis]), extent.real(1), extent.real(0));
    });
  });
}

/// Of the elements up to each place, or before it (`exclusive`), or from the other end (`reverse`).
void defineCumulated(Call& call) {
  const Tensor data = call[0];
  call.extents(0, data.type(), data.extents());
  const std::optional<int64_t> written = call.single(1).number();
  if (!written)
    return call.refuse("the axis is not constant");
  const unsigned axis = call.axis(*written, data.rank());
  if (call.isRefused())
    return;
  const bool isExclusive = call.integerAttribute("exclusive", 0) != 0,
             isReverse = call.integerAttribute("reverse", 0) != 0,
             isSum = call.node().op().type() == "CumSum";
  call.result(Tensor(listed(data.extents()), data.type(), [=, type = data.type()](Index index) {
    const Scalar place = index[axis], extent = data.extent(axis);
    const Scalar count =
        isReverse ? extent - place - (isExclusive ? 1.0 : 0.0) : place + (isExclusive ? 0.0 : 1.0);
    const Scalar start = isReverse ? extent - count : place.integer(0);
    return wrapped(reduce(isSum ? Reduction::Sum : Reduction::Product, count,
                          [&](Scalar k) { return data.at(replaced(index, axis, start + k)); }),
                   type);
  }));
}

/// -w[t] log p[t] for the class t of each place; those of a class that is ignored are 0.
void defineLoss(Call& call) {
  const bool fromScores = call.node().op().type() == "SoftmaxCrossEntropyLoss";
  const Tensor classes = call[1];
  if (call[0].rank() < 2 || !call.hasRank(1, call[0].rank() - 1) || !call.hasRank(2, 1))
    return call.reject("the scores have no classes");
  const Tensor probabilities = fromScores ? call.named(softmaxOf(call, call[0], 1, true)) : call[0];
  const Tensor weights = call.has(2) ? call[2] : Tensor();
  const Type type = call[0].type();
  const std::optional<int64_t> ignored =
      call.hasAttribute("ignore_index") ? std::optional(call.integerAttribute("ignore_index", 0))
                                        : std::nullopt;
  const std::string reduction = call.textAttribute("reduction", "mean").str();
  const Scalar count = call[0].extent(1);
  call.requireAt(
      listed(classes.extents()),
      [=](Index index) {
        const Scalar of = classes.at(index);
        const Scalar isClass = both(of >= 0, of < count);
        return ignored ? either(isClass, same(of, static_cast<double>(*ignored))) : isClass;
      },
      "a class is outside of axis 1");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    return call.refuse("the reduction is not one of ONNX's");
  auto unlessIgnored = [=](Scalar of, llvm::function_ref<Scalar()> f) {
    if (!ignored)
      return f();
    return select(
        same(of, static_cast<double>(*ignored)), [&] { return of.real(0); }, [&] { return f(); });
  };
  const Tensor weight = Tensor(listed(classes.extents()), type, [=](Index index) {
    const Scalar of = classes.at(index);
    return unlessIgnored(of, [&] { return weights ? weights.at({of}) : of.real(1); });
  });
  const Tensor loss = Tensor(listed(classes.extents()), type, [=](Index index) {
    const Scalar of = classes.at(index);
    const Scalar value = unlessIgnored(of, [&] {
      return -probabilities.at(joined({index[0], of}, index.drop_front(1)));
    });
    return value * weight.at(index);
  });
  Axes all;
  for (unsigned axis = 0; axis < classes.rank(); ++axis)
    all.push_back(axis);
  const Tensor sums = reduced(loss, all, false, Reduction::Sum);
  if (reduction == "none")
    call.result(loss);
  else if (reduction == "sum")
    call.result(sums);
  else
    call.result(call.elementwise({sums, reduced(weight, all, false, Reduction::Sum)}, type,
                                 [](auto x) { return x[0] / x[1]; }));
  if (fromScores)
    call.result(1, probabilities);
}

} // namespace

void register_reduction(Definitions& all) {
  for (const Kind& kind : kinds)
    all.add(kind.name, defineReduction);
  all.add("ReduceLogSumExp", defineReduceLogSumExp);
  all.add({"ArgMax", "ArgMin"}, defineArgument);
  all.add({"Softmax", "LogSoftmax"}, defineSoftmax);
  all.add("Hardmax", defineHardmax);
  all.add("com.microsoft::BiasSoftmax", defineBiasSoftmax);
  all.add("CumSum", defineCumulated, 11);
  all.add("CumProd", defineCumulated, 26);
  all.add("NegativeLogLikelihoodLoss", defineLoss, 12);
  all.add("SoftmaxCrossEntropyLoss", defineLoss, 12);
}

} // namespace kvopt::meaning
