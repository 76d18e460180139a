// Identification of cache rows by their elements.
#include "passes/analysis/evaluation/cached_rows.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// The input that contains the element, up to a factor; null for other elements.
const Value* inputOf(const LinearForm& form) {
  if (form.terms.size() != 1 || form.constant != 0)
    return nullptr;
  const Value& block = *form.terms.front().block;
  return block.isGraphInput() && !block.graph().parentNode() && block.type().hasRank() &&
                 block.type().rank() >= 3
             ? &block
             : nullptr;
}

/// Factor of the elements of inputs, 1 if there are none; nullopt if it differs.
std::optional<double> factorOf(llvm::ArrayRef<LinearForm> forms) {
  std::optional<double> factor;
  for (const LinearForm& form : forms) {
    if (!inputOf(form))
      continue;
    if (factor && *factor != form.terms.front().weight)
      return std::nullopt;
    factor = form.terms.front().weight;
  }
  return factor.value_or(1);
}

void scaleAll(std::vector<LinearForm>& forms, double factor) {
  if (factor != 1)
    for (LinearForm& form : forms)
      form.scale(factor);
}

/// Elements of a tensor whose index on `axis` is in [first, first + count).
std::vector<size_t> sectionOf(llvm::ArrayRef<int64_t> extents, unsigned axis, int64_t first,
                              int64_t count) {
  std::vector<size_t> elements;
  const auto total = countOf(extents).value_or(0);
  const int64_t stride = rowMajorStrides(extents)[axis];
  for (int64_t i = 0; i < total; ++i) {
    const int64_t index = i / stride % extents[axis];
    if (index >= first && index < first + count)
      elements.push_back(static_cast<size_t>(i));
  }
  return elements;
}

/// The axis along which new rows and rows of the past alternate, and the indices of the new rows.
struct Split {
  unsigned axis;
  int64_t first;
  int64_t count;
};

std::optional<Split> splitAlongAxis(llvm::ArrayRef<int64_t> extents,
                                    const std::vector<bool>& isFresh) {
  for (unsigned axis = 0; axis < extents.size(); ++axis) {
    std::vector<bool> along;
    const int64_t stride = rowMajorStrides(extents)[axis];
    for (int64_t i = 0; i < extents[axis]; ++i)
      along.push_back(isFresh[static_cast<size_t>(i * stride)]);
    bool fits = true;
    for (size_t e = 0; e < isFresh.size() && fits; ++e)
      fits = isFresh[e] == along[e / static_cast<size_t>(stride) % along.size()];
    if (!fits)
      continue;
    const auto begin = llvm::find(along, true);
    const auto end = std::find(begin, along.end(), false);
    if (std::find(end, along.end(), true) != along.end())
      return std::nullopt;
    return Split{axis, begin - along.begin(), end - begin};
  }
  return std::nullopt;
}

} // namespace

const Value* joinedPast(const Value& rows, Evaluation& evaluation) {
  const Extents* extents = evaluation.extents(rows);
  if (!extents || extents->size() != 4 || countOf(*extents).value_or(0) == 0)
    return nullptr;
  std::vector<int64_t> indices;
  for (int64_t row = 0; row < (*extents)[2]; ++row)
    indices.push_back(row * (*extents)[3]);
  std::vector<LinearForm> forms;
  if (!evaluation.trace(rows, indices, forms))
    return nullptr;
  const Value* past = nullptr;
  bool hasOthers = false;
  for (const LinearForm& form : forms) {
    const Value* input = inputOf(form);
    past = input ? input : past;
    hasOthers |= !input && !form.isNumber();
  }
  return hasOthers ? past : nullptr;
}

std::vector<const Value*> freshCandidates(const Value& value, Evaluation& evaluation) {
  std::vector<const Value*> visited;
  std::vector<LinearForm> forms;
  evaluation.noteVisited(&visited);
  const bool isTraced = evaluation.traceAll(value, forms);
  evaluation.noteVisited(nullptr);
  const auto factor = isTraced ? factorOf(forms) : std::nullopt;
  if (!factor)
    return {};
  FormIndex fresh;
  for (const LinearForm& form : forms)
    if (!inputOf(form) && !form.isNumber())
      fresh.try_emplace(form, 0);
  std::vector<const Value*> candidates;
  for (const Value* candidate : llvm::reverse(visited)) {
    const Extents* extents = evaluation.extents(*candidate);
    if (candidate == &value || !extents || candidate->isGraphInput() ||
        candidate->graph().parentNode() || llvm::is_contained(candidates, candidate) ||
        candidate->type().elementType() != value.type().elementType() ||
        countOf(*extents) != static_cast<int64_t>(fresh.size()))
      continue;
    std::vector<LinearForm> own;
    if (!evaluation.traceAll(*candidate, own))
      continue;
    scaleAll(own, *factor);
    if (llvm::all_of(own, [&](const LinearForm& form) { return fresh.count(form); }) &&
        indexForms(own))
      candidates.push_back(candidate);
  }
  return candidates;
}

