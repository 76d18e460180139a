// Operators that move elements: an element of the result is one of an operand at computed indices.
#include "meaning/definitions.h"
#include "meaning/expression/printer.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

/// A tensor over the elements of another one.
Tensor viewOf(const Tensor& data, Scalars extents, std::function<Scalars(Index)> place) {
  return Tensor(std::move(extents), data.type(),
                [data, place = std::move(place)](Index index) { return data.at(place(index)); });
}

/// The number of elements below `limit`, of `start`, `start + step`, …, for a step that is known.
Scalar stepsBetween(Scalar start, Scalar limit, int64_t step) {
  const Scalar count = step > 0 ? quotientUp(limit - start, limit.integer(step))
                                : quotientUp(start - limit, limit.integer(-step));
  return maximum(count, 0);
}

// Shapes.

/// `start` and `end` (version 15) are clamped to the rank.
void defineShape(Call& call) {
  const Tensor data = call[0];
  const auto rank = static_cast<int64_t>(data.rank());
  auto clamped = [&](int64_t place) {
    return std::clamp<int64_t>(place < 0 ? place + rank : place, 0, rank);
  };
  const int64_t start = clamped(call.integerAttribute("start", 0)),
                end = clamped(call.integerAttribute("end", rank));
  Scalars extents;
  for (int64_t axis = start; axis < end; ++axis)
    extents.push_back(data.extent(static_cast<unsigned>(axis)));
  call.result(listOf(call.formulas(), extents));
}
void defineSize(Call& call) {
  const Scalar count = call[0].count(call.formulas());
  call.result(Tensor({}, Type::Int64, [=](Index) { return count; }));
}

