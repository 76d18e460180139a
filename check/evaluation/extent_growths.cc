// The extents of results, operator by operator.
#include "check/evaluation/extent_growths.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <array>
#include <map>

namespace kvopt::check {
namespace {

/// The growths of one node's results.
class ExtentGrowths {
public:
  using Ids = llvm::SmallVector<GrowthId, 4>;

  ExtentGrowths(Call& evaluated, unsigned which, const Tensor& tensor)
      : call(evaluated), index(which), result(tensor) {}

  Ids compute();

private:
  Growths& growths() { return call.math.growths; }
  Ref in(unsigned operand) const { return call.in(operand); }
  bool canGrow() const;
  GrowthId untraced() {
    return growths().untraced(call.node.describe() + " has an extent that is not traced");
  }
  Ids allUntraced() { return Ids(result.shape.size(), untraced()); }

  GrowthId extentOf(unsigned operand, int64_t axis) const;
  Ids broadcast(llvm::ArrayRef<Ids> all, llvm::ArrayRef<Extents> shapes);
  Ids broadcastOperands();
  Ids same(unsigned operand);
  void noteNormalizedAxes();
  Ids fromContents(unsigned operand);
  Ids transpose();
  Ids insertOrRemove(bool inserts);
  Ids flatten();
  Ids reshape();
  Ids expand();
  Ids tile();
  Ids concat();
  Ids split();
  Ids gather();
  Ids gatherNd();
  Ids reduce();
  Ids matMul();
  Ids gemm();
  Ids einsum();
  Ids pad();
  Ids oneHot();
  Ids attention();
  Ids convolution();

