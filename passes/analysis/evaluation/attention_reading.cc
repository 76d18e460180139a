// Readings of attention.
#include "passes/analysis/evaluation/attention_reading.h"

#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/analysis/evaluation/traced_operators.h"
#include "support/format.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr int64_t mostSampledRows = 16;
/// A score that is lowered by this amount does not affect the result.
constexpr double hidingBias = -1e4;

std::vector<int64_t> sampledColumns(int64_t columns) {
  std::vector<int64_t> sampled{0};
  for (int64_t column : {columns / 2, columns - 1})
    if (column > sampled.back())
      sampled.push_back(column);
  return sampled;
}

ReadElement elementOf(const LinearForm& form) {
  if (form.terms.size() != 1)
    return {};
  const ElementTerm& term = form.terms.front();
  const Value& block = *term.block;
  if (!block.isGraphInput() || block.graph().parentNode() || !block.type().hasRank() ||
      block.type().rank() < 3)
    return {};
  return {block.name().str(), term.element};
}

/// The elements of blocks in a form, in a canonical order.
std::string signatureOf(const LinearForm& form) {
  std::vector<std::string> terms;
  for (const ElementTerm& term : form.terms)
    terms.push_back(formatted("{} of {}", term.element, term.block->name().str()));
  llvm::sort(terms);
  return llvm::join(terms, ", ");
}

/// Traces the same columns of many elements at once.
std::optional<std::vector<ReadElement>>
elementsAt(const Value& value, llvm::ArrayRef<int64_t> indices, Evaluation& evaluation) {
  std::vector<LinearForm> forms;
  if (!evaluation.trace(value, indices, forms))
    return std::nullopt;
  std::vector<ReadElement> elements;
  for (const LinearForm& form : forms)
    elements.push_back(elementOf(form));
  return elements;
}

/// One softmax between two products.
class SpelledReader {
public:
  SpelledReader(const Node& softmaxNode, const AttentionOperands& found, Evaluation& at)
      : softmax(softmaxNode), operands(found), evaluation(at) {}

  std::optional<AttentionReading> read() {
    const Extents* extents = evaluation.extents(softmax.result());
    if (!extents || extents->size() < 2 || extents->back() == 0 || !isOverLastAxis(*extents))
      return std::nullopt;
    reading.keys = extents->back();
    reading.rows = countOf(*extents).value_or(0) / reading.keys;
    if (reading.rows == 0 || !readScores() || !readKeys() || !readQueries())
      return std::nullopt;
    readValues();
    return std::move(reading);
  }

private:
  bool isOverLastAxis(const Extents& extents) const {
    const int64_t otherwise = softmax.graph().opsetVersion() >= 13 ? -1 : 1;
    const auto axis = normalizedAxis(softmax.intAttr("axis", otherwise), unsigned(extents.size()));
    return axis && *axis + 1 == extents.size();
  }

  /// Reads the bias that is added to the product, and the product's element for each score.
  bool readScores() {
    std::vector<int64_t> indices;
    for (int64_t row : AttentionReading::sampledRows(reading.rows))
      for (int64_t key = 0; key < reading.keys; ++key)
        indices.push_back(row * reading.keys + key);
    std::vector<LinearForm> forms;
    if (!evaluation.trace(*softmax.operand(0), indices, forms))
      return false;
    const Value* product = &operands.scores->result();
    for (size_t i = 0; i < forms.size(); ++i) {
      if (i % static_cast<size_t>(reading.keys) == 0)
        reading.pairs.emplace_back();
      ReadPair pair;
      pair.bias = forms[i].constant;
      int64_t element = -1;
      for (const ElementTerm& term : forms[i].terms) {
        if (term.block != product || element != -1)
          return false; // The score is another function of the product, or its mask is unknown.
        element = term.element;
      }
      pair.isHidden = pair.bias <= hidingBias;
      if (element == -1 && !pair.isHidden)
        return false;
      products.push_back(element);
      reading.pairs.back().push_back(std::move(pair));
    }
    return true;
  }

