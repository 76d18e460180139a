// Elements of predicted rows.
#include "passes/rows/predicted_rows.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace ir;

namespace {

/// Maximum number of compared elements; larger tensors are sampled.
constexpr int64_t mostCompared = 8192;

std::optional<int64_t> numberOf(const Dim& dim, const Evaluation& evaluation) {
  return dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
    const auto found = evaluation.point().extents.find(symbol);
    return found == evaluation.point().extents.end() ? std::nullopt : std::optional(found->second);
  });
}

/// All elements of a tensor, or every index along one axis at both ends of the others.
std::vector<int64_t> comparedElements(llvm::ArrayRef<int64_t> extents, unsigned axis) {
  const int64_t count = countOf(extents).value_or(0);
  std::vector<int64_t> elements;
  if (count <= mostCompared) {
    for (int64_t i = 0; i < count; ++i)
      elements.push_back(i);
    return elements;
  }
  Extents first(extents.size(), 0), last(extents.begin(), extents.end());
  for (int64_t& index : last)
    --index;
  for (int64_t i = 0; i < extents[axis]; ++i)
    for (Extents* corner : {&first, &last}) {
      (*corner)[axis] = i;
      elements.push_back(elementAt(*corner, extents));
    }
  return elements;
}

/// Predicted origin of a value's elements, at one point.
class Prediction {
public:
  Prediction(const SaidRows& said, Evaluation& at)
      : rows(said.rows), pastLength(said.pastLength), evaluation(at) {}

  /// Returns whether all extents are known. Then `extents` has those of the value.
  bool prepare() {
    extents.assign(rows.type.rank(), 1);
    for (const RowFactor& factor : rows.factors) {
      const auto extent = numberOf(factor.extent, evaluation);
      if (!extent)
        return false;
      factorExtents.push_back(*extent);
      extents[factor.axis] *= *extent;
    }
    if (!rows.past || !rows.fresh)
      return true;
    const Extents* past = evaluation.extents(*rows.past);
    const auto fresh = numberOf(rows.freshRows, evaluation);
    const auto skip = numberOf(rows.skippedRows, evaluation);
    if (!past || !fresh || !skip || rows.sequenceAxis >= past->size())
      return false;
    pastRows = (*past)[rows.sequenceAxis];
    freshRows = *fresh;
    skipped = *skip;
    if (pastLength)
      return readLengths();
    return !rows.place || readPlace();
  }

  /// Whether the input with the places of written rows names places outside the cache, or one place
  /// twice: then the contents are unspecified.
  bool isUndefined() const {
    if (pastLength)
      return llvm::any_of(lengths, [&](int64_t length) { return length < 0 || length > pastRows; });
    if (places.empty())
      return false;
    if (rows.place->kind == WritePlace::Kind::First)
      return places.front() < 0 || places.front() + freshRows > pastRows;
    const bool isOutside =
        llvm::any_of(places, [&](int64_t row) { return row < 0 || row >= pastRows; });
    const auto each = rows.place->kind == WritePlace::Kind::EachBatch
                          ? freshRows
                          : static_cast<int64_t>(places.size());
    bool isTwice = false;
    for (size_t i = 0; i + 1 < places.size() && each > 0; ++i)
      for (size_t j = i + 1;
           j < places.size() && j / static_cast<size_t>(each) == i / static_cast<size_t>(each); ++j)
        isTwice |= places[i] == places[j];
    return isOutside || isTwice;
  }