/// 0 keeps an extent (unless `allowzero`), and -1 is what is left.
void defineReshape(Call& call) {
  const Tensor data = call[0];
  call.type(0, data.type());
  Scalars wanted;
  if (auto attribute = call.integersAttribute("shape"))
    for (int64_t extent : *attribute)
      wanted.push_back(call.integer(extent));
  else
    wanted = call.elements(1);
  const bool keepsZeros = call.integerAttribute("allowzero", 0) != 0;
  std::optional<size_t> open;
  for (size_t axis = 0; axis < wanted.size(); ++axis)
    if (wanted[axis].is(-1)) {
      if (open)
        return call.reject("the target shape has two extents of -1");
      open = axis;
    } else if (wanted[axis].is(0) && !keepsZeros) {
      if (axis >= data.rank())
        return call.reject(
            formatted("extent {} of the target shape copies an axis that {} does not have", axis,
                      call.text(0)));
      wanted[axis] = data.extent(static_cast<unsigned>(axis));
    } else if (wanted[axis].number() && *wanted[axis].number() < 0) {
      return call.reject(formatted("the target shape has extent {}", *wanted[axis].number()));
    }
  const Scalar total = data.count(call.formulas());
  if (open) {
    const Scalar others = product(call.formulas(), without(wanted, *open));
    if (others.is(0))
      return call.reject("an extent of -1 with an empty axis");
    wanted[*open] = quotient(total, others);
  }
  call.equalExtents(product(call.formulas(), wanted), total, "element counts differ");
  call.result(reshaped(call.formulas(), data, wanted));
}
void defineFlatten(Call& call) {
  const Tensor data = call[0];
  const auto rank = static_cast<int64_t>(data.rank());
  const int64_t written = call.integerAttribute("axis", 1);
  const int64_t axis = written < 0 ? written + rank : written;
  if (axis < 0 || axis > rank)
    return call.reject(formatted("axis {} is outside rank {}", written, rank));
  const auto cut = static_cast<size_t>(axis);
  call.result(reshaped(call.formulas(), data,
                       {product(call.formulas(), data.extents().take_front(cut)),
                        product(call.formulas(), data.extents().drop_front(cut))}));
}
void defineTranspose(Call& call) {
  const Tensor data = call[0];
  llvm::SmallVector<int64_t> order;
  if (auto written = call.integersAttribute("perm"))
    order = *written;
  else
    for (unsigned axis = data.rank(); axis-- > 0;)
      order.push_back(axis);
  llvm::SmallVector<int64_t> sorted = order;
  llvm::sort(sorted);
  if (sorted.size() != data.rank())
    return call.reject(
        formatted("perm has {} axes, {} has {}", sorted.size(), call.text(0), data.rank()));
  for (size_t k = 0; k < sorted.size(); ++k)
    if (sorted[k] != static_cast<int64_t>(k))
      return call.reject("perm is not an order of the axes");
  call.result(transposed(data, order));
}
void defineUnsqueeze(Call& call) {
  const Tensor data = call[0];
  call.type(0, data.type());
  if (call.has(1) && call[1].rank() == 1)
    if (const std::optional<int64_t> added = call[1].extent(0).number())
      call.rank(0, data.type(), data.rank() + static_cast<size_t>(*added));
  const auto count = call.integers("axes", 1);
  if (!count)
    return call.reject("no axes are given");
  const size_t rank = data.rank() + count->size();
  const llvm::SmallVector<unsigned> axes = *call.axes("axes", 1, rank);
  Scalars extents;
  for (unsigned axis = 0, next = 0; axis < rank; ++axis)
    extents.push_back(llvm::is_contained(axes, axis) || next >= data.rank() ? call.integer(1)
                                                                            : data.extent(next++));
  call.result(viewOf(data, extents, [=](Index index) {
    Scalars kept;
    for (unsigned axis = 0; axis < rank; ++axis)
      if (!llvm::is_contained(axes, axis))
        kept.push_back(index[axis]);
    return kept;
  }));
}
void defineSqueeze(Call& call) {
  const Tensor data = call[0];
  call.type(0, data.type());
  if (call.has(1) && call[1].rank() == 1)
    if (const std::optional<int64_t> removed = call[1].extent(0).number();
        removed && *removed <= data.rank())
      call.rank(0, data.type(), data.rank() - static_cast<size_t>(*removed));
  llvm::SmallVector<unsigned> axes;
  if (auto written = call.axes("axes", 1, data.rank()))
    axes = *written;
  else
    for (unsigned axis = 0; axis < data.rank(); ++axis) {
      const std::optional<bool> isOne =
          call.formulas().booleanOf(same(data.extent(axis), 1).expr());
      if (!isOne)
        call.refuse("the axes of extent 1 are not known");
      if (isOne == true)
        axes.push_back(axis);
    }
  if (call.isRefused())
    return;
  Scalars extents;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    if (!llvm::is_contained(axes, axis))
      extents.push_back(data.extent(axis));
    else
      call.equalExtents(data.extent(axis), call.integer(1),
                        [&] { return formatted("axis {} of {} is not 1", axis, call.text(0)); });
  call.result(viewOf(data, extents, [=, zero = call.integer(0)](Index index) {
    Scalars all;
    for (unsigned axis = 0, next = 0; axis < data.rank(); ++axis)
      all.push_back(llvm::is_contained(axes, axis) ? zero : index[next++]);
    return all;
  }));
}
void defineExpand(Call& call) {
  const Tensor data = call[0];
  call.type(0, data.type());
  const Scalars wanted = call.elements(1);
  const Tensor shape(wanted, data.type(), nullptr);
  call.result(viewOf(data, call.broadcastExtents({data, shape}),
                     [=](Index index) { return broadcastIndex(data, index); }));
}
void defineTile(Call& call) {
  const Tensor data = call[0];
  call.rank(0, data.type(), data.rank());
  const Scalars times = call.elements(1);
  if (times.size() != data.rank())
    return call.reject(formatted("{} repeats for {}", times.size(), call.text(0)));
  Scalars extents;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    extents.push_back(data.extent(axis) * times[axis]);
  call.result(viewOf(data, extents, [=](Index index) {
    Scalars all;
    for (unsigned axis = 0; axis < data.rank(); ++axis)
      all.push_back(remainder(index[axis], data.extent(axis)));
    return all;
  }));
}