  bool readKeys() {
    auto sum = productOf(*operands.scores, evaluation);
    if (!sum || sum->depth == 0)
      return false;
    const std::vector<int64_t> columns = sampledColumns(sum->depth);
    // The operand that differs between keys holds the keys.
    const auto count = static_cast<size_t>(reading.keys);
    for (size_t row = 0; row < reading.pairs.size() && !isRight; ++row) {
      std::vector<std::pair<int64_t, int64_t>> seen;
      for (size_t key = 0; key < count; ++key)
        if (products[row * count + key] >= 0) {
          seen.emplace_back();
          sum->at(products[row * count + key], 0, seen.back().first, seen.back().second);
        }
      if (seen.size() >= 2 &&
          (seen[0].first == seen[1].first) != (seen[0].second == seen[1].second))
        isRight = seen[0].first == seen[1].first;
    }
    if (!isRight)
      return false;
    std::vector<int64_t> indices;
    std::vector<ReadPair*> pairs;
    for (size_t i = 0; i < products.size(); ++i) {
      if (products[i] < 0)
        continue;
      pairs.push_back(&reading.pairs[i / count][i % count]);
      for (int64_t column : columns) {
        int64_t left = 0, right = 0;
        sum->at(products[i], column, left, right);
        indices.push_back(*isRight ? right : left);
      }
    }
    const auto elements = elementsAt(*(*isRight ? sum->right : sum->left), indices, evaluation);
    if (!elements)
      return false;
    for (size_t i = 0; i < pairs.size(); ++i)
      pairs[i]->key.assign(elements->begin() + static_cast<long>(i * columns.size()),
                           elements->begin() + static_cast<long>((i + 1) * columns.size()));
    return true;
  }

  /// Reads the first column of each row's query, from the row's first score that is a product.
  bool readQueries() {
    auto sum = productOf(*operands.scores, evaluation);
    std::vector<int64_t> indices(static_cast<size_t>(reading.rows * reading.keys));
    for (size_t i = 0; i < indices.size(); ++i)
      indices[i] = static_cast<int64_t>(i);
    std::vector<LinearForm> scores, forms;
    if (!evaluation.trace(*softmax.operand(0), indices, scores))
      return false;
    std::vector<int64_t> elements;
    for (int64_t row = 0; row < reading.rows; ++row) {
      std::optional<int64_t> product;
      for (int64_t key = 0; key < reading.keys && !product; ++key)
        for (const ElementTerm& term : scores[static_cast<size_t>(row * reading.keys + key)].terms)
          product = term.element;
      int64_t left = 0, right = 0;
      if (!product)
        return false;
      sum->at(*product, 0, left, right);
      elements.push_back(*isRight ? left : right);
    }
    if (!evaluation.trace(*(*isRight ? sum->left : sum->right), elements, forms))
      return false;
    for (const LinearForm& form : forms)
      reading.queries.push_back(signatureOf(form));
    return true;
  }

  /// Reads the values of those rows of the second product that are the softmax's, in order.
  void readValues() {
    auto sum = productOf(*operands.output, evaluation);
    const Extents* output = evaluation.extents(operands.output->result());
    if (!sum || !output || output->empty() || sum->depth != reading.keys)
      return;
    const bool areValuesRight = !operands.hasValuesLeft;
    const int64_t width = output->back();
    if (countOf(*output) != reading.rows * width)
      return;
    const std::vector<int64_t> columns = sampledColumns(width);
    const std::vector<int64_t> rows = AttentionReading::sampledRows(reading.rows);
    std::vector<int64_t> weights, values;
    for (int64_t row : rows)
      for (int64_t key = 0; key < reading.keys; ++key)
        for (int64_t column : columns) {
          int64_t left = 0, right = 0;
          sum->at(row * width + column, key, left, right);
          weights.push_back(areValuesRight ? left : right);
          values.push_back(areValuesRight ? right : left);
        }
    std::vector<LinearForm> forms;
    if (!evaluation.trace(*(areValuesRight ? sum->left : sum->right), weights, forms))
      return;
    size_t next = 0;
    for (int64_t row : rows)
      for (int64_t key = 0; key < reading.keys; ++key)
        for (size_t column = 0; column < columns.size(); ++column, ++next) {
          const LinearForm& form = forms[next];
          if (form.terms.size() != 1 || form.terms.front().block != &softmax.result() ||
              form.terms.front().element != row * reading.keys + key)
            return;
        }
    const auto elements =
        elementsAt(*(areValuesRight ? sum->right : sum->left), values, evaluation);
    if (!elements)
      return;
    next = 0;
    for (auto& pairs : reading.pairs)
      for (ReadPair& pair : pairs) {
        pair.value.assign(elements->begin() + static_cast<long>(next),
                          elements->begin() + static_cast<long>(next + columns.size()));
        next += columns.size();
      }
  }

