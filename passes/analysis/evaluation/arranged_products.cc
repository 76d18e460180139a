// Determines which elements are multiplied with each other.
#include "passes/analysis/evaluation/arranged_products.h"

#include "passes/analysis/evaluation/traced_operators.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of multiplications that are checked.
constexpr int64_t mostMultiplied = int64_t{1} << 22;

/// Sets an element of an arranged tensor; false if it was set to another one.
bool setOnce(std::vector<int64_t>& elements, int64_t index, int64_t element) {
  int64_t& placed = elements[static_cast<size_t>(index)];
  if (placed == -1)
    placed = element;
  return placed == element;
}

/// Shape of scores, cut into rows of one batch row and head.
struct ScoreShape {
  int64_t outer = 0, queries = 0, keys = 0;
  explicit ScoreShape(const Extents& extents)
      : outer(extents[0] * extents[1]), queries(extents[2]), keys(extents[3]) {}
};

/// For each score, the element of `product` that it is a multiple of.
std::optional<std::vector<int64_t>> productElements(llvm::ArrayRef<LinearForm> scores,
                                                    const Value& product, double& factor) {
  std::vector<int64_t> elements;
  for (const LinearForm& form : scores) {
    if (form.terms.size() != 1 || form.constant != 0 || form.terms.front().block != &product ||
        form.terms.front().weight != scores.front().terms.front().weight)
      return std::nullopt;
    elements.push_back(form.terms.front().element);
  }
  factor = scores.front().terms.front().weight;
  return elements;
}

/// Arranges both factors, with the queries in the left or in the right one.
bool arrange(ProductElements& product, llvm::ArrayRef<int64_t> elements, const Extents& scores,
             bool hasQueriesLeft, ArrangedScores& arranged) {
  const ScoreShape shape(scores);
  arranged.queries = {
      hasQueriesLeft ? product.left : product.right,
      {scores[0], scores[1], scores[2], product.depth},
      std::vector<int64_t>(static_cast<size_t>(shape.outer * shape.queries * product.depth), -1)};
  arranged.keys = {
      hasQueriesLeft ? product.right : product.left,
      {scores[0], scores[1], scores[3], product.depth},
      std::vector<int64_t>(static_cast<size_t>(shape.outer * shape.keys * product.depth), -1)};
  for (size_t i = 0; i < elements.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const int64_t key = index % shape.keys, query = index / shape.keys;
    const int64_t row = query / shape.queries * shape.keys + key;
    for (int64_t k = 0; k < product.depth; ++k) {
      int64_t left = 0, right = 0;
      product.at(elements[i], k, left, right);
      if (!hasQueriesLeft)
        std::swap(left, right);
      if (!setOnce(arranged.queries.elements, query * product.depth + k, left) ||
          !setOnce(arranged.keys.elements, row * product.depth + k, right))
        return false;
    }
  }
  return true;
}

} // namespace

std::optional<ArrangedScores> arrangedScores(const Value& scores, const Node& product,
                                             Evaluation& evaluation) {
  const Extents* extents = evaluation.extents(scores);
  const auto count = extents && extents->size() == 4 ? countOf(*extents) : std::nullopt;
  auto factors = productOf(product, evaluation);
  std::vector<LinearForm> forms;
  if (!count || *count == 0 || !factors || factors->depth == 0 ||
      *count > mostMultiplied / factors->depth || !evaluation.traceAll(scores, forms) ||
      forms.front().terms.size() != 1)
    return std::nullopt;
  ArrangedScores arranged;
  const auto elements = productElements(forms, product.result(), arranged.factor);
  if (!elements)
    return std::nullopt;
  for (bool hasQueriesLeft : {true, false})
    if (arrange(*factors, *elements, *extents, hasQueriesLeft, arranged))
      return arranged;
  return std::nullopt;
}

namespace {

/// For each element of a value, the element of `probabilities` that it equals; nullopt if there is
/// none.
std::optional<std::vector<int64_t>> probabilitiesIn(const Value& value, const Value& probabilities,
                                                    Evaluation& evaluation) {
  std::vector<LinearForm> all, own;
  if (!evaluation.traceAll(probabilities, all) || !evaluation.traceAll(value, own))
    return std::nullopt;
  const auto index = indexForms(all);
  std::vector<int64_t> elements;
  for (const LinearForm& form : own) {
    const auto found = index ? index->find(form) : FormIndex::const_iterator();
    if (!index || found == index->end())
      return std::nullopt;
    elements.push_back(found->second);
  }
  return elements;
}

/// The row of [B,H,S] over which the product's element sums; nullopt unless it sums over all keys
/// in their order.
std::optional<int64_t> summedRow(ProductElements& product, int64_t element, bool hasValuesLeft,
                                 llvm::ArrayRef<int64_t> probabilities) {
  std::optional<int64_t> row;
  for (int64_t k = 0; k < product.depth; ++k) {
    int64_t left = 0, right = 0;
    product.at(element, k, left, right);
    const int64_t weight = probabilities[static_cast<size_t>(hasValuesLeft ? right : left)];
    if (weight % product.depth != k || (row && *row != weight / product.depth))
      return std::nullopt;
    row = weight / product.depth;
  }
  return row;
}

} // namespace

std::optional<ArrangedOutput> arrangedOutput(const Node& product, bool hasValuesLeft,
                                             const Value& probabilities, Evaluation& evaluation) {
  const Extents* extents = evaluation.extents(probabilities);
  const Extents* after = evaluation.extents(product.result());
  const int64_t count = after ? countOf(*after).value_or(0) : 0;
  auto factors = productOf(product, evaluation);
  if (!extents || extents->size() != 4 || count == 0 || !factors ||
      factors->depth != extents->back() || factors->depth == 0 ||
      count > mostMultiplied / factors->depth)
    return std::nullopt;
  const auto weights =
      probabilitiesIn(*(hasValuesLeft ? factors->right : factors->left), probabilities, evaluation);
  if (!weights)
    return std::nullopt;
  const ScoreShape shape(*extents);
  const int64_t rows = shape.outer * shape.queries;
  if (count % rows != 0)
    return std::nullopt;
  const int64_t width = count / rows;
  ArrangedOutput arranged;
  arranged.values = {
      hasValuesLeft ? factors->left : factors->right,
      {(*extents)[0], (*extents)[1], shape.keys, width},
      std::vector<int64_t>(static_cast<size_t>(shape.outer * shape.keys * width), -1)};
  arranged.result.extents = *after;
  // Columns are numbered in the order in which the product has them.
  std::vector<int64_t> columns(static_cast<size_t>(rows), 0);
  for (int64_t element = 0; element < count; ++element) {
    const auto row = summedRow(*factors, element, hasValuesLeft, *weights);
    if (!row)
      return std::nullopt;
    const int64_t column = columns[static_cast<size_t>(*row)]++;
    if (column == width)
      return std::nullopt;
    arranged.result.elements.push_back(*row * width + column);
    for (int64_t key = 0; key < shape.keys; ++key) {
      int64_t left = 0, right = 0;
      factors->at(element, key, left, right);
      const int64_t place = (*row / shape.queries * shape.keys + key) * width + column;
      if (!setOnce(arranged.values.elements, place, hasValuesLeft ? left : right))
        return std::nullopt;
    }
  }
  return arranged;
}

} // namespace kvopt::analysis