// Cuts and joins.

void defineConcat(Call& call) {
  std::vector<Tensor> parts;
  for (unsigned k = 0; k < call.count(); ++k)
    parts.push_back(call[k]);
  if (parts.empty())
    return call.reject("there are no operands");
  const unsigned axis = call.axisAttribute("axis", 1, parts[0].rank());
  if (call.isRefused())
    return;
  Scalars extents = listed(parts[0].extents()), ends{parts[0].extent(axis)};
  for (unsigned k = 1; k < parts.size(); ++k) {
    if (parts[k].rank() != parts[0].rank())
      return call.reject(formatted("ranks of {} and {} differ", call.text(0), call.text(k)));
    for (unsigned other = 0; other < parts[0].rank(); ++other)
      if (other != axis)
        extents[other] = call.equalExtents(extents[other], parts[k].extent(other), [&] {
          return formatted("extents of axis {} differ", other);
        });
    ends.push_back(ends.back() + parts[k].extent(axis));
  }
  extents[axis] = ends.back();
  call.result(Tensor(extents, parts[0].type(), [=](Index index) {
    // What comes first is decided first, and each part is made where it is read.
    Formulas& f = index[axis].formulas();
    std::vector<std::unique_ptr<Formulas::Branch>> branches;
    Scalars conditions, values;
    for (size_t k = 0; k < parts.size(); ++k) {
      const Scalar place = k == 0 ? index[axis] : index[axis] - ends[k - 1];
      auto value = [&] { return parts[k].at(replaced(index, axis, place)); };
      if (k + 1 == parts.size()) {
        values.push_back(value());
        break;
      }
      const Scalar isHere = index[axis] < ends[k];
      {
        Formulas::Branch branch(f, isHere.expr());
        values.push_back(value());
      }
      conditions.push_back(isHere);
      branches.push_back(std::make_unique<Formulas::Branch>(f, isHere.expr(), false));
    }
    Scalar all = values.back();
    for (size_t k = conditions.size(); k-- > 0;) {
      branches.pop_back();
      all = select(conditions[k], values[k], all);
    }
    return all;
  }));
}

struct Cut {
  Scalar start, end;
  int64_t step = 1;
};