  const Node& softmax;
  const AttentionOperands& operands;
  Evaluation& evaluation;
  AttentionReading reading;
  std::vector<int64_t> products; ///< product's element by row and key; -1 if there is none
  std::optional<bool> isRight;   ///< whether keys are the right operand of the first product
};

std::string described(const ReadElement& element) {
  return element.isKnown() ? formatted("element {} of '{}'", element.element, element.input)
                           : std::string("something else");
}

/// The first column for which both readings have cache elements that differ.
std::string columnContradiction(const std::vector<ReadElement>& one,
                                const std::vector<ReadElement>& other, llvm::StringRef what,
                                int64_t row, size_t key) {
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    if (one[i].isKnown() && other[i].isKnown() && one[i] != other[i])
      return formatted("row {} reads {} {} from {}, and not from {}", row, what, key,
                       described(one[i]), described(other[i]));
  return "";
}

} // namespace

std::vector<int64_t> AttentionReading::sampledRows(int64_t rows) {
  std::vector<int64_t> sampled;
  const int64_t step = rows <= mostSampledRows ? 1 : rows / mostSampledRows | 1;
  for (int64_t row = 0; row < rows; row += step)
    sampled.push_back(row);
  return sampled;
}

std::vector<std::unique_ptr<Evaluation>> readingPoints(const Graph& graph,
                                                       const InterfaceFacts& facts) {
  const StepPoints steps(graph, facts);
  std::vector<std::unique_ptr<Evaluation>> points;
  for (const StepSize& size : steps.sizes()) {
    if (points.size() == 2)
      break;
    const StepSize small{2, size.tokens, std::min<int64_t>(size.past, 7), size.others};
    points.push_back(points.empty()
                         ? std::make_unique<Evaluation>(graph, steps.at(small))
                         : std::make_unique<Evaluation>(*points.front(), steps.at(small)));
  }
  if (points.empty())
    return points;
  EvaluationPoint hiding = points.front()->point();
  bool hidesAny = false;
  for (auto& entry : hiding.inputs) {
    std::vector<double>& numbers = entry.second.numbers;
    const bool isMask = numbers.size() > 2 && llvm::all_of(numbers, [&](double number) {
                          return number == numbers.front() && (number == 0 || number == 1);
                        });
    for (size_t i = 0; isMask && i < numbers.size(); i += 3)
      numbers[i] = 1 - numbers[i];
    hidesAny |= isMask;
  }
  if (hidesAny)
    points.push_back(std::make_unique<Evaluation>(*points.front(), std::move(hiding)));
  return points;
}

