// Applies the operators' shape rules to a graph and its subgraphs.
#include "ir/shapes/shape_inference.h"

#include "ir/shapes/shape_rules.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

constexpr size_t maxKnownIntegers = 64;
constexpr unsigned maxGraphNesting = 64;

llvm::Error inferNodes(Graph& graph, unsigned depth);

bool holdsIntegers(ElementType element) {
  return isInteger(element) || element == ElementType::Bool;
}

// Parts that a rule leaves unknown (element type, rank) keep their declaration.
void assignType(Value& value, TensorType type) {
  if (type.elementType() == ElementType::Undefined)
    type.setElementType(value.type().elementType());
  if (!type.hasRank() && value.type().hasRank())
    type.setShape(Shape(value.type().shape().begin(), value.type().shape().end()));
  value.setType(std::move(type));
}

// Types of parameters of a loop's body. Shapes may change between iterations; element types cannot.
void passLoopOperands(Node& node, Graph& body) {
  const bool isScan = node.is("Scan");
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    Value& input = *body.inputs()[i];
    if (input.type().elementType() != ElementType::Undefined)
      continue;
    ElementType element = i == 0 ? ElementType::Int64 : ElementType::Bool;
    if (i >= 2 || isScan) {
      const Value* initial = node.operand(static_cast<unsigned>(i));
      element = initial ? initial->type().elementType() : ElementType::Undefined;
    }
    TensorType type = input.type();
    type.setElementType(element);
    input.setType(std::move(type));
  }
}

/// Gives parameters of a body without a declared shape the extents of the operands. Returns those
/// parameters whose extents an iteration could change.
llvm::SmallVector<unsigned, 4> fillParameters(const Node& node, Graph& body) {
  llvm::SmallVector<unsigned, 4> carried;
  const auto operands = static_cast<unsigned>(node.operands().size());
  const int64_t scans = node.is("Scan") ? node.intAttr("num_scan_inputs", 0) : 0;
  const unsigned first = node.is("Scan") ? 0 : 2;
  for (unsigned i = first; i < operands && i < body.inputs().size(); ++i) {
    Value& parameter = *body.inputs()[i];
    const Value* operand = node.operand(i);
    if (parameter.type().hasRank() || !operand || !operand->type().hasRank())
      continue;
    const bool isScanned = i + scans >= operands && scans > 0;
    const auto shape =
        isScanned ? scannedRow(node, static_cast<size_t>(i + scans - operands), operand->type())
                  : std::optional(shapeOf(operand->type()));
    parameter.setType(typeOf(parameter.type().elementType(), shape));
    if (!isScanned)
      carried.push_back(i);
  }
  return carried;
}

/// Whether an iteration returns each of the carried parameters with the extents that it had before.
bool keepsParameters(const Node& node, const Graph& body, llvm::ArrayRef<unsigned> carried) {
  return llvm::all_of(carried, [&](unsigned i) {
    const unsigned output = node.is("Scan") ? i : i - 1;
    if (output >= body.outputs().size())
      return false;
    const TensorType& before = body.inputs()[i]->type();
    const TensorType& after = body.outputs()[output]->type();
    return before.hasRank() && after.hasRank() && before.rank() == after.rank() &&
           llvm::all_of(llvm::zip(before.shape(), after.shape()), [](const auto& extents) {
             return std::get<0>(extents).isKnownEqual(std::get<1>(extents));
           });
  });
}

llvm::Error inferBody(Node& node, Graph& body, unsigned depth) {
  passLoopOperands(node, body);
  const llvm::SmallVector<unsigned, 4> carried = fillParameters(node, body);
  std::vector<TensorType> declared;
  if (!carried.empty())
    for (const Node& inner : body.nodes())
      for (const Value& result : inner.results())
        declared.push_back(result.type());
  if (llvm::Error error = inferNodes(body, depth))
    return error;
  if (keepsParameters(node, body, carried))
    return llvm::Error::success();
  for (unsigned i : carried)
    body.inputs()[i]->setType(TensorType(body.inputs()[i]->type().elementType()));
  size_t next = 0;
  for (Node& inner : body.nodes())
    for (Value& result : inner.results())
      result.setType(declared[next++]);
  return inferNodes(body, depth);
}

