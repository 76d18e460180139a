// Evaluation on demand.
#include "passes/analysis/evaluation/evaluation.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/evaluation/number_operators.h"
#include "passes/analysis/evaluation/selection.h"
#include "passes/analysis/evaluation/traced_operators.h"
#include "passes/analysis/movement/data_movement.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <span>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of elements of a constant that is read as a whole. Larger constants are weights
/// or tables; only single elements of them are read.
constexpr int64_t mostConstantNumbers = int64_t{1} << 14;
/// Maximum depth of nested evaluations or traces.
constexpr unsigned mostDepth = 1500;
/// Maximum number of forms kept for values that were traced as a whole.
constexpr int64_t mostKeptForms = int64_t{1} << 18;
/// Maximum number of elements traced for one request.
constexpr int64_t mostWork = int64_t{1} << 25;

template <typename T> T load(std::span<const std::byte> bytes, int64_t element) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(element) * sizeof(T), sizeof(T));
  return value;
}

std::optional<double> elementOf(const TensorData& tensor, int64_t element) {
  if (element < 0 || element >= tensor.elementCount())
    return std::nullopt;
  auto bytes = tensor.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  switch (tensor.elementType()) {
  case ElementType::Float:
    return load<float>(*bytes, element);
  case ElementType::Double:
    return load<double>(*bytes, element);
  case ElementType::Float16:
    return f16ToFloat(load<uint16_t>(*bytes, element));
  case ElementType::BFloat16:
    return bf16ToFloat(load<uint16_t>(*bytes, element));
  case ElementType::Int64:
    return static_cast<double>(load<int64_t>(*bytes, element));
  case ElementType::Int32:
    return load<int32_t>(*bytes, element);
  case ElementType::Int16:
    return load<int16_t>(*bytes, element);
  case ElementType::Int8:
    return load<int8_t>(*bytes, element);
  case ElementType::UInt8:
  case ElementType::Bool:
    return load<uint8_t>(*bytes, element);
  default:
    return std::nullopt;
  }
}

std::unique_ptr<NumberTensor> constantNumbers(const TensorData& tensor) {
  if (tensor.elementCount() > mostConstantNumbers)
    return nullptr;
  auto result = std::make_unique<NumberTensor>();
  result->extents.assign(tensor.shape().begin(), tensor.shape().end());
  for (int64_t i = 0; i < tensor.elementCount(); ++i) {
    const std::optional<double> number = elementOf(tensor, i);
    if (!number)
      return nullptr;
    result->numbers.push_back(*number);
  }
  return result;
}

/// Counts the nesting of calls.
class Deeper {
public:
  explicit Deeper(unsigned& calls) : depth(calls) { ++depth; }
  ~Deeper() { --depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

private:
  unsigned& depth;
};

/// The constant that a value is moved or converted from; null for other values.
const TensorData* constantBehind(const Value* value) {
  for (unsigned i = 0; value && i < 8; ++i) {
    if (const TensorData* constant = value->constant())
      return constant;
    const Node* node = value->producer();
    if (!node)
      return nullptr;
    value = node->is("DequantizeLinear") ? node->operand(0) : movedOperand(*node);
  }
  return nullptr;
}

/// Whether a constant factor of a product is a matrix of weights. Tables that select elements are
/// small, and nearly all of their elements are 0.
bool isWeight(const TensorData& constant) {
  if (constant.elementCount() > mostConstantNumbers)
    return true;
  if (constant.shape().size() < 2)
    return false;
  int64_t nonZero = 0;
  for (int64_t i = 0; i < constant.elementCount(); ++i)
    nonZero += elementOf(constant, i).value_or(1) != 0 ? 1 : 0;
  const int64_t rows = constant.shape()[constant.shape().size() - 2];
  const int64_t columns = constant.shape().back();
  return rows > 4 && columns > 4 && nonZero > constant.elementCount() / 2;
}

/// Whether the operator sums products with weights, so that its result does not depend on single
/// elements.
bool multipliesWeights(const Node& node) {
  if (isSelecting(node) || elementFunction(node) || isReduction(node))
    return false;
  return llvm::any_of(node.operands(), [](const Use& use) {
    const TensorData* constant = constantBehind(use.value());
    return constant && isFloatingPoint(constant->elementType()) && isWeight(*constant);
  });
}

} // namespace