namespace {

/// Maximum number of nodes after a softmax by which two layers are compared.
constexpr size_t mostCompared = 48;
/// Maximum number of layers with equal form that are read.
constexpr unsigned mostAlike = 2;

/// Hash of the operators and types after a softmax, nearest first: equal for layers of equal form.
llvm::hash_code spellingOf(const Node& softmax) {
  llvm::hash_code hash = llvm::hash_combine(softmax.op());
  llvm::SetVector<const Node*> nodes;
  nodes.insert(&softmax);
  for (size_t i = 0; i < nodes.size() && i < mostCompared; ++i) {
    const Node& node = *nodes[i];
    hash = llvm::hash_combine(hash, node.op(), node.operands().size());
    if (node.result().type().hasRank())
      for (const Dim& dim : node.result().type().shape())
        hash = llvm::hash_combine(hash, dim);
    for (const NamedAttribute& attribute : node.attributes())
      hash = llvm::hash_combine(hash, llvm::StringRef(attribute.name),
                                node.intAttr(attribute.name, 0));
    for (const Use& use : node.operands())
      if (use.value() && use.value()->producer())
        nodes.insert(use.value()->producer());
  }
  return hash;
}

} // namespace

ExportedAttention readExportedAttention(const Graph& graph, const InterfaceFacts& facts) {
  ExportedAttention exported;
  std::vector<const Node*> softmaxes;
  std::map<size_t, unsigned> alike;
  for (const Node& node : graph.nodes())
    if (node.is("Softmax") && ++alike[spellingOf(node)] <= mostAlike)
      softmaxes.push_back(&node);
  if (softmaxes.empty())
    return exported;
  for (const std::unique_ptr<Evaluation>& evaluation : readingPoints(graph, facts))
    for (const Node* node : softmaxes) {
      const llvm::StringRef name = node->name().empty() ? node->result().name() : node->name();
      const auto operands = attentionOperands(const_cast<Node&>(*node), *evaluation);
      exported.bySoftmax[name].push_back(
          operands ? SpelledReader(*node, *operands, *evaluation).read() : std::nullopt);
    }
  return exported;
}

namespace {

/// The rows of a query tensor [B,H,S,D] that have the given queries; nullopt if one is missing.
std::optional<std::vector<int64_t>> rowsWith(const Value& query, const Extents& extents,
                                             const AttentionReading& exported,
                                             Evaluation& evaluation) {
  const int64_t width = extents.back();
  std::vector<int64_t> indices;
  for (int64_t row = 0; row < exported.rows; ++row)
    indices.push_back(row * width);
  std::vector<LinearForm> forms;
  if (width == 0 || !evaluation.trace(query, indices, forms))
    return std::nullopt;
  llvm::StringMap<int64_t> rowOf;
  for (int64_t row = 0; row < exported.rows; ++row)
    if (!rowOf.try_emplace(signatureOf(forms[static_cast<size_t>(row)]), row).second)
      return std::nullopt;
  std::vector<int64_t> rows;
  for (int64_t row : AttentionReading::sampledRows(exported.rows)) {
    const auto found = rowOf.find(exported.queries[static_cast<size_t>(row)]);
    if (found == rowOf.end())
      return std::nullopt;
    rows.push_back(found->second);
  }
  return rows;
}

} // namespace