  /// An element of the past or of the new rows.
  struct Source {
    bool isPast = false;
    int64_t element = 0;
    bool isFilled = false; ///< from neither of the two
  };
  std::optional<Source> at(int64_t element) const {
    Extents digits(rows.factors.size(), 0);
    for (size_t f = rows.factors.size(); f-- > 0;) {
      digits[f] = element % factorExtents[f];
      element /= factorExtents[f];
    }
    if (!rows.past || !rows.fresh)
      return Source{
          rows.past != nullptr,
          elementOf(digits, rows.past ? rows.orderOfPast : rows.orderOfFresh, factorExtents)};
    const auto position = static_cast<size_t>(
        llvm::find_if(rows.factors, [](const RowFactor& factor) { return factor.isPosition; }) -
        rows.factors.begin());
    const int64_t batch = rows.orderOfPast.empty() ? 0 : digits[rows.orderOfPast.front()];
    const int64_t row = digits[position] + skipped;
    const std::optional<int64_t> fresh = freshRowAt(row, batch);
    if (!fresh && pastLength && row >= lengthOf(batch))
      return Source{false, 0, true};
    Extents wide = factorExtents;
    wide[position] = fresh ? freshRows : pastRows;
    digits[position] = fresh.value_or(row);
    if (digits[position] >= wide[position])
      return std::nullopt;
    return Source{!fresh, elementOf(digits, fresh ? rows.orderOfFresh : rows.orderOfPast, wide)};
  }

  Extents extents;

private:
  static int64_t elementOf(const Extents& digits, llvm::ArrayRef<unsigned> order,
                           const Extents& wide) {
    int64_t element = 0;
    for (unsigned factor : order)
      element = element * wide[factor] + digits[factor];
    return element;
  }

  bool readLengths() {
    const NumberTensor* numbers = evaluation.numbers(*pastLength);
    if (!numbers || numbers->numbers.empty())
      return false;
    for (double number : numbers->numbers)
      lengths.push_back(static_cast<int64_t>(number));
    return true;
  }

  int64_t lengthOf(int64_t batch) const {
    return lengths[std::min(static_cast<size_t>(batch), lengths.size() - 1)];
  }

  bool readPlace() {
    const auto input = evaluation.point().inputs.find(rows.place->input);
    const auto offset = numberOf(rows.place->offset, evaluation);
    if (input == evaluation.point().inputs.end() || !offset || input->second.numbers.empty())
      return false;
    for (double number : input->second.numbers)
      places.push_back(static_cast<int64_t>(number) + *offset);
    return rows.place->kind == WritePlace::Kind::First ||
           static_cast<int64_t>(places.size()) >= freshRows;
  }

  /// The new row that replaces a row; nullopt if the cache's row remains.
  std::optional<int64_t> freshRowAt(int64_t row, int64_t batch) const {
    int64_t first = pastLength ? lengthOf(batch) : pastRows;
    if (rows.place) {
      if (rows.place->kind != WritePlace::Kind::First) {
        const int64_t from =
            rows.place->kind == WritePlace::Kind::EachBatch ? batch * freshRows : 0;
        for (int64_t i = 0; i < freshRows; ++i)
          if (from + i < static_cast<int64_t>(places.size()) &&
              places[static_cast<size_t>(from + i)] == row)
            return i;
        return std::nullopt;
      }
      first = places.front();
    }
    return row >= first && row < first + freshRows ? std::optional(row - first) : std::nullopt;
  }

  const RespelledRows& rows;
  const Value* pastLength;
  Evaluation& evaluation;
  Extents factorExtents;
  int64_t pastRows = 0, freshRows = 0, skipped = 0;
  std::vector<int64_t> places, lengths;
};

} // namespace