llvm::Error inferSubgraphs(Node& node, unsigned depth) {
  if (node.subgraphs().empty())
    return llvm::Error::success();
  const bool isLoop = node.is("Loop") || node.is("Scan");
  for (const NamedAttribute& attribute : node.attributes())
    for (const std::unique_ptr<Graph>& subgraph : attribute.value.graphs()) {
      llvm::Error error =
          isLoop ? inferBody(node, *subgraph, depth + 1) : inferNodes(*subgraph, depth + 1);
      if (!error)
        continue;
      Diagnostic diagnostic = takeDiagnostic(std::move(error));
      diagnostic.notes.push_back(formatted("in '{}' of {}", attribute.name, node.describe()));
      return makeError(std::move(diagnostic));
    }
  return llvm::Error::success();
}

/// The rule of the operator, or the one for all operators; null if there is none.
ShapeRule ruleFor(const Node& node) {
  const OpDef* definition = node.definition();
  return definition && definition->inferShapes ? definition->inferShapes
                                               : node.graph().context().ops().shapes();
}

llvm::Error inferWithSubgraphs(Node& node, unsigned depth) {
  if (llvm::Error error = inferSubgraphs(node, depth))
    return error;
  for (Value& result : node.results())
    result.setKnownIntegers(std::nullopt);
  const ShapeRule rule = ruleFor(node);
  if (!rule)
    return llvm::Error::success();
  // The value of such an attribute is only known at a call of the function.
  if (llvm::any_of(node.attributes(),
                   [](const NamedAttribute& attribute) { return attribute.value.isReference(); }))
    return llvm::Error::success();
  ShapeContext context(node);
  return rule(context);
}

llvm::Error inferNodes(Graph& graph, unsigned depth) {
  if (depth > maxGraphNesting)
    return unsupported("subgraphs are nested more than {} deep", maxGraphNesting);
  for (Node& node : graph.nodes())
    if (llvm::Error error = inferWithSubgraphs(node, depth))
      return error;
  return llvm::Error::success();
}

} // namespace

int64_t ShapeContext::opset() const { return current.graph().opsetVersion(current.op().domain()); }

const TensorType& ShapeContext::type(unsigned operand) const {
  static const TensorType absent;
  const Value* value = current.operand(operand);
  return value ? value->type() : absent;
}

std::optional<llvm::SmallVector<Dim, 4>> ShapeContext::integers(unsigned operand) const {
  const Value* value = current.operand(operand);
  if (!value)
    return std::nullopt;
  auto elements = value->knownIntegers();
  if (elements && elements->size() > maxKnownIntegers)
    return std::nullopt;
  return elements;
}

std::optional<llvm::SmallVector<int64_t, 8>>
ShapeContext::constantIntegers(unsigned operand) const {
  auto elements = integers(operand);
  if (!elements)
    return std::nullopt;
  llvm::SmallVector<int64_t, 8> constants;
  for (const Dim& element : *elements) {
    std::optional<int64_t> constant = element.value();
    if (!constant)
      return std::nullopt;
    constants.push_back(*constant);
  }
  return constants;
}

void ShapeContext::setResult(unsigned result, TensorType type) {
  if (result < resultCount() && !current.result(result).isAbsent())
    assignType(current.result(result), std::move(type));
}

void ShapeContext::setIntegers(unsigned result, std::optional<llvm::SmallVector<Dim, 4>> elements) {
  if (result >= resultCount() || current.result(result).isAbsent())
    return;
  Value& value = current.result(result);
  value.setKnownIntegers(std::nullopt);
  const TensorType& type = value.type();
  if (!elements || elements->size() > maxKnownIntegers || !holdsIntegers(type.elementType()) ||
      !type.hasRank() || type.rank() > 1)
    return;
  int64_t count = static_cast<int64_t>(elements->size());
  // A list of another length would be read as the contents of a different tensor.
  if (!type.elementCount().isKnownEqual(Dim::fixed(count)))
    return;
  if (count == 0 ||
      llvm::any_of(*elements, [](const Dim& element) { return !element.isUnknown(); }))
    value.setKnownIntegers(std::move(elements));
}

llvm::Error ShapeContext::error(const std::string& message) const {
  llvm::StringRef name = current.name();
  if (name.empty() && resultCount() != 0)
    name = current.result(0).name();
  return invalid("{}", message).node(name, current.op().str());
}

llvm::Error inferNode(Node& node) { return inferWithSubgraphs(node, 0); }

llvm::Error inferShapes(Graph& graph) { return inferNodes(graph, 0); }

} // namespace kvopt::ir