/// Negative places count from the end; places are clamped to the axis, to -1 for reversed steps.
void defineSlice(Call& call) {
  call.nameExtents();
  const Tensor data = call[0];
  call.rank(0, data.type(), data.rank());
  Scalars starts, ends;
  llvm::SmallVector<int64_t> steps;
  if (auto written = call.integersAttribute("starts")) {
    for (int64_t start : *written)
      starts.push_back(call.integer(start));
    for (int64_t end : call.integersAttribute("ends").value_or(llvm::SmallVector<int64_t>()))
      ends.push_back(call.integer(end));
  } else {
    starts = call.elements(1);
    ends = call.elements(2);
    if (call.has(4))
      steps = call.numbers(4);
  }
  llvm::SmallVector<int64_t> axes;
  if (auto written = call.integers("axes", 3))
    axes = *written;
  else
    for (size_t axis = 0; axis < starts.size(); ++axis)
      axes.push_back(static_cast<int64_t>(axis));
  steps.resize(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size())
    return call.reject("starts, ends, axes and steps have different lengths");
  Scalars extents = listed(data.extents());
  std::vector<std::optional<Cut>> cuts(data.rank());
  for (size_t k = 0; k < starts.size(); ++k) {
    const unsigned axis = call.axis(axes[k], data.rank());
    if (call.isRefused())
      return;
    const int64_t step = steps[k];
    if (step == 0)
      return call.reject("a step is 0");
    const Scalar extent = data.extent(axis);
    const double low = step > 0 ? 0 : -1;
    auto clamped = [&](Scalar place, Scalar least, Scalar most) {
      if (const std::optional<int64_t> number = place.number()) // sums of it have 64 bits
        place = call.integer(std::clamp<int64_t>(*number, -2 * mostExtent, 2 * mostExtent));
      const Scalar counted = select(
          place < 0, [&] { return place + extent; }, [&] { return place; });
      // Of an empty axis, reversed, there is nothing: the last place is before the first one.
      return minimum(maximum(counted, least), most);
    };
    const Scalar most = step > 0 ? extent : extent - 1.0;
    Cut cut;
    cut.step = step;
    const Scalar length = ends[k] - starts[k];
    Formulas& f = call.formulas();
    if (call.node().isWithinAssumed() && step == 1 && !(starts[k].number() && ends[k].number()) &&
        f.isProvedNonNegative(starts[k].expr()) && f.isProvedNonNegative(length.expr())) {
      cut.start = starts[k];
      extents[axis] = length;
      cuts[axis] = cut;
      continue;
    }
    cut.start = clamped(starts[k], call.integer(0), most);
    cut.end = clamped(ends[k], call.integer(static_cast<int64_t>(low)), most);
    extents[axis] = stepsBetween(cut.start, cut.end, step);
    cuts[axis] = cut;
  }
  call.result(viewOf(data, extents, [=](Index index) {
    Scalars all = listed(index);
    for (size_t axis = 0; axis < cuts.size(); ++axis)
      if (cuts[axis])
        all[axis] = cuts[axis]->start + index[axis] * static_cast<double>(cuts[axis]->step);
    return all;
  }));
}

void defineSplit(Call& call) {
  const Tensor data = call[0];
  const unsigned axis = call.axisAttribute("axis", 0, data.rank());
  if (call.isRefused())
    return;
  for (unsigned k = 0; k < call.resultCount(); ++k) {
    Scalars open = listed(data.extents());
    open[axis] = Scalar(call.formulas(), call.formulas().unknown(Sort::Integer));
    call.extents(k, data.type(), open);
  }
  const Scalar extent = data.extent(axis);
  Scalars sizes;
  if (auto written = call.integersAttribute("split"))
    for (int64_t size : *written)
      sizes.push_back(call.integer(size));
  else if (call.has(1))
    sizes = call.elements(1);
  else {
    const int64_t count = call.integerAttribute("num_outputs", call.resultCount());
    if (count <= 0 || (call.opset() < 18 && extent.number() && *extent.number() % count != 0))
      return call.reject(formatted("{} does not split into {} equal parts",
                                   printed(call.formulas(), extent.expr()), count));
    const Scalar each = quotientUp(extent, call.integer(count));
    for (int64_t k = 0; k + 1 < count; ++k)
      sizes.push_back(each);
    sizes.push_back(extent - each * static_cast<double>(count - 1));
    if (sizes.back().number() && *sizes.back().number() < 0)
      return call.refuse("the axis has not as many parts");
  }
  if (sizes.size() != call.resultCount())
    return call.reject(formatted("{} sizes for {} results", sizes.size(), call.resultCount()));
  for (Scalar size : sizes)
    if (size.number() && *size.number() < 0)
      return call.reject(formatted("size {} is negative", *size.number()));
  Scalar start = call.integer(0);
  for (unsigned k = 0; k < sizes.size(); ++k) {
    call.result(k, viewOf(data, replaced(data.extents(), axis, sizes[k]),
                          [=](Index index) { return replaced(index, axis, index[axis] + start); }));
    start = start + sizes[k];
  }
  call.equalExtents(start, extent, "the sum of sizes and the extent differ");
}