std::optional<CachedRows> cachedRows(const Value& value, const Value* fresh,
                                     Evaluation& evaluation) {
  std::vector<LinearForm> forms, freshForms;
  const Extents* extents = evaluation.extents(value);
  if (!extents || !evaluation.traceAll(value, forms) || forms.empty() || extents->empty())
    return std::nullopt;
  const auto factor = factorOf(forms);
  if (!factor)
    return std::nullopt;
  CachedRows rows;
  rows.extents = *extents;
  rows.factor = *factor;
  FormIndex index;
  if (fresh) {
    const Extents* freshExtents = evaluation.extents(*fresh);
    if (!freshExtents || !evaluation.traceAll(*fresh, freshForms))
      return std::nullopt;
    scaleAll(freshForms, *factor);
    auto indexed = indexForms(freshForms);
    if (!indexed)
      return std::nullopt;
    index = std::move(*indexed);
    rows.freshExtents = *freshExtents;
  }
  std::vector<int64_t> sources;
  std::vector<bool> isFresh;
  for (const LinearForm& form : forms) {
    if (const Value* past = inputOf(form); past && !index.count(form)) {
      if (rows.past && rows.past != past)
        return std::nullopt;
      rows.past = past;
      sources.push_back(form.terms.front().element);
      isFresh.push_back(false);
      continue;
    }
    const auto found = index.find(form);
    if (found == index.end())
      return std::nullopt;
    rows.fresh = fresh;
    sources.push_back(found->second);
    isFresh.push_back(true);
  }
  if (rows.past) {
    const Extents* pastExtents = evaluation.extents(*rows.past);
    if (!pastExtents)
      return std::nullopt;
    rows.pastExtents = *pastExtents;
  }
  if (!rows.past || !rows.fresh) {
    auto fit = fitMovement(rows.extents, sources);
    if (!fit)
      return std::nullopt;
    rows.count = rows.past ? 0 : rows.extents[0];
    (rows.past ? rows.ofPast : rows.ofFresh) = std::move(*fit);
    return rows;
  }
  const auto split = splitAlongAxis(rows.extents, isFresh);
  if (!split)
    return std::nullopt;
  rows.axis = split->axis;
  rows.first = split->first;
  rows.count = split->count;
  // New rows that overwrote others: the rows on both sides belong to one tensor.
  const int64_t behind = rows.extents[rows.axis] - rows.first - rows.count;
  auto fitSection = [&](int64_t first, int64_t count) {
    Extents section = rows.extents;
    section[rows.axis] = count;
    std::vector<int64_t> picked;
    for (size_t element : sectionOf(rows.extents, rows.axis, first, count))
      picked.push_back(sources[element]);
    return fitMovement(section, picked);
  };
  auto ofFresh = fitSection(rows.first, rows.count);
  if (!ofFresh)
    return std::nullopt;
  rows.ofFresh = std::move(*ofFresh);
  if (rows.first == 0) {
    // The element for index 0 is before the first existing one.
    auto ofPast = fitSection(rows.count, behind);
    if (!ofPast || ofPast->axes[rows.axis].size() > 1)
      return std::nullopt;
    rows.ofPast = std::move(*ofPast);
    if (rows.ofPast.axes[rows.axis].empty())
      return std::nullopt;
    rows.ofPast.offset -= rows.ofPast.axes[rows.axis].front().stride * rows.count;
    return rows;
  }
  auto ofPast = fitSection(0, rows.first);
  if (!ofPast || ofPast->axes[rows.axis].size() > 1)
    return std::nullopt;
  rows.ofPast = std::move(*ofPast);
  if (behind == 0)
    return rows;
  auto rest = fitSection(rows.first + rows.count, behind);
  if (!rest || rest->axes[rows.axis].size() > 1)
    return std::nullopt;
  int64_t stride = 0;
  for (const MovementFit* fit : {&rows.ofPast, &*rest})
    if (!fit->axes[rows.axis].empty())
      stride = fit->axes[rows.axis].front().stride;
  if (stride == 0 || rest->offset != rows.ofPast.offset + stride * (rows.first + rows.count))
    return std::nullopt;
  rows.ofPast.axes[rows.axis] = {AxisFactor{rows.first, stride}};
  for (unsigned axis = 0; axis < rows.extents.size(); ++axis)
    if (axis != rows.axis && rest->axes[axis] != rows.ofPast.axes[axis])
      return std::nullopt;
  return rows;
}

} // namespace kvopt::analysis