/// Determines whether values are data, once for all points of one graph. A product with weights is
/// data, whatever its other factor; its operands are not examined.
class Evaluation::DataValues {
public:
  explicit DataValues(const EvaluationPoint& point) {
    for (const auto& [input, numbers] : point.inputs)
      known[input] = readsIds[input] = false;
    for (const Value* input : point.ids)
      readsIds[input] = true;
  }

  bool contains(const Value& value) {
    if (value.constant())
      return false;
    const auto found = known.find(&value);
    if (found != known.end())
      return found->second;
    const Node* node = value.producer();
    if (!node)
      return known[&value] = true;
    if (depth > mostDepth)
      return true;
    const Deeper deeper(depth);
    const bool isData = isDataNode(*node);
    return known[&value] = isData;
  }

  /// Whether the node multiplies by weights.
  bool isWeighted(const Node& node) {
    const auto [found, isNew] = weighted.try_emplace(&node, false);
    if (isNew)
      found->second = multipliesWeights(node);
    return found->second;
  }

  /// Whether the node looks up token ids in a table of floating-point numbers.
  bool isEmbedding(const Node& node) {
    if (!node.is("Gather") || !node.operand(0) || !node.operand(1))
      return false;
    const TensorData* table = constantBehind(node.operand(0));
    return table && isFloatingPoint(table->elementType()) && dependsOnIds(*node.operand(1));
  }

private:
  bool dependsOnIds(const Value& value) {
    const auto found = readsIds.find(&value);
    if (found != readsIds.end())
      return found->second;
    const Node* node = value.producer();
    if (!node || node->is("Shape") || node->is("Size") || depth > mostDepth)
      return readsIds[&value] = false;
    const Deeper deeper(depth);
    const bool depends = llvm::any_of(node->operands(), [&](const Use& use) {
      return use.value() && dependsOnIds(*use.value());
    });
    return readsIds[&value] = depends;
  }

  bool isDataNode(const Node& node) {
    if (node.is("Shape") || node.is("Size") || node.is("EyeLike"))
      return false;
    return !node.subgraphs().empty() || isWeighted(node) || isEmbedding(node) ||
           llvm::any_of(node.operands(),
                        [&](const Use& use) { return use.value() && contains(*use.value()); });
  }

  llvm::DenseMap<const Value*, bool> known, readsIds;
  llvm::DenseMap<const Node*, bool> weighted;
  unsigned depth = 0;
};

Evaluation::Evaluation(const Graph& graph, EvaluationPoint at)
    : evaluated(graph), chosen(std::move(at)), data(std::make_shared<DataValues>(chosen)) {}

Evaluation::Evaluation(const Evaluation& other, EvaluationPoint at)
    : evaluated(other.evaluated), chosen(std::move(at)), data(other.data) {}

bool Evaluation::isData(const Value& value) const { return data->contains(value); }

const Graph* Evaluation::takenBranch(const Node& node) {
  if (!node.is("If") || !node.operand(0))
    return nullptr;
  const NumberTensor* condition = numbers(*node.operand(0));
  if (!condition || !condition->isSingle())
    return nullptr;
  const Attribute* branch =
      node.attribute(condition->numbers.front() != 0 ? "then_branch" : "else_branch");
  return branch && !branch->graphs().empty() ? branch->graphs().front().get() : nullptr;
}

const Extents* Evaluation::extents(const Value& value) {
  const auto found = extentsOf.find(&value);
  if (found != extentsOf.end())
    return found->second.get();
  if (depth > mostDepth)
    return nullptr;
  const Deeper deeper(depth);
  std::optional<Extents> computed = computeExtents(value);
  if (computed && !countOf(*computed))
    computed.reset();
  auto& stored = extentsOf[&value];
  stored = computed ? std::make_unique<Extents>(std::move(*computed)) : nullptr;
  return stored.get();
}