/// Negative numbers of rows take rows away.
void definePad(Call& call) {
  const Tensor data = call[0];
  const std::string mode = call.textAttribute("mode", "constant").str();
  call.ignoreAttributes({"value"});
  if (mode != "constant" && mode != "edge" && mode != "wrap" && mode != "reflect")
    return call.refuse("the mode is not one of ONNX's");
  call.rank(0, data.type(), data.rank());
  Scalars written;
  if (auto attribute = call.integersAttribute("pads"))
    for (int64_t rows : *attribute)
      written.push_back(call.integer(rows));
  else
    written = call.elements(1);
  llvm::SmallVector<int64_t> axes;
  if (call.has(3))
    axes = call.numbers(3);
  else
    for (unsigned axis = 0; axis < data.rank(); ++axis)
      axes.push_back(axis);
  if (written.size() != 2 * axes.size())
    return call.reject(formatted("{} pads for {} axes", written.size(), axes.size()));
  Scalars before(data.rank()), extents = listed(data.extents());
  for (size_t k = 0; k < axes.size(); ++k) {
    const unsigned axis = call.axis(axes[k], data.rank());
    if (call.isRefused() || before[axis].expr())
      return call.refuse("an axis occurs twice");
    before[axis] = written[k];
    extents[axis] = extents[axis] + written[k] + written[k + axes.size()];
    if (mode != "constant")
      call.require(either(data.extent(axis) > 0, same(extents[axis], 0)),
                   "an axis has no element to repeat");
  }
  if (call.has(2) && (call[2].type() != data.type() || !call[2].count(call.formulas()).is(1)))
    return call.refuse("the fill is not one element of the operand's type");
  const Scalar fill =
      call.has(2) ? call.single(2) : call.number(call.realAttribute("value", 0), data.type());
  call.result(Tensor(extents, data.type(), [=](Index index) {
    Scalars place;
    Scalar isInside = fill.boolean(true);
    for (unsigned axis = 0; axis < data.rank(); ++axis) {
      const Scalar extent = data.extent(axis);
      const Scalar at = before[axis].expr() ? index[axis] - before[axis] : index[axis];
      if (mode == "constant") {
        isInside = both(isInside, both(at >= 0, at < extent));
        place.push_back(at);
      } else if (mode == "edge") {
        place.push_back(maximum(minimum(at, extent - 1.0), 0));
      } else if (mode == "wrap") {
        place.push_back(remainder(at, extent));
      } else { // reflect: to and fro between both ends
        const Scalar period = maximum(extent * 2.0 - 2.0, 1);
        place.push_back(extent - 1.0 - absolute(extent - 1.0 - remainder(at, period)));
      }
    }
    return select(
        isInside, [&] { return data.at(place); }, [&] { return fill; });
  }));
}
void defineCenterCropPad(Call& call) {
  const Tensor data = call[0];
  const Scalars wanted = call.elements(1);
  llvm::SmallVector<unsigned> axes;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    axes.push_back(axis);
  if (auto written = call.integersAttribute("axes")) {
    axes.clear();
    for (int64_t axis : *written)
      axes.push_back(call.axis(axis, data.rank()));
  }
  if (call.isRefused() || wanted.size() != axes.size())
    return call.reject("extents are not as many as axes");
  Scalars extents = listed(data.extents()), offset(data.rank(), call.integer(0));
  for (size_t k = 0; k < axes.size(); ++k) {
    const Scalar old = data.extent(axes[k]), extent = wanted[k];
    extents[axes[k]] = extent;
    offset[axes[k]] = select(
        extent < old, [&] { return quotient(old - extent, 2); },
        [&] { return -quotient(extent - old, 2); });
  }
  const Scalar fill = call.zeroOf(data.type());
  call.result(Tensor(extents, data.type(), [=](Index index) {
    Scalars place;
    Scalar isInside = fill.boolean(true);
    for (unsigned axis = 0; axis < data.rank(); ++axis) {
      const Scalar at = index[axis] + offset[axis];
      isInside = both(isInside, both(at >= 0, at < data.extent(axis)));
      place.push_back(at);
    }
    return select(
        isInside, [&] { return data.at(place); }, [&] { return fill; });
  }));
}

// Numbers from places.