  Call& call;
  unsigned index;
  const Tensor& result;
};

/// Whether indices count from the end, so that they depend on the extent.
bool isFromEnd(const Ref& indices) {
  return indices && indices->isInteger() &&
         llvm::any_of(indices->integers, [](int64_t i) { return i < 0; });
}

/// Whether anything of the operands grows.
bool ExtentGrowths::canGrow() const {
  return llvm::any_of(call.operands, [](const Ref& operand) {
    return operand && (!operand->growths.empty() || !operand->extentGrowths.empty());
  });
}

GrowthId ExtentGrowths::extentOf(unsigned operand, int64_t axis) const {
  const Ref tensor = in(operand);
  if (!tensor)
    return fixedGrowth;
  const int64_t at = axis < 0 ? axis + tensor->rank() : axis;
  return at < 0 ? fixedGrowth : tensor->extentGrowth(static_cast<size_t>(at));
}

/// An extent of the result is one of the operands' that it equals, preferably one that is traced
/// and grows: an axis that may be longer than 1 is not repeated.
ExtentGrowths::Ids ExtentGrowths::broadcast(llvm::ArrayRef<Ids> all,
                                            llvm::ArrayRef<Extents> shapes) {
  Ids ids;
  const size_t rank = result.shape.size();
  for (size_t axis = 0; axis < rank; ++axis) {
    GrowthId chosen = fixedGrowth;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t skipped = rank - std::min(rank, shapes[i].size());
      if (axis < skipped || shapes[i][axis - skipped] != result.shape[axis])
        continue;
      const GrowthId own = axis - skipped < all[i].size() ? all[i][axis - skipped] : fixedGrowth;
      const bool isBetter =
          own != fixedGrowth && (chosen == fixedGrowth || !growths().at(chosen).isTraced());
      chosen = isBetter ? own : chosen;
    }
    ids.push_back(chosen);
  }
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::broadcastOperands() {
  std::vector<Ids> all;
  std::vector<Extents> shapes;
  for (const Ref& operand : call.operands)
    if (operand) {
      all.push_back(operand->extentGrowths);
      shapes.push_back(operand->shape);
    }
  return broadcast(all, shapes);
}

ExtentGrowths::Ids ExtentGrowths::same(unsigned operand) {
  const Ref from = in(operand);
  return from && from->rank() == result.rank() ? Ids(from->extentGrowths) : allUntraced();
}

/// Notes axes over which elements are summed, which therefore depend on the extent.
void ExtentGrowths::noteNormalizedAxes() {
  const llvm::StringRef name = call.node.op().type();
  const Ref data = in(0);
  if (!data || !(name.endswith("Softmax") || name.endswith("Normalization")))
    return;
  const auto first = axisOf(call.integer("axis", -1), data->rank());
  const size_t end = name.endswith("Softmax") && first ? *first + 1 : data->shape.size();
  for (size_t axis = first.value_or(0); axis < end; ++axis)
    call.noteUntraced(data->extentGrowth(axis));
}

/// Extents that are an operand's elements.
ExtentGrowths::Ids ExtentGrowths::fromContents(unsigned operand) {
  const Ref from = in(operand);
  if (!from || !from->isInteger() || from->count() != result.rank())
    return allUntraced();
  Ids ids;
  for (size_t i = 0; i < result.shape.size(); ++i)
    ids.push_back(from->growth(i));
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::transpose() {
  const auto permutation = call.integers("perm");
  Ids ids;
  for (int64_t axis = 0; axis < result.rank(); ++axis)
    ids.push_back(extentOf(0, permutation ? (*permutation)[static_cast<size_t>(axis)]
                                          : result.rank() - 1 - axis));
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::insertOrRemove(bool inserts) {
  const auto axes = call.integers("axes", 1);
  const Ref data = in(0);
  const int64_t rank = std::max(data->rank(), result.rank());
  std::vector<bool> isListed(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank && !axes && !inserts; ++i)
    isListed[static_cast<size_t>(i)] = data->shape[static_cast<size_t>(i)] == 1;
  for (int64_t axis : axes.value_or(std::vector<int64_t>{}))
    if (const auto at = axisOf(axis, rank))
      isListed[*at] = true;
  Ids ids;
  size_t from = 0;
  for (bool listed : isListed) {
    if (listed && !inserts)
      call.noteUntraced(data->extentGrowth(from));
    if (listed && inserts)
      ids.push_back(fixedGrowth);
    else if (!listed)
      ids.push_back(data->extentGrowth(from));
    from += !(listed && inserts);
  }
  return ids.size() == result.shape.size() ? ids : allUntraced();
}

ExtentGrowths::Ids ExtentGrowths::flatten() {
  const Ref data = in(0);
  const int64_t axis = call.integer("axis", 1);
  const int64_t split = axis < 0 ? axis + data->rank() : axis;
  std::array<Growths::Number, 2> parts{Growths::Number{fixedGrowth, 1}, {fixedGrowth, 1}};
  for (size_t i = 0; i < data->shape.size(); ++i) {
    auto& part = parts[static_cast<int64_t>(i) < split ? 0 : 1];
    const Growths::Number extent = data->extent(i);
    part = {growths().product(part, extent), part.value * extent.value};
  }
  return {parts[0].id, parts[1].id};
}

ExtentGrowths::Ids ExtentGrowths::reshape() {
  const Ref data = in(0), wanted = in(1);
  Ids ids;
  std::vector<Growths::Number> others;
  std::optional<size_t> rest;
  for (size_t i = 0; i < result.shape.size(); ++i) {
    const int64_t extent = wanted && i < wanted->integers.size() ? wanted->integers[i] : 1;
    GrowthId own = wanted ? wanted->growth(i) : fixedGrowth;
    // 0 copies an extent, and -1 takes what is left.
    for (double special : {0.0, -1.0})
      call.noteThreshold({own, double(extent)}, {fixedGrowth, special}, /*isExact=*/false);
    if (extent == 0 && call.integer("allowzero", 0) == 0 && i < data->shape.size())
      own = data->extentGrowth(i);
    if (extent == -1)
      rest = i;
    else
      others.push_back({own, double(result.shape[i])});
    ids.push_back(extent == -1 ? fixedGrowth : own);
  }
  if (!wanted)
    return allUntraced();
  if (!rest)
    return ids;
  std::vector<Growths::Number> extents;
  for (size_t i = 0; i < data->shape.size(); ++i)
    extents.push_back(data->extent(i));
  ids[*rest] =
      growths().of(growths().rest(extents, others), {}, [&] { return call.node.describe(); });
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::expand() {
  const Ref data = in(0), wanted = in(1);
  if (!wanted || !wanted->isInteger())
    return allUntraced();
  Ids ofWanted;
  for (size_t i = 0; i < wanted->integers.size(); ++i)
    ofWanted.push_back(wanted->growth(i));
  return broadcast({ofWanted, Ids(data->extentGrowths)},
                   {Extents(wanted->integers.begin(), wanted->integers.end()), data->shape});
}

ExtentGrowths::Ids ExtentGrowths::tile() {
  const Ref data = in(0), repeats = in(1);
  if (!repeats || !repeats->isInteger() || repeats->count() != result.rank())
    return allUntraced();
  Ids ids;
  for (size_t i = 0; i < result.shape.size(); ++i)
    ids.push_back(growths().product(data->extent(i), repeats->number(i)));
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::concat() {
  const auto axis = axisOf(call.integer("axis", 0), result.rank());
  if (!axis)
    return allUntraced();
  Ids ids = broadcastOperands();
  ids.resize(result.shape.size());
  Growths::Number total{fixedGrowth, 0};
  for (const Ref& part : call.operands)
    if (part) {
      const Growths::Number extent = part->extent(*axis);
      total = {growths().sum(total, extent), total.value + extent.value};
    }
  ids[*axis] = total.id;
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::split() {
  const auto axis = axisOf(call.integer("axis", 0), result.rank());
  if (!axis)
    return allUntraced();
  Ids ids = same(0);
  ids.resize(result.shape.size());
  const Ref sizes = call.attribute("split") ? nullptr : in(1);
  if (sizes && sizes->isInteger())
    ids[*axis] = sizes->growth(index);
  else if (call.attribute("split"))
    ids[*axis] = fixedGrowth;
  else if (ids[*axis] != fixedGrowth)
    ids[*axis] = untraced();
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::gather() {
  const Ref data = in(0), places = in(1);
  const auto axis = axisOf(call.integer("axis", 0), data->rank());
  if (!axis)
    return allUntraced();
  if (isFromEnd(places))
    call.noteUntraced(data->extentGrowth(*axis));
  Ids ids;
  for (size_t i = 0; i < *axis; ++i)
    ids.push_back(data->extentGrowth(i));
  for (size_t i = 0; i < places->shape.size(); ++i)
    ids.push_back(places->extentGrowth(i));
  for (size_t i = *axis + 1; i < data->shape.size(); ++i)
    ids.push_back(data->extentGrowth(i));
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::gatherNd() {
  const Ref data = in(0), places = in(1);
  const auto batch = static_cast<size_t>(call.integer("batch_dims", 0));
  if (places->rank() == 0)
    return allUntraced();
  if (isFromEnd(places))
    for (GrowthId extent : data->extentGrowths)
      call.noteUntraced(extent);
  Ids ids;
  for (size_t i = 0; i + 1 < places->shape.size(); ++i)
    ids.push_back(places->extentGrowth(i));
  for (size_t i = batch + size_t(places->shape.back()); i < data->shape.size(); ++i)
    ids.push_back(data->extentGrowth(i));
  return ids.size() == result.shape.size() ? ids : allUntraced();
}

ExtentGrowths::Ids ExtentGrowths::pad() {
  const Ref data = in(0), pads = call.attribute("pads") ? nullptr : in(1);
  const auto axes = call.integers("axes", 3);
  Ids ids;
  for (size_t i = 0; i < data->shape.size(); ++i)
    ids.push_back(data->extentGrowth(i));
  if (!pads || !pads->isInteger())
    return ids;
  const size_t count = pads->integers.size() / 2;
  for (size_t i = 0; i < count; ++i)
    if (const auto axis = axisOf(axes ? (*axes)[i] : static_cast<int64_t>(i), data->rank())) {
      const GrowthId added = growths().sum(pads->number(i), pads->number(i + count));
      const double number = pads->number(i).value + pads->number(i + count).value;
      ids[*axis] = growths().sum(data->extent(*axis), {added, number});
    }
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::oneHot() {
  const Ref indices = in(0), depth = in(1);
  Ids ids;
  for (size_t i = 0; i < indices->shape.size(); ++i)
    ids.push_back(indices->extentGrowth(i));
  ids.push_back(depth->isInteger() && depth->count() == 1 ? depth->growth(0) : untraced());
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::reduce() {
  const Ref data = in(0);
  std::vector<int64_t> axes = call.integers("axes", 1).value_or(std::vector<int64_t>{});
  if (axes.empty() && call.integer("noop_with_empty_axes", 0) != 0)
    return same(0);
  std::vector<bool> goes(data->shape.size(), axes.empty());
  for (int64_t axis : axes)
    if (const auto at = axisOf(axis, data->rank()))
      goes[*at] = true;
  Ids ids;
  for (size_t i = 0; i < goes.size(); ++i) {
    if (goes[i])
      call.noteUntraced(data->extentGrowth(i));
    if (!goes[i])
      ids.push_back(data->extentGrowth(i));
    else if (call.integer("keepdims", 1) != 0)
      ids.push_back(fixedGrowth);
  }
  return ids.size() == result.shape.size() ? ids : allUntraced();
}

ExtentGrowths::Ids ExtentGrowths::matMul() {
  const Ref a = in(0), b = in(1);
  const bool isFused = !call.node.op().isOnnx();
  if (a->rank() == 1 || b->rank() == 1)
    for (unsigned operand : {0u, 1u})
      call.noteUntraced(extentOf(operand, operand == 1 && b->rank() > 1 ? -2 : -1));
  if (a->rank() < 2 || b->rank() < 2 ||
      (isFused && (call.integer("transBatchA", 0) != 0 || call.integer("transBatchB", 0) != 0)))
    return a->rank() > 1 && !isFused && b->rank() == 1
               ? Ids(a->extentGrowths.begin(),
                     a->extentGrowths.begin() +
                         std::min<size_t>(a->extentGrowths.size(), a->shape.size() - 1))
               : allUntraced();
  const bool turnsA = isFused && call.integer("transA", 0) != 0;
  const bool turnsB = isFused && call.integer("transB", 0) != 0;
  // The axis that is summed over has one extent.
  const GrowthId inner = extentOf(0, turnsA ? -2 : -1);
  if (!growths().at(inner).isTraced())
    call.noteUntraced(extentOf(1, turnsB ? -1 : -2) == fixedGrowth ? inner
                                                                   : extentOf(1, turnsB ? -1 : -2));
  Ids ids = broadcastOperands();
  ids.resize(result.shape.size());
  ids[ids.size() - 2] = extentOf(0, turnsA ? -1 : -2);
  ids[ids.size() - 1] = extentOf(1, turnsB ? -2 : -1);
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::gemm() {
  for (unsigned operand : {0u, 1u})
    call.noteUntraced(extentOf(
        operand,
        (call.integer(operand == 0 ? "transA" : "transB", 0) != 0) == (operand == 0) ? 0 : 1));
  return {extentOf(0, call.integer("transA", 0) != 0 ? 1 : 0),
          extentOf(1, call.integer("transB", 0) != 0 ? 0 : 1)};
}

/// Each letter of an equation names extents that are equal.
ExtentGrowths::Ids ExtentGrowths::einsum() {
  std::string equation = call.text("equation", "");
  llvm::erase_value(equation, ' ');
  const auto [from, to] = llvm::StringRef(equation).split("->");
  if (to.empty() || equation.find('.') != std::string::npos)
    return allUntraced();
  std::map<char, GrowthId> known;
  llvm::SmallVector<llvm::StringRef, 4> parts;
  from.split(parts, ',');
  for (unsigned i = 0; i < parts.size(); ++i)
    for (size_t axis = 0; axis < parts[i].size(); ++axis) {
      GrowthId& own = known[parts[i][axis]];
      const GrowthId other = extentOf(i, static_cast<int64_t>(axis));
      if (own == fixedGrowth || !growths().at(own).isTraced())
        own = other;
    }
  for (const auto& [letter, own] : known)
    if (!to.contains(letter))
      call.noteUntraced(own);
  Ids ids;
  for (char letter : to)
    ids.push_back(known[letter]);
  return ids;
}

/// A convolution without strides adds or takes away a number of places along each axis.
ExtentGrowths::Ids ExtentGrowths::convolution() {
  const auto strides = call.integers("strides");
  const Ref data = in(0);
  if (data->rank() != result.rank() ||
      (strides && llvm::any_of(*strides, [](int64_t stride) { return stride != 1; })) ||
      call.text("auto_pad", "NOTSET") != "NOTSET")
    return allUntraced();
  Ids ids{data->extentGrowth(0), extentOf(1, 0)};
  for (size_t axis = 2; axis < result.shape.size(); ++axis) {
    const auto added = double(result.shape[axis] - data->shape[axis]);
    ids.push_back(growths().sum(data->extent(axis), {fixedGrowth, added}));
  }
  return ids;
}

/// Attention's result has the extents of its queries; caches have those of the past, and the new
/// rows.
ExtentGrowths::Ids ExtentGrowths::attention() {
  constexpr unsigned key = 1, value = 2, pastKey = 4, pastValue = 5;
  constexpr unsigned sequence = 2;
  if (index == 0)
    return same(0);
  if (index > 2)
    return allUntraced();
  const unsigned fresh = index == 1 ? key : value, past = index == 1 ? pastKey : pastValue;
  if (!in(fresh) || result.rank() != 4)
    return allUntraced();
  const int64_t newAxis = in(fresh)->rank() == 4 ? 2 : 1;
  const Growths::Number rows = in(fresh)->extent(static_cast<size_t>(newAxis));
  Ids ids(4, fixedGrowth);
  ids[0] = extentOf(fresh, 0);
  ids[sequence] = in(past) ? growths().sum(in(past)->extent(sequence), rows) : rows.id;
  return ids;
}

ExtentGrowths::Ids ExtentGrowths::compute() {
  if (!canGrow())
    return {};
  enum class Form { Unknown, Broadcast, Same, Own, Fixed, Other };
  const ir::OpName op = call.node.op();
  const llvm::StringRef name = op.type();
  const auto form =
      llvm::StringSwitch<Form>(name)
          .Cases("Dropout", "CastLike", "Softmax", "PagedAttention", Form::Same)
          .Cases("LogSoftmax", "LayerNormalization", "RMSNormalization", "Trilu", "CumSum",
                 Form::Same)
          .Cases("SimplifiedLayerNormalization", "ScatterND", "ScatterElements", "TensorScatter",
                 Form::Same)
          .Cases("RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
                 Form::Same)
          .Cases("Slice", "Range", Form::Own) // their rules know the ends
          .Cases("Shape", "Size", Form::Fixed)
          .Default(ir::isElementwise(call.node) || ir::elementFunction(call.node) ? Form::Broadcast
                                                                                  : Form::Other);
  switch (form) {
  case Form::Broadcast:
    return broadcastOperands();
  case Form::Same:
    noteNormalizedAxes();
    return name == "RotaryEmbedding" || index == 0 || result.shape == in(0)->shape ? same(0)
                                                                                   : allUntraced();
  case Form::Own:
    return Ids(result.extentGrowths);
  case Form::Fixed:
    return {};
  case Form::Unknown:
  case Form::Other:
    break;
  }
  using Function = Ids (ExtentGrowths::*)();
  const auto function = llvm::StringSwitch<Function>(name)
                            .Case("Transpose", &ExtentGrowths::transpose)
                            .Case("Flatten", &ExtentGrowths::flatten)
                            .Case("Reshape", &ExtentGrowths::reshape)
                            .Case("Expand", &ExtentGrowths::expand)
                            .Case("Tile", &ExtentGrowths::tile)
                            .Case("Concat", &ExtentGrowths::concat)
                            .Case("Split", &ExtentGrowths::split)
                            .Case("Gather", &ExtentGrowths::gather)
                            .Case("GatherND", &ExtentGrowths::gatherNd)
                            .Cases("MatMul", "FusedMatMul", &ExtentGrowths::matMul)
                            .Case("Gemm", &ExtentGrowths::gemm)
                            .Case("Einsum", &ExtentGrowths::einsum)
                            .Case("Pad", &ExtentGrowths::pad)
                            .Case("OneHot", &ExtentGrowths::oneHot)
                            .Case("Attention", &ExtentGrowths::attention)
                            .Default(nullptr);
  if (function)
    return (this->*function)();
  if (name == "Unsqueeze" || name == "Squeeze")
    return insertOrRemove(name == "Unsqueeze");
  if (name == "GatherElements") {
    const auto axis = axisOf(call.integer("axis", 0), in(0)->rank());
    if (axis && isFromEnd(in(1)))
      call.noteUntraced(in(0)->extentGrowth(*axis));
    return same(1);
  }
  if (name == "ConstantOfShape")
    return fromContents(0);
  if (name.startswith("Reduce"))
    return reduce();
  if (name == "Conv")
    return convolution();
  if (index == 0 &&
      (name == "GroupQueryAttention" || name == "MultiHeadAttention" || name == "MatMulNBits"))
    return same(0);
  return allUntraced();
}

} // namespace

llvm::SmallVector<GrowthId, 4> extentGrowths(Call& call, unsigned index, const Tensor& result) {
  return ExtentGrowths(call, index, result).compute();
}

} // namespace kvopt::check
