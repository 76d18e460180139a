// Functions of rows, copied into separate graphs.
#include "passes/analysis/tokens/row_function.h"

#include "ir/attribute_list.h"
#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/tokens/token_functions.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr const char* rowsSymbol = "rows";
constexpr const char* batchSymbol = "batch";
/// Maximum number of nodes of a function. Rotations and normalizations have a few dozen; more nodes
/// after a cache are some other computation.
constexpr size_t mostFunctionNodes = 512;

/// Copies the nodes between rows and a result. Extents of the rows are read from the copy's input,
/// however the model computes them.
class RegionCopier {
public:
  RegionCopier(Value& rowsOfModel, unsigned rowAxis, RowFunction& function)
      : rows(rowsOfModel), axis(rowAxis), found(function), body(function.body->graph()) {
    Shape extents(rows.type().shape().begin(), rows.type().shape().end());
    for (Dim& extent : extents)
      if (!extent.value())
        extent = Dim::symbol(batchSymbol);
    extents[axis] = Dim::symbol(rowsSymbol);
    input = &body.addInput("rows", TensorType(rows.type().elementType(), std::move(extents)));
    note(rows, *input);
  }

  /// Null if the value depends on anything else; `obstacle` then holds the reason.
  Value* copyOf(Value& value) {
    if (Value* known = copies.lookup(&value))
      return known;
    if (TensorRef constant = value.constantRef(); constant && !value.producer())
      return note(value, body.addConstant(value.name(), std::move(constant)));
    if (Value* list = extentsOf(value))
      return copies[&value] = list;
    Node* node = value.producer();
    if (!node || !node->subgraphs().empty() || &node->graph() != &rows.graph() ||
        found.region.size() == mostFunctionNodes) {
      obstacle = formatted("'{}' is not computed from the rows alone", value.name());
      return nullptr;
    }
    found.region.insert(node);
    if (Value* entries = tableEntries(*node))
      return note(value, *entries);
    llvm::SmallVector<Value*, 4> operands;
    for (const Use& use : node->operands()) {
      Value* operand = use.value() ? copyOf(*use.value()) : nullptr;
      if (use.value() && !operand)
        return nullptr;
      operands.push_back(operand);
    }
    Node& copy =
        body.createFresh(node->op(), operands, static_cast<unsigned>(node->results().size()));
    copyAttributes(*node, copy);
    copy.setName(node->name().str());
    for (unsigned i = 0; i < node->results().size(); ++i)
      note(node->result(i), copy.result(i));
    return copies[&value];
  }

  std::string obstacle;

private:
  Value* note(Value& original, Value& copy) {
    found.origins[&copy] = &original;
    return copies[&original] = &copy;
  }

  /// int64 numbers that may include extents of the rows; null for other values.
  Value* extentsOf(const Value& value) {
    const TensorType& type = value.type();
    const auto known = value.knownIntegers();
    const auto isFixed = [](const Dim& entry) { return entry.value().has_value(); };
    if (!known || llvm::all_of(*known, isFixed) || type.elementType() != ElementType::Int64 ||
        !type.hasRank() || type.rank() > 1)
      return nullptr;
    const bool isList = type.rank() == 1;
    llvm::SmallVector<Value*, 4> entries;
    for (const Dim& entry : *known) {
      if (const auto fixed = entry.value()) {
        entries.push_back(&body.addConstant("extent", int64Tensor({*fixed})));
        continue;
      }
      const auto* same = llvm::find_if(
          rows.type().shape(), [&](const Dim& extent) { return extent.isKnownEqual(entry); });
      if (same == rows.type().shape().end())
        return nullptr;
      entries.push_back(&extent(static_cast<unsigned>(same - rows.type().shape().begin()), isList));
    }
    if (entries.size() == 1)
      return entries.front();
    Node& list = body.createFresh("Concat", entries, 1);
    list.setAttribute("axis", Attribute::ofInt(0));
    return &list.result();
  }

  /// An extent of the rows: a scalar, or a list of one entry.
  Value& extent(unsigned place, bool isList) {
    Value& index = body.addConstant("axis", isList ? int64Tensor({place}) : int64Scalar(place));
    if (!shape)
      shape = &body.createFresh("Shape", {input}, 1).result();
    Value& result = body.createFresh("Gather", {shape, &index}, 1).result();
    found.extents[&result] = place;
    return result;
  }

