// Conversion of factors of axes to Concat, Transpose, Expand and Reshape.
#include "passes/rows/row_writer.h"

#include "passes/builders/attention_builder.h"
#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::rows {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// Writes the operators.
class Spelling {
public:
  Spelling(const RespelledRows& respelled, Rewriter& rewriter)
      : rows(respelled), build(rewriter), shapes(rewriter) {}

  Value* joined() {
    Value* fresh = freshRows();
    if (!fresh)
      return nullptr;
    auto& past = *const_cast<Value*>(rows.past);
    const auto axis = static_cast<int64_t>(rows.sequenceAxis);
    return rows.place ? &written(past, *fresh, axis) : &build.concat(past, *fresh, axis);
  }

  /// Converts the layout of the cache, or of the new rows alone, to that of the value.
  Value* arranged(Value& joined) {
    const std::vector<unsigned>& order = rows.past ? rows.orderOfPast : rows.orderOfFresh;
    Value* read = withoutSkipped(joined);
    if (!read)
      return nullptr;
    Value& source = *read;
    if (rows.partsOfFresh.empty() &&
        isKnownSameShape(source.type().hasRank() ? source.type().shape() : llvm::ArrayRef<Dim>(),
                         rows.type.shape()) &&
        llvm::is_sorted(order) && order.size() == rows.factors.size())
      return &source;
    llvm::SmallVector<Dim, 6> unrepeated, whole;
    Value* value = cutIntoFactors(source, order);
    if (!value)
      return nullptr;
    std::vector<unsigned> wanted;
    for (unsigned factor = 0; factor < rows.factors.size(); ++factor) {
      const bool isRepeat = rows.factors[factor].isRepeat;
      if (!isRepeat)
        wanted.push_back(factor);
      unrepeated.push_back(isRepeat ? Dim::fixed(1) : rows.factors[factor].extent);
      whole.push_back(rows.factors[factor].extent);
    }
    value = transposed(*value, order, wanted);
    if (wanted.size() != rows.factors.size()) {
      value = shapes.reshape(*value, unrepeated, "rows");
      value = value ? shapes.expand(*value, whole, "rows") : nullptr;
    }
    return value ? shapes.reshape(*value, rows.type.shape(), "rows") : nullptr;
  }

private:
  /// Gives the source an axis for each factor in `order`, and only the part that is read.
  Value* cutIntoFactors(Value& source, llvm::ArrayRef<unsigned> order) {
    const llvm::ArrayRef<SourcePart> parts = rows.partsOfFresh;
    Value* value = &source;
    llvm::SmallVector<Dim, 6> extents, kept;
    for (size_t i = 0; i < order.size(); ++i) {
      kept.push_back(rows.factors[order[i]].extent);
      const bool isPart = !parts.empty() && parts[i].isPartOf(kept.back());
      // Slices along an axis of the source.
      if (isPart && parts[i].axis != -1 && value)
        value =
            sliced(*value, parts[i].axis, parts[i].start * Dim::fixed(parts[i].unit),
                   parts[i].blocks != 0 ? Dim::fixed(1) : kept.back() * Dim::fixed(parts[i].unit));
      extents.push_back(isPart && parts[i].axis == -1 ? parts[i].whole : kept.back());
    }
    value = value ? shapes.reshape(*value, extents, "rows") : nullptr;
    for (size_t i = 0; value && i < parts.size(); ++i)
      if (parts[i].axis == -1 && parts[i].isPartOf(kept[i]))
        value = sliced(*value, static_cast<int64_t>(i), parts[i].start, kept[i]);
    return value;
  }

  Value* sliced(Value& value, int64_t axis, const Dim& start, const Dim& extent) {
    Value* first = shapes.vector({start});
    Value* end = first ? shapes.vector({start + extent}) : nullptr;
    return end ? &build.node("Slice", {value, *first, *end, ints({axis})}, {}, "rows") : nullptr;
  }

  Dim freshExtent(unsigned factor) const {
    return rows.factors[factor].isPosition ? rows.freshRows : rows.factors[factor].extent;
  }

  /// [order] → [wanted]; both list the same factors.
  Value* transposed(Value& value, llvm::ArrayRef<unsigned> order, llvm::ArrayRef<unsigned> wanted) {
    std::vector<int64_t> permutation;
    for (unsigned factor : wanted)
      permutation.push_back(llvm::find(order, factor) - order.begin());
    if (llvm::is_sorted(permutation))
      return &value;
    return &build.transpose(value, std::move(permutation));
  }