std::optional<SaidRows> joinedRows(const Value& joined, Evaluation& evaluation) {
  const Node* node = joined.producer();
  if (!node || !joined.type().hasRank() || joined.type().rank() < 3 || !node->operand(0) ||
      node->operands().size() < 2)
    return std::nullopt;
  SaidRows said;
  std::optional<unsigned> axis;
  if (node->is("Concat") && node->operands().size() == 2) {
    axis = normalizedAxis(node->intAttr("axis", 0), joined.type().rank());
  } else if (node->op() == OpName("ai.kvopt::AppendRows")) {
    axis = 2;
    said.pastLength = node->operand(2);
  }
  const Extents* extents = evaluation.extents(*node->operand(0));
  const auto count = extents ? countOf(*extents) : std::nullopt;
  if (!axis || *axis >= joined.type().rank() || !count || *count == 0)
    return std::nullopt;
  // One element identifies the input; areRows() checks the others.
  std::vector<LinearForm> form;
  if (!evaluation.trace(*node->operand(0), {0}, form))
    return std::nullopt;
  const ElementTerm* element = form.front().asElement();
  if (!element || !element->block->isGraphInput() || !element->block->type().hasRank() ||
      element->block->type().rank() != joined.type().rank())
    return std::nullopt;
  RespelledRows& rows = said.rows;
  rows.past = element->block;
  rows.fresh = node->operand(1);
  rows.type = joined.type();
  rows.sequenceAxis = *axis;
  rows.pastRows = rows.past->type().dim(*axis);
  rows.freshRows = rows.fresh->type().hasRank() ? rows.fresh->type().dim(*axis) : Dim::unknown();
  for (unsigned i = 0; i < joined.type().rank(); ++i) {
    rows.factors.push_back({i, false, i == *axis, joined.type().dim(i)});
    rows.orderOfPast.push_back(i);
    rows.orderOfFresh.push_back(i);
  }
  return said;
}

bool areRows(const Value& value, const SaidRows& said, Evaluation& evaluation) {
  const RespelledRows& rows = said.rows;
  const Extents* extents = evaluation.extents(value);
  Prediction prediction(said, evaluation);
  if (!extents || !prediction.prepare() || *extents != prediction.extents)
    return false;
  if (prediction.isUndefined())
    return true;
  const auto position =
      llvm::find_if(rows.factors, [](const RowFactor& factor) { return factor.isPosition; });
  const std::vector<int64_t> elements =
      comparedElements(*extents, position == rows.factors.end() ? 0 : position->axis);
  std::vector<LinearForm> forms, fresh;
  if (!evaluation.trace(value, elements, forms))
    return false;
  std::vector<int64_t> freshElements;
  std::vector<size_t> freshPlaces;
  for (size_t i = 0; i < elements.size(); ++i) {
    const auto source = prediction.at(elements[i]);
    if (!source)
      return false;
    if (source->isFilled) {
      if (!forms[i].isNumber())
        return false;
    } else if (!source->isPast) {
      freshElements.push_back(source->element);
      freshPlaces.push_back(i);
    } else if (forms[i] != LinearForm::element(*rows.past, source->element)) {
      return false;
    }
  }
  if (freshElements.empty())
    return true;
  if (!evaluation.trace(*rows.fresh, freshElements, fresh))
    return false;
  for (size_t i = 0; i < fresh.size(); ++i)
    if (!(forms[freshPlaces[i]] == fresh[i]))
      return false;
  return true;
}

std::optional<KeptRows> keptRows(const Value& value, const Value& joined, const RespelledRows& rows,
                                 Evaluation& evaluation) {
  const auto position =
      llvm::find_if(rows.factors, [](const RowFactor& factor) { return factor.isPosition; });
  const Extents* extents = evaluation.extents(value);
  const Extents* whole = evaluation.extents(joined);
  if (!extents || !whole || extents->size() != whole->size() || position == rows.factors.end())
    return std::nullopt;
  const unsigned axis = position->axis;
  for (unsigned i = 0; i < whole->size(); ++i)
    if (i != axis && (*extents)[i] != (*whole)[i])
      return std::nullopt;
  const int64_t skipped = (*whole)[axis] - (*extents)[axis];
  if (skipped < 0)
    return std::nullopt;
  const std::vector<int64_t> elements = comparedElements(*extents, axis);
  std::vector<int64_t> sources;
  for (int64_t element : elements) {
    Extents index = indexOf(element, *extents);
    index[axis] += skipped;
    sources.push_back(elementAt(index, *whole));
  }
  std::vector<LinearForm> forms, others;
  if (!evaluation.trace(value, elements, forms) || !evaluation.trace(joined, sources, others) ||
      forms != others)
    return std::nullopt;
  return KeptRows{(*extents)[axis], skipped == 0};
}

} // namespace kvopt::rows