  /// Slice(table, 0, T) along an axis of a constant, for T rows: a Gather, which fails if the table
  /// has fewer entries than there are rows. Null for other nodes.
  Value* tableEntries(const Node& node) {
    const auto movement = node.is("Slice") ? movementOf(node.result()) : std::nullopt;
    const auto along = movement ? movement->axis() : std::nullopt;
    if (!along || !node.operand(0)->constant())
      return nullptr;
    const MovementRange& range = movement->ranges.front();
    if (range.start.known.value() != 0 || range.step.known.value() != 1 ||
        !range.end.known.isKnownEqual(rows.type().dim(axis)))
      return nullptr;
    Value* table = copyOf(*node.operand(0));
    if (!table)
      return nullptr;
    Value& start = body.addConstant("start", int64Scalar(0));
    Value& step = body.addConstant("step", int64Scalar(1));
    Value* limit = &extent(axis, /*isList=*/false);
    Value& indices = body.createFresh("Range", {&start, limit, &step}, 1).result();
    Node& entries = body.createFresh("Gather", {table, &indices}, 1);
    entries.setAttribute("axis", Attribute::ofInt(*along));
    return &entries.result();
  }

  Value& rows;
  unsigned axis;
  RowFunction& found;
  Graph& body;
  Value* input = nullptr;
  Value* shape = nullptr;
  llvm::DenseMap<const Value*, Value*> copies;
};

/// The axes of `read` in the order of those of `rows`; among axes of equal extent, the first. Empty
/// if the order is the same. nullopt if the extents differ.
std::optional<std::vector<int64_t>> orderLike(const TensorType& rows, const TensorType& read) {
  if (!read.hasRank() || read.rank() != rows.rank() || read.elementType() != rows.elementType())
    return std::nullopt;
  std::vector<int64_t> order;
  for (const Dim& extent : rows.shape()) {
    int64_t place = 0;
    while (place < read.rank() &&
           (llvm::is_contained(order, place) || !read.dim(place).isKnownEqual(extent)))
      ++place;
    if (place == read.rank())
      return std::nullopt;
    order.push_back(place);
  }
  return llvm::is_sorted(order) ? std::vector<int64_t>() : order;
}

} // namespace

std::variant<RowFunction, std::string> findRowFunction(Value& rows, unsigned axis, Value& result) {
  RowFunction function;
  function.body = std::make_unique<Model>(rows.graph().context().ops());
  function.body->opsets = rows.graph().opsets();
  RegionCopier copier(rows, axis, function);
  Value* output = copier.copyOf(result);
  if (!output)
    return copier.obstacle;
  Graph& body = function.body->graph();
  body.addOutput(*output);
  if (llvm::Error error = inferShapes(body))
    return takeDiagnostic(std::move(error)).message;
  const TensorType& type = body.inputs().front()->type();
  auto followed = findTokenFunctions(body, {}, rowsSymbol);
  const auto text = [](const TokenMixing& mixing) {
    return mixing.node ? formatted("{}: {}", mixing.node->describe(), mixing.why) : mixing.why;
  };
  if (const auto* mixing = std::get_if<TokenMixing>(&followed))
    return text(*mixing);
  if (llvm::is_contained(type.shape(), Dim::symbol(batchSymbol)))
    if (const auto mixing = findBatchMixing(body, {}, batchSymbol))
      return text(*mixing);
  const auto counts = [](const Dim& extent) { return extent == Dim::symbol(rowsSymbol); };
  if (!output->type().hasRank() || llvm::count_if(output->type().shape(), counts) != 1)
    return formatted("it computes {} from {}", output->type().str(), type.str());
  function.places = std::move(std::get<TokenFunctions>(followed).positions);
  if (!std::get<TokenFunctions>(followed).tables.empty())
    return "it cuts entries from a table of positions";
  return function;
}

std::optional<std::vector<int64_t>> orderLikeRows(RowFunction& function) {
  Graph& body = function.body->graph();
  Value* output = body.outputs().front();
  auto order = orderLike(body.inputs().front()->type(), output->type());
  if (!order || order->empty())
    return order;
  Node& transposed = body.createFresh("Transpose", {output}, 1);
  transposed.setAttribute("perm", Attribute::ofInts(*order));
  body.setOutput(0, transposed.result());
  if (llvm::Error error = inferShapes(body)) {
    llvm::consumeError(std::move(error));
    return std::nullopt;
  }
  return order;
}

} // namespace kvopt::analysis