  /// The new rows in the layout of the cache.
  Value* freshRows() {
    llvm::SmallVector<Dim, 6> extents;
    for (unsigned factor : rows.orderOfFresh)
      extents.push_back(freshExtent(factor));
    Value* cut = shapes.reshape(*const_cast<Value*>(rows.fresh), extents, "rows");
    if (!cut)
      return nullptr;
    Value* ordered = transposed(*cut, rows.orderOfFresh, rows.orderOfPast);
    Shape shape(rows.past->type().shape().begin(), rows.past->type().shape().end());
    shape[rows.sequenceAxis] = rows.freshRows;
    return shapes.reshape(*ordered, shape, "rows");
  }

  /// The joined rows without those that are skipped at the front.
  Value* withoutSkipped(Value& joined) {
    if (rows.skippedRows.value() == 0)
      return &joined;
    const auto position =
        llvm::find_if(rows.factors, [](const RowFactor& factor) { return factor.isPosition; });
    Value* start = shapes.vector(
        {position->extent.value() ? Dim::fixed(-*position->extent.value()) : rows.skippedRows});
    if (!start)
      return nullptr;
    const auto axis = static_cast<int64_t>(rows.sequenceAxis);
    return &build.node("Slice",
                       {joined, *start, ints({std::numeric_limits<int64_t>::max()}), ints({axis})},
                       {}, "rows");
  }

  Value& written(Value& past, Value& fresh, int64_t axis) {
    const WritePlace& place = *rows.place;
    Value& given = build.castTo(*const_cast<Value*>(place.input), ElementType::Int64);
    std::vector<int64_t> column(past.type().rank(), 1);
    column[static_cast<size_t>(axis)] = -1;
    Value* slots = &given;
    if (place.kind != WritePlace::Kind::EachBatch) {
      slots = &build.node("Reshape", {given, ints({-1})}, {}, "positions");
    } else if (const std::optional<int64_t> count = rows.freshRows.value()) {
      column[0] = -1;
      column[static_cast<size_t>(axis)] = *count;
    } else {
      column[0] = 0; // as in the input
    }
    if (place.kind == WritePlace::Kind::First) {
      if (place.input->type().rank() > 0 && place.input->type().elementCount().value() != 1)
        slots = &build.slice(*slots, 0, 0, 1);
      if (place.offset.value() != 0)
        if (Value* offset = shapes.vector({place.offset}))
          slots = &build.node("Add", {*slots, *offset}, {}, "first");
      Value& first = build.checkedSlot(*slots, past, axis);
      slots = &build.node("Add", {build.range(build.extent(fresh, axis, /*scalar=*/true)), first},
                          {}, "positions");
    } else {
      slots = &build.checkedSlot(*slots, past, axis);
    }
    Value& positions = build.node("Reshape", {*slots, ints(column)}, {}, "positions");
    Value& extents = build.node("Shape", {fresh}, {}, "extents");
    Value& index = build.node("Expand", {positions, extents}, {}, "positions");
    return build.node("ScatterElements", {past, index, fresh}, attrs({{"axis", axis}}), "written");
  }

  const RespelledRows& rows;
  AttentionBuilder build;
  ShapeBuilder shapes;
};

} // namespace

Value* RowWriter::join(const RespelledRows& rows) {
  const Value* place = rows.place ? rows.place->input : nullptr;
  for (const Joined& each : made)
    if (each.past == rows.past && each.fresh == rows.fresh && each.place == place)
      return each.value;
  Value* value = Spelling(rows, rewriter).joined();
  if (value)
    made.push_back({rows.past, rows.fresh, place, value});
  return value;
}

Value* RowWriter::write(const RespelledRows& rows) {
  Value* source = rows.past && rows.fresh ? join(rows)
                  : rows.past             ? const_cast<Value*>(rows.past)
                                          : const_cast<Value*>(rows.fresh);
  Value* arranged = source ? Spelling(rows, rewriter).arranged(*source) : nullptr;
  if (!arranged || rows.factor == 1)
    return arranged;
  Value& factor =
      AttentionBuilder(rewriter).value(floatScalar(rows.type.elementType(), rows.factor));
  return &rewriter.create("Mul", {arranged, &factor}, {}, 1, "scaled").result();
}

} // namespace kvopt::rows