std::optional<Extents> Evaluation::computeExtents(const Value& value) {
  if (const TensorData* constant = value.constant())
    return Extents(constant->shape().begin(), constant->shape().end());
  const auto given = chosen.inputs.find(&value);
  if (given != chosen.inputs.end())
    return given->second.extents;
  if (value.type().hasRank()) {
    Extents known;
    for (const Dim& dim : value.type().shape()) {
      const auto extent = dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
        const auto found = chosen.extents.find(symbol);
        return found == chosen.extents.end() ? std::nullopt : std::optional(found->second);
      });
      if (!extent || *extent < 0)
        break;
      known.push_back(*extent);
    }
    if (known.size() == value.type().rank())
      return known;
  }
  const Node* node = value.producer();
  if (!node)
    return std::nullopt;
  if (const Graph* branch = takenBranch(*node)) {
    const Extents* taken = extents(*branch->outputs()[value.resultIndex()]);
    return taken ? std::optional(*taken) : std::nullopt;
  }
  if (auto defined = definedExtents(value, *this))
    return defined;
  const NumberTensor* tensor = numbers(value);
  return tensor ? std::optional(tensor->extents) : std::nullopt;
}

const NumberTensor* Evaluation::numbers(const Value& value) {
  const auto given = chosen.inputs.find(&value);
  if (given != chosen.inputs.end())
    return &given->second;
  const auto found = numbersOf.find(&value);
  if (found != numbersOf.end())
    return found->second.get();
  if (depth > mostDepth)
    return nullptr;
  const Deeper deeper(depth);
  std::unique_ptr<NumberTensor> computed = computeNumbers(value);
  if (computed && computed->isSingle() && !value.constant())
    integersRead.push_back(computed->numbers.front());
  auto& stored = numbersOf[&value];
  stored = std::move(computed);
  return stored.get();
}

std::unique_ptr<NumberTensor> Evaluation::computeNumbers(const Value& value) {
  if (const TensorData* constant = value.constant()) {
    auto tensor = constantNumbers(*constant);
    constexpr size_t longest = 8;
    if (tensor && tensor->numbers.size() <= longest)
      integersRead.insert(integersRead.end(), tensor->numbers.begin(), tensor->numbers.end());
    return tensor;
  }
  const Node* node = value.producer();
  if (!node)
    return nullptr;
  if (const Graph* branch = takenBranch(*node)) {
    const NumberTensor* taken = numbers(*branch->outputs()[value.resultIndex()]);
    return taken ? std::make_unique<NumberTensor>(*taken) : nullptr;
  }
  if (isData(value))
    return nullptr;
  const bool converts = movementKind(*node) == MovementKind::Convert &&
                        movedOperand(*node)->type().elementType() != value.type().elementType();
  return isSelecting(*node) && !converts ? selectNumbers(value) : numbersFrom(value, *this);
}

std::unique_ptr<NumberTensor> Evaluation::selectNumbers(const Value& value) {
  const Extents* shape = extents(value);
  const auto count = shape ? countOf(*shape, mostNumbers) : std::nullopt;
  ElementSelection select = count ? selectionOf(value, *this) : nullptr;
  if (!select)
    return nullptr;
  auto result = std::make_unique<NumberTensor>();
  result->extents = *shape;
  for (int64_t i = 0; i < *count; ++i) {
    const SelectedElement from = select(i);
    if (from.operand == SelectedElement::filled) {
      result->numbers.push_back(from.fill);
      continue;
    }
    const auto number = numberAt(*value.producer()->operand(from.operand), from.element);
    if (!number)
      return nullptr;
    result->numbers.push_back(*number);
  }
  return result;
}

std::optional<double> Evaluation::numberAt(const Value& value, int64_t element) {
  if (const TensorData* constant = value.constant();
      constant && constant->elementCount() > mostConstantNumbers)
    return elementOf(*constant, element);
  const NumberTensor* tensor = numbers(value);
  if (!tensor || element < 0 || element >= static_cast<int64_t>(tensor->numbers.size()))
    return std::nullopt;
  return tensor->numbers[static_cast<size_t>(element)];
}