void defineConstant(Call& call) {
  Formulas& f = call.formulas();
  if (call.hasAttribute("value")) {
    const Tensor value = call.tensorAttribute("value");
    if (!value)
      return call.refuse("a constant that is not of numbers");
    return call.result(value);
  }
  if (auto list = call.integersAttribute("value_ints")) {
    Scalars all;
    for (int64_t each : *list)
      all.push_back(call.integer(each));
    return call.result(listOf(f, all));
  }
  if (auto list = call.realsAttribute("value_floats")) {
    Scalars all;
    for (double each : *list)
      all.push_back(call.real(each));
    return call.result(listOf(f, all, Type::Float));
  }
  if (call.hasAttribute("value_string"))
    call.extents(0, Type::String, {});
  if (const ir::Attribute* list = call.node().attribute("value_strings");
      list && list->kind() == ir::AttributeKind::Strings)
    call.extents(0, Type::String, {call.integer(static_cast<int64_t>(list->strings().size()))});
  const bool isReal = call.hasAttribute("value_float");
  if (!isReal && !call.hasAttribute("value_int"))
    return call.refuse("a constant that is not of numbers");
  const Scalar value = isReal ? call.real(call.realAttribute("value_float", 0))
                              : call.integer(call.integerAttribute("value_int", 0));
  call.result(Tensor({}, isReal ? Type::Float : Type::Int64, [=](Index) { return value; }));
}
void defineConstantOfShape(Call& call) {
  Type type = Type::Float;
  Scalar value = call.real(0);
  if (call.hasAttribute("value")) {
    const Tensor written = call.tensorAttribute("value");
    if (!written)
      return call.refuse("a value that is not a number");
    type = written.type();
    value = written.at(Scalars(written.rank(), call.integer(0)));
  }
  call.type(0, type);
  if (!call.hasRank(0, 1))
    return;
  const Scalars extents = call.elements(0);
  for (Scalar extent : extents)
    if (extent.number() && *extent.number() < 0)
      return call.reject(formatted("extent {} is negative", *extent.number()));
  call.result(Tensor(extents, type, [=](Index) { return value; }));
}
void defineRange(Call& call) {
  const Scalar start = call.single(0), limit = call.single(1), step = call.single(2);
  if (step.is(0))
    return call.reject("delta is 0");
  Scalar count;
  call.require(!same(step, 0), "the step is 0");
  if (start.isReal()) {
    const Scalar steps = apply(Function::Ceiling, (limit - start) / step);
    call.require(steps < 0x1p62, "the range has no end");
    count = maximum(toInteger(steps), 0);
  } else if (std::optional<int64_t> known = step.number(); known && *known != 0)
    count = stepsBetween(start, limit, *known);
  else
    count = select(
        step > 0, [&] { return maximum(quotientUp(limit - start, step), 0); },
        [&] { return maximum(quotientUp(start - limit, -step), 0); });
  const Type type = call[0].type();
  call.result(
      Tensor({count}, type, [=](Index index) { return wrapped(start + index[0] * step, type); }));
}
void defineEyeLike(Call& call) {
  const Tensor data = call[0];
  if (data.rank() != 2)
    return call.reject("the operand is not a matrix");
  const Type type = call.hasAttribute("dtype")
                        ? static_cast<Type>(call.integerAttribute("dtype", 1))
                        : data.type();
  const auto diagonal = static_cast<double>(call.integerAttribute("k", 0));
  const Scalar one = call.number(1, type), zero = call.zeroOf(type);
  call.result(Tensor(listed(data.extents()), type, [=](Index index) {
    return select(same(index[1] - index[0], diagonal), one, zero);
  }));
}
void defineTrilu(Call& call) {
  const Tensor data = call[0];
  const Scalar diagonal = call.has(1) ? call.single(1) : call.integer(0);
  const bool isUpper = call.integerAttribute("upper", 1) != 0;
  const Scalar zero = call.zeroOf(data.type());
  if (data.rank() < 2)
    return call.reject("the operand has less than two axes");
  const unsigned rows = data.rank() - 2, columns = data.rank() - 1;
  call.result(Tensor(listed(data.extents()), data.type(), [=](Index index) {
    const Scalar offset = index[columns] - index[rows];
    return select(
        isUpper ? offset >= diagonal : offset <= diagonal, [&] { return data.at(index); },
        [&] { return zero; });
  }));
}