std::optional<AttentionReading>
readCanonicalAttention(const Node& node, const AttentionReading& exported, Evaluation& evaluation) {
  const Extents* query = evaluation.extents(*node.operand(0));
  const Extents* key = evaluation.extents(*node.operand(1));
  const Extents* value = evaluation.extents(*node.operand(2));
  if (!query || !key || !value || query->size() != 4 || key->size() != 4 || value->size() != 4 ||
      (*key)[1] == 0 || (*query)[1] % (*key)[1] != 0 || node.operand(5) || node.operand(4))
    return std::nullopt;
  const int64_t heads = (*query)[1], tokens = (*query)[2], keys = (*key)[2];
  const int64_t repeats = heads / (*key)[1];
  AttentionReading reading;
  reading.rows = (*query)[0] * heads * tokens;
  reading.keys = keys;
  if (reading.rows != exported.rows || reading.keys != exported.keys)
    return std::nullopt;
  const auto rows = rowsWith(*node.operand(0), *query, exported, evaluation);
  if (!rows)
    return std::nullopt;
  const NumberTensor* mask = nullptr;
  if (const Value* given = node.operand(3)) {
    mask = evaluation.numbers(*given);
    if (!mask || !broadcastOf(mask->extents, Extents{(*query)[0], heads, tokens, keys}))
      return std::nullopt;
  }
  const bool isBoolean = mask && node.operand(3)->type().elementType() == ElementType::Bool;
  const BroadcastElements masked(Extents{(*query)[0], heads, tokens, keys},
                                 mask ? mask->extents : Extents{});
  const bool causal = node.intAttr("causal", 0) != 0;
  const int64_t window = node.intAttr("window", 0);
  const std::vector<int64_t> keyColumns = sampledColumns(key->back()),
                             valueColumns = sampledColumns(value->back());
  std::vector<int64_t> keyIndices, valueIndices;
  for (int64_t row : *rows) {
    const int64_t i = row % tokens, h = row / tokens % heads, b = row / tokens / heads;
    reading.pairs.emplace_back();
    for (int64_t j = 0; j < keys; ++j) {
      ReadPair pair;
      const int64_t position = i + keys - tokens;
      pair.isHidden = (causal && j > position) || (window > 0 && position - j >= window);
      if (mask && reading.rows > 0) {
        const double number = mask->numbers[static_cast<size_t>(masked(row * keys + j))];
        if (isBoolean)
          pair.isHidden |= number == 0;
        else
          pair.bias = number;
      }
      pair.isHidden |= pair.bias <= hidingBias;
      reading.pairs.back().push_back(std::move(pair));
      for (int64_t column : keyColumns)
        keyIndices.push_back(elementAt({b, h / repeats, j, column}, *key));
      for (int64_t column : valueColumns)
        valueIndices.push_back(elementAt({b, h / repeats, j, column}, *value));
    }
  }
  const auto ofKeys = elementsAt(*node.operand(1), keyIndices, evaluation);
  const auto ofValues = elementsAt(*node.operand(2), valueIndices, evaluation);
  if (!ofKeys || !ofValues)
    return std::nullopt;
  size_t nextKey = 0, nextValue = 0;
  for (auto& pairs : reading.pairs)
    for (ReadPair& pair : pairs) {
      for (size_t i = 0; i < keyColumns.size(); ++i)
        pair.key.push_back((*ofKeys)[nextKey++]);
      for (size_t i = 0; i < valueColumns.size(); ++i)
        pair.value.push_back((*ofValues)[nextValue++]);
    }
  return reading;
}

std::string contradiction(const AttentionReading& exported, const AttentionReading& recognized) {
  if (exported.rows != recognized.rows || exported.keys != recognized.keys)
    return "";
  const std::vector<int64_t> rows = AttentionReading::sampledRows(exported.rows);
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& before = exported.pairs[r];
    const auto& after = recognized.pairs[r];
    auto isVisible = [](const ReadPair& pair) { return !pair.isHidden; };
    const auto first = llvm::find_if(before, isVisible);
    if (first == before.end())
      continue; // The result of a row that sees no key is undefined.
    const double offset = after[static_cast<size_t>(first - before.begin())].bias - first->bias;
    for (size_t key = 0; key < before.size(); ++key) {
      if (before[key].isHidden != after[key].isHidden)
        return formatted("row {} {} key {}", rows[r],
                         before[key].isHidden ? "does not see" : "sees", key);
      if (before[key].isHidden)
        continue;
      const double bias = before[key].bias + offset;
      if (std::abs(after[key].bias - bias) > 1e-3 * (1 + std::abs(bias)))
        return formatted("the mask adds {2} to the score of row {0} and key {1}, relative to the "
                         "row's first key, and not {3}",
                         rows[r], key, before[key].bias - first->bias,
                         after[key].bias - first->bias - offset);
      for (const std::string& text :
           {columnContradiction(before[key].key, after[key].key, "key", rows[r], key),
            columnContradiction(before[key].value, after[key].value, "value", rows[r], key)})
        if (!text.empty())
          return text;
    }
  }
  return "";
}

} // namespace kvopt::analysis