bool Evaluation::traceAll(const Value& value, std::vector<LinearForm>& forms) {
  const Extents* shape = extents(value);
  const auto count = shape ? countOf(*shape, mostWork) : std::nullopt;
  if (!count)
    return false;
  std::vector<int64_t> all(static_cast<size_t>(*count));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<int64_t>(i);
  if (!trace(value, all, forms))
    return false;
  if (keptForms + *count <= mostKeptForms && wholeForms.try_emplace(&value, forms).second)
    keptForms += *count;
  return true;
}

bool Evaluation::trace(const Value& value, llvm::ArrayRef<int64_t> indices,
                       std::vector<LinearForm>& forms) {
  if (depth == 0)
    work = 0;
  work += static_cast<int64_t>(indices.size());
  if (depth > mostDepth || work > mostWork)
    return false;
  const Deeper deeper(depth);
  forms.assign(indices.size(), LinearForm());
  if (indices.empty())
    return true;
  // Kept forms are not used while visited values are recorded.
  const auto whole = visited ? wholeForms.end() : wholeForms.find(&value);
  if (whole != wholeForms.end()) {
    for (size_t i = 0; i < indices.size(); ++i)
      forms[i] = whole->second[static_cast<size_t>(indices[i])];
    return true;
  }
  if (!isData(value)) {
    bool isKnown = true;
    for (size_t i = 0; i < indices.size() && isKnown; ++i) {
      const auto number = numberAt(value, indices[i]);
      isKnown = number.has_value();
      if (isKnown)
        forms[i] = LinearForm::number(*number);
    }
    if (isKnown)
      return true;
  }
  if (visited)
    visited->push_back(&value);
  return traceNode(value, indices, forms);
}

bool Evaluation::traceNode(const Value& value, llvm::ArrayRef<int64_t> indices,
                           std::vector<LinearForm>& forms) {
  if (const Node* node = value.producer()) {
    if (const Graph* branch = takenBranch(*node))
      return trace(*branch->outputs()[value.resultIndex()], indices, forms);
    bool followed = false;
    if (isSelecting(*node) && !data->isEmbedding(*node) &&
        !traceSelected(value, indices, forms, followed))
      return false;
    if (followed)
      return true;
    if (value.resultIndex() == 0 && !data->isWeighted(*node)) {
      switch (traceThrough(*node, indices, *this, forms)) {
      case TraceResult::Followed:
        return true;
      case TraceResult::TooMuch:
        return false;
      case TraceResult::Block:
        break;
      }
    }
  }
  forms.assign(indices.size(), LinearForm());
  for (size_t i = 0; i < indices.size(); ++i)
    forms[i] = LinearForm::element(value, indices[i]);
  return true;
}

bool Evaluation::traceSelected(const Value& value, llvm::ArrayRef<int64_t> indices,
                               std::vector<LinearForm>& forms, bool& followed) {
  const Node& node = *value.producer();
  if (movementKind(node) == MovementKind::Convert &&
      !keepsNumbers(movedOperand(node)->type().elementType(), value.type().elementType()))
    return true;
  ElementSelection select = selectionOf(value, *this);
  if (!select)
    return true;
  std::vector<std::vector<int64_t>> elements(node.operands().size()), places(elements.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const SelectedElement from = select(indices[i]);
    if (from.operand == SelectedElement::filled) {
      forms[i] = LinearForm::number(from.fill);
      continue;
    }
    elements[from.operand].push_back(from.element);
    places[from.operand].push_back(static_cast<int64_t>(i));
  }
  std::vector<LinearForm> part;
  for (size_t operand = 0; operand < elements.size(); ++operand) {
    if (elements[operand].empty())
      continue;
    if (!trace(*node.operand(static_cast<unsigned>(operand)), elements[operand], part))
      return false;
    for (size_t i = 0; i < part.size(); ++i)
      forms[static_cast<size_t>(places[operand][i])] = std::move(part[i]);
  }
  followed = true;
  return true;
}

} // namespace kvopt::analysis