// Blocks and sequences.

void defineDepthToSpace(Call& call) {
  const Tensor data = call[0];
  const int64_t size = call.integerAttribute("blocksize", 1);
  if (data.rank() != 4 || size <= 0)
    return call.reject("the operand is not an image");
  const Scalar depth = quotient(data.extent(1), size * size), side = call.integer(size);
  const bool isDepthFirst = call.textAttribute("mode", "DCR") == "DCR";
  call.result(viewOf(
      data, {data.extent(0), depth, data.extent(2) * side, data.extent(3) * side}, [=](Index i) {
        const Scalar block = remainder(i[2], size) * side + remainder(i[3], size);
        const Scalar channel = isDepthFirst ? block * depth + i[1] : i[1] * side * side + block;
        return Scalars{i[0], channel, quotient(i[2], size), quotient(i[3], size)};
      }));
}
void defineSpaceToDepth(Call& call) {
  const Tensor data = call[0];
  const int64_t size = call.integerAttribute("blocksize", 1);
  if (data.rank() != 4 || size <= 0)
    return call.reject("the operand is not an image");
  const Scalar side = call.integer(size), channels = data.extent(1);
  call.result(viewOf(data,
                     {data.extent(0), channels * side * side, quotient(data.extent(2), size),
                      quotient(data.extent(3), size)},
                     [=](Index i) {
                       const Scalar block = quotient(i[1], channels);
                       return Scalars{i[0], remainder(i[1], channels),
                                      i[2] * side + quotient(block, size),
                                      i[3] * side + remainder(block, size)};
                     }));
}
void defineReverseSequence(Call& call) {
  const Tensor data = call[0], lengths = call[1];
  const unsigned batch = call.axisAttribute("batch_axis", 1, data.rank()),
                 time = call.axisAttribute("time_axis", 0, data.rank());
  if (call.isRefused())
    return;
  call.requireAt(
      listed(lengths.extents()),
      [=](Index index) {
        const Scalar length = lengths.at(index);
        return both(length >= 0, length <= data.extent(time));
      },
      "a length is beyond the axis of time");
  call.result(viewOf(data, listed(data.extents()), [=](Index index) {
    const Scalar length = lengths.at({index[batch]});
    return replaced(index, time,
                    select(index[time] < length, length - 1.0 - index[time], index[time]));
  }));
}

} // namespace

void register_movement(Definitions& all) {
  all.add("Shape", defineShape);
  all.add("Size", defineSize);
  all.add("Reshape", defineReshape);
  all.add("Flatten", defineFlatten);
  all.add("Transpose", defineTranspose);
  all.add("Unsqueeze", defineUnsqueeze);
  all.add("Squeeze", defineSqueeze);
  all.add("Expand", defineExpand, 8);
  all.add("Tile", defineTile, 6);
  all.add("Concat", defineConcat);
  all.add("Slice", defineSlice);
  all.add("Split", defineSplit);
  all.add("Pad", definePad, 2);
  all.add("CenterCropPad", defineCenterCropPad, 18);
  all.add("Constant", defineConstant);
  all.add("ConstantOfShape", defineConstantOfShape, 9);
  all.add("Range", defineRange, 11);
  all.add("EyeLike", defineEyeLike, 9);
  all.add("Trilu", defineTrilu, 14);
  all.add("DepthToSpace", defineDepthToSpace);
  all.add("SpaceToDepth", defineSpaceToDepth);
  all.add("ReverseSequence", defineReverseSequence, 10);
}

} // namespace kvopt::meaning
