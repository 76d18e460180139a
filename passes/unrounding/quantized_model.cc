// Edits of copies of models.
#include "passes/unrounding/quantized_model.h"

#include "ir/ops/kvopt/cache_operator.h"
#include "ir/required_values.h"
#include "ir/shapes/shape_inference.h"
#include "ir/views.h"
#include "passes/unrounding/quantized_blocks.h"
#include "passes/unrounding/quantized_groups.h"
#include "passes/unrounding/removed_scales.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::unrounding {
using namespace ir;

namespace {

/// Name for the definition of an operator. No kernel has this name, so the operator runs through
/// its function.
std::string definitionName(OpName op) { return op.str() + "Definition"; }

/// Attention over contiguous rows of codes: an operator over caches, or ai.kvopt::QuantizedSdpa,
/// which does not append rows.
class QuantizedOp {
public:
  QuantizedOp() = default;
  explicit QuantizedOp(const CacheOperator& op) : appending(op) {}

  /// nullopt for an operator that only reads.
  const std::optional<CacheOperator>& cacheOperator() const { return appending; }
  OpName name() const { return appending ? appending->name() : OpName("ai.kvopt::QuantizedSdpa"); }
  /// The same operator over numbers.
  OpName plain() const {
    return appending ? appending->unquantized().name() : OpName("ai.kvopt::Sdpa");
  }
  unsigned mask() const { return appending ? appending->mask() : 6; }
  /// Number of operands for pasts and their scales, which is also the number of results for
  /// presents and theirs.
  unsigned parts() const { return appending ? appending->sides() * appending->parts() : 0; }

  /// Operands of the operator over numbers, in its order.
  llvm::SmallVector<Value*, 8> plainOperands(const Node& node) const {
    llvm::SmallVector<unsigned, 8> places;
    if (appending) {
      places.push_back(CacheOperator::query);
      for (unsigned side = 0; side < appending->sides(); ++side)
        places.push_back(CacheOperator::fresh(side));
      for (unsigned side = 0; side < appending->sides(); ++side)
        places.push_back(appending->past(side));
      places.append({appending->pastLength(), appending->mask(), appending->sinks()});
    } else {
      places = {0, 1, 3, 6, 7, 5};
    }
    llvm::SmallVector<Value*, 8> operands;
    for (unsigned place : places)
      operands.push_back(place < node.operands().size() ? node.operand(place) : nullptr);
    return operands;
  }

private:
  std::optional<CacheOperator> appending;
};

/// Rounds rows that other operators write to caches.
constexpr const char* quantizeRows = "ai.kvopt::QuantizeRows";

std::optional<QuantizedOp> quantizedOpOf(const Node& node) {
  const std::optional<CacheOperator> op = CacheOperator::of(node);
  if (op && op->hasCodes() && !op->isInBlocks())
    return QuantizedOp(*op);
  // A node without a definition was not checked to have the operands that it needs.
  if (node.definition() && node.is(QuantizedOp().name()))
    return QuantizedOp();
  return std::nullopt;
}

bool roundsRows(const Node& node) { return node.definition() && node.is(quantizeRows); }

void copyAttributes(const Node& from, Node& to) {
  for (const NamedAttribute& attribute : from.attributes())
    to.setAttribute(attribute.name, attribute.value.clone());
}

/// Sets the type of a cache to the numbers that codes represent, `columns` per row.
void setNumbers(Value& value, ElementType element, const Dim& columns, int64_t sequenceAxis) {
  const TensorType type = value.type();
  if (!type.hasRank())
    return value.setType(TensorType(element));
  Shape shape(type.shape().begin(), type.shape().end());
  if (const auto layout = CacheLayout::bySequenceAxis(type.rank(), sequenceAxis))
    shape[layout->columnAxis()] = columns;
  value.setType(TensorType(element, std::move(shape)));
}

/// Whether codes and scales of the same rows are written to the same positions.
bool placeAlike(const Node& codes, const Node* scales) {
  if (!scales || scales->op() != codes.op() || scales->operands().size() != codes.operands().size())
    return false;
  const Node* rounding = nullptr;
  for (unsigned i = 1; i < codes.operands().size(); ++i) {
    const Value* ofCodes = codes.operand(i);
    const Value* ofScales = scales->operand(i);
    const Node* before = ofCodes ? ofCodes->producer() : nullptr;
    if (before && roundsRows(*before)) {
      rounding = before;
      if (ofCodes != &before->result(0) || ofScales != &before->result(1))
        return false;
      continue;
    }
    // Positions for codes are repeated for each column; scales take those of the first column.
    const Node* first = ofScales ? ofScales->producer() : nullptr;
    if (ofCodes != ofScales && !(first && first->is("Slice") && first->operand(0) == ofCodes))
      return false;
  }
  return rounding != nullptr;
}

/// Error in the codes that attention reads, starting at operand `codes`, whose scales follow them:
/// a sentence, or empty if they are a cache and its scales.
std::string miswiredScales(const Node& node, unsigned codes, const Manifest& manifest) {
  const llvm::StringRef rows = node.operand(codes)->name();
  const llvm::StringRef scales = node.operand(codes + 1)->name();
  const auto cache = llvm::find_if(manifest.caches,
                                   [&](const ManifestCache& each) { return each.present == rows; });
  const bool isTheirs = cache != manifest.caches.end() &&
                        llvm::any_of(manifest.caches, [&](const ManifestCache& each) {
                          return each.present == scales && each.layer == cache->layer &&
                                 each.role == scaleRole(cache->role);
                        });
  if (!isTheirs)
    return formatted("attention reads the codes '{}' with the scales '{}'", rows, scales);
  // If operators other than attention write rows, scales are written to the positions of their
  // codes.
  const Node* codeWriter = node.operand(codes)->producer();
  const Node* scaleWriter = node.operand(codes + 1)->producer();
  const bool arePlaced = codeWriter && !quantizedOpOf(*codeWriter);
  if (arePlaced && !placeAlike(*codeWriter, scaleWriter))
    return formatted("the scales '{}' are not placed as the codes '{}' are", scales, rows);
  return "";
}

} // namespace

CodeForms codeForms(const Model& model, const Manifest& manifest) {
  return {hasQuantizedCaches(manifest), groupCodeBits(model) != 0};
}

bool hasQuantizedCaches(const Manifest& manifest) {
  return llvm::any_of(manifest.caches,
                      [](const ManifestCache& cache) { return isScale(cache.role); });
}

namespace {

/// Whether the value, or a view of it, is the output.
bool isGivenOutAs(const Value& value, llvm::StringRef output) {
  return llvm::any_of(viewsOf(value), [&](const Value* view) {
    return view->isGraphOutput() && view->name() == output;
  });
}

/// Errors in the caches to which attention appends, one sentence each.
void findMiswired(const Node& node, const QuantizedOp& op, const Manifest& manifest,
                  std::vector<std::string>& found) {
  constexpr unsigned firstPresent = 1;
  const ManifestCache* codes = nullptr;
  for (unsigned i = 0; i < op.parts(); ++i) {
    const Value* operand = node.operand(op.cacheOperator()->past(0) + i);
    const llvm::StringRef past = operand ? bufferOf(*operand).name() : "";
    const Value& written = node.result(firstPresent + i);
    const auto cache = llvm::find_if(manifest.caches,
                                     [&](const ManifestCache& each) { return each.past == past; });
    if (cache == manifest.caches.end()) {
      found.push_back(
          formatted("attention writes '{}' into '{}', which is not a cache", written.name(), past));
      continue;
    }
    if (!isGivenOutAs(written, cache->present))
      found.push_back(formatted("cache '{}' continues as '{}', but its attention writes '{}'",
                                cache->past, cache->present, written.name()));
    // The scales of each cache follow it.
    if (i % 2 == 0)
      codes = &*cache;
    else if (codes && (cache->layer != codes->layer || cache->role != scaleRole(codes->role)))
      found.push_back(formatted("attention writes the codes '{}' with the scales '{}'", codes->past,
                                cache->past));
  }
}

} // namespace

std::vector<std::string> miswiredCaches(const Model& model, const Manifest& manifest) {
  std::vector<std::string> found;
  for (const Node& node : model.graph().nodes()) {
    if (isBlockAttention(node))
      if (std::string wrong = miswiredBlocks(node, manifest); !wrong.empty())
        found.push_back(std::move(wrong));
    const std::optional<QuantizedOp> op = quantizedOpOf(node);
    if (op && !op->cacheOperator())
      for (unsigned codes : {1u, 3u})
        if (std::string wrong = miswiredScales(node, codes, manifest); !wrong.empty())
          found.push_back(std::move(wrong));
    if (op)
      findMiswired(node, *op, manifest, found);
  }
  return found;
}

namespace {

/// Attention that only reads codes now reads the caches of numbers that other nodes write.
void unquantizeReaders(Graph& graph) {
  for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
    const std::optional<QuantizedOp> op = quantizedOpOf(node);
    if (!op || op->cacheOperator())
      continue;
    Node& plain = graph.createFresh(op->plain(), op->plainOperands(node), 1, &node, "attention");
    copyAttributes(node, plain);
    plain.removeAttribute("v_width");
    plain.result().setType(node.result().type());
    node.result().replaceAllUsesWith(plain.result());
    graph.erase(node);
  }
}

/// The cache to which the use writes rows; an error if it does something else with them.
llvm::Expected<Value*> placedInto(const Use& use, const Graph& graph) {
  Node& writer = use.user();
  Value* past = writer.operand(0);
  if (use.operandIndex() == 0 || !past || writer.results().size() != 1 || &writer.graph() != &graph)
    return invalid("rows of codes are read by {}, which places them in no cache",
                   writer.describe());
  return past;
}

/// Makes operators of the model write rows as numbers, and drops their scales.
llvm::Error unquantizePlacedRows(Graph& graph, llvm::StringMap<ElementType>& elements,
                                 RemovedScales& removed) {
  llvm::SmallVector<Node*, 16> roundings;
  for (Node& node : graph.nodes())
    if (roundsRows(node))
      roundings.push_back(&node);
  for (Node* rounding : roundings) {
    Node& node = *rounding;
    auto rows = requiredOperand(node, 0);
    if (!rows)
      return rows.takeError();
    const ElementType element = (*rows)->type().elementType();
    for (Use& use : node.result(0).uses()) {
      auto past = placedInto(use, graph);
      if (!past)
        return past.takeError();
      elements[(*past)->name()] = element;
      for (Value* cache : {*past, &use.user().result()}) {
        TensorType type = cache->type();
        type.setElementType(element);
        cache->setType(std::move(type));
      }
    }
    // A writer may read scales more than once.
    llvm::SmallSetVector<Node*, 2> placed;
    for (Use& use : node.result(1).uses()) {
      auto past = placedInto(use, graph);
      if (!past)
        return past.takeError();
      removed.note(*past);
      placed.insert(&use.user());
    }
    for (Node* writer : placed) {
      removeOutputOf(writer->result());
      if (llvm::Error error = checkUnread(writer->result()))
        return error;
      graph.erase(*writer);
    }
    node.result(0).replaceAllUsesWith(**rows);
  }
  if (!roundings.empty())
    graph.eraseDeadNodes();
  return llvm::Error::success();
}

/// Makes attention that appends to caches of codes append to caches of numbers.
llvm::Error unquantizeWriter(Node& node, const QuantizedOp& op,
                             llvm::StringMap<ElementType>& elements, RemovedScales& removed) {
  Graph& graph = node.graph();
  auto fresh = requiredOperand(node, 1);
  if (!fresh)
    return fresh.takeError();
  const ElementType element = (*fresh)->type().elementType();
  if (element == ElementType::Undefined)
    return invalid("{}: the type of the new rows is not known", node.describe());
  const CacheOperator& cache = *op.cacheOperator();
  const CacheOperator numbers = cache.unquantized();
  Node& plain = graph.createFresh(op.plain(), op.plainOperands(node), numbers.resultCount(), &node,
                                  "attention");
  copyAttributes(node, plain);
  plain.result().setType(node.result().type());
  node.result().replaceAllUsesWith(plain.result());
  for (unsigned side = 0; side < cache.sides(); ++side) {
    auto rows = requiredOperand(node, CacheOperator::fresh(side));
    auto past = requiredOperand(node, cache.past(side));
    if (!rows || !past)
      return llvm::joinErrors(rows.takeError(), past.takeError());
    const Dim columns = (*rows)->type().dim(3);
    const int64_t axis = node.intAttr(CacheOperator::axisName(side), 2);
    Value& present = plain.result(numbers.present(side));
    present.setType(node.result(cache.present(side)).type());
    node.result(cache.present(side)).replaceAllUsesWith(present);
    Value& presentScale = node.result(cache.presentScale(side));
    removeOutputOf(presentScale);
    if (llvm::Error error = checkUnread(presentScale))
      return error;
    setNumbers(**past, element, columns, axis);
    setNumbers(present, element, columns, axis);
    elements[(*past)->name()] = element;
    removed.note(node.operand(cache.pastScale(side)));
  }
  graph.erase(node);
  return llvm::Error::success();
}

} // namespace

llvm::Error unquantize(Model& model, Manifest& manifest, CodeForms forms) {
  if (forms.groupCodes)
    if (llvm::Error error = unquantizeGroups(model, manifest))
      return error;
  if (!forms.rowScales)
    return inferShapes(model.graph());
  Graph& graph = model.graph();
  llvm::StringMap<ElementType> elements; // caches that held codes before
  RemovedScales removed;
  unquantizeReaders(graph);
  llvm::SmallVector<Node*, 32> overBlocks;
  for (Node& node : graph.nodes())
    if (isBlockAttention(node))
      overBlocks.push_back(&node);
  for (Node* node : overBlocks)
    if (llvm::Error error = unquantizeBlocks(*node, manifest, removed))
      return error;
  if (!overBlocks.empty())
    graph.eraseDeadNodes();
  if (llvm::Error error = unquantizePlacedRows(graph, elements, removed))
    return error;
  for (Node& node : llvm::make_early_inc_range(graph.nodes()))
    if (const std::optional<QuantizedOp> op = quantizedOpOf(node))
      if (llvm::Error error = unquantizeWriter(node, *op, elements, removed))
        return error;
  for (const ManifestCache& cache : manifest.caches)
    if (isScale(cache.role)) {
      removed.note(graph.findValue(cache.past));
      for (const std::string& block : cache.blocks())
        removed.note(graph.findValue(block));
    }
  if (llvm::Error error = removed.remove())
    return error;
  llvm::erase_if(manifest.caches, [](const ManifestCache& cache) { return isScale(cache.role); });
  for (ManifestCache& cache : manifest.caches)
    if (auto found = elements.find(cache.past); found != elements.end()) {
      cache.dtype = found->second;
      if (const auto layout = cache.layout(); layout && cache.codeColumns != 0)
        cache.shape[layout->columnAxis()] = std::exchange(cache.codeColumns, 0);
    }
  return inferShapes(graph);
}

namespace {

/// Makes the value an output of the model under its name.
llvm::Error giveOut(Node& node, unsigned result) {
  auto value = requiredResult(node, result);
  if (!value)
    return value.takeError();
  if (!(*value)->isGraphOutput())
    node.graph().addOutput(**value);
  return llvm::Error::success();
}

/// Adds the function body of a node that rounds, for comparison.
llvm::Error defineRounding(Graph& graph, Node& node, std::vector<DefinedSite>& sites) {
  Node& definition =
      graph.createFresh(OpName(definitionName(node.op())), {node.operand(0)}, 2, &node, "defined");
  for (unsigned i = 0; i < 2; ++i) {
    definition.result(i).setType(node.result(i).type());
    for (Node* each : {&node, &definition})
      if (llvm::Error error = giveOut(*each, i))
        return error;
    DefinedSite site;
    site.output = node.result(i).name().str();
    site.definedOutput = definition.result(i).name().str();
    sites.push_back(std::move(site));
  }
  return llvm::Error::success();
}

/// Operands for a call of the attention's function body, in which operands that it reads cannot be
/// absent.
llvm::Expected<llvm::SmallVector<Value*, 16>>
definitionOperands(const Node& node, const Function& body, unsigned mask) {
  llvm::SmallVector<Value*, 16> operands;
  for (unsigned i = 0; i < body.body.inputs().size(); ++i) {
    Value* operand = node.operand(i);
    if (!operand && i == mask) {
      const bool isBoolean = node.intAttr("mask_boolean", 0) != 0;
      operand = &node.graph().addConstant(
          "no_mask", floatScalar(ElementType::Float, isBoolean ? 1.0 : 0.0, 4));
    }
    if (!operand && body.body.inputs()[i]->hasUses())
      return requiredOperand(node, i).takeError();
    operands.push_back(operand);
  }
  return operands;
}

/// Adds the function body of attention over codes, for comparison.
llvm::Expected<DefinedSite> defineAttention(const Model& model, Node& node) {
  Graph& graph = node.graph();
  const std::optional<QuantizedOp> op = quantizedOpOf(node);
  const unsigned parts = op ? op->parts() : 0;
  const Function* body = model.findFunction(node);
  if (!body)
    return invalid("the model has no function body for {}", node.op().str());
  auto operands =
      definitionOperands(node, *body, op ? op->mask() : CacheOperator::of(node)->mask());
  if (!operands)
    return operands.takeError();
  Node& definition =
      graph.createFresh(OpName(definitionName(node.op())), *operands, 1 + parts, &node, "defined");
  copyAttributes(node, definition);
  DefinedSite site;
  for (Node* each : {&node, &definition})
    if (llvm::Error error = giveOut(*each, 0))
      return error;
  site.output = node.result().name().str();
  site.definedOutput = definition.result().name().str();
  for (unsigned i = 1; i <= parts; ++i) {
    auto present = requiredResult(node, i);
    if (!present)
      return present.takeError();
    definition.result(i).setType((*present)->type());
    graph.addOutput(definition.result(i));
    site.presents.push_back((*present)->name().str());
    site.definedPresents.push_back(definition.result(i).name().str());
  }
  definition.result().setType(node.result().type());
  constexpr unsigned readValueScale = 4;
  if (!op) {
    site.valueScale = newValueScales(node);
  } else if (!op->cacheOperator()) {
    auto scale = requiredOperand(node, readValueScale);
    if (!scale)
      return scale.takeError();
    site.valueScale = (*scale)->name().str();
  }
  return site;
}

/// Makes the results of a GroupQueryAttention and of its definition outputs of the model.
DefinedSite siteOf(Node& node, const DefinedGroup& defined) {
  Graph& graph = node.graph();
  DefinedSite site;
  for (unsigned i = 0; i < 3; ++i) {
    Value& made = node.result(i);
    Value& expected = defined.definition->result(i);
    expected.setType(made.type());
    graph.addOutput(expected);
    if (i == 0) {
      if (!made.isGraphOutput())
        graph.addOutput(made);
      site.output = made.name().str();
      site.definedOutput = expected.name().str();
      continue;
    }
    site.presents.push_back(made.name().str());
    site.definedPresents.push_back(expected.name().str());
  }
  site.largestNumber = defined.largestValue;
  return site;
}

} // namespace

llvm::Expected<std::vector<DefinedSite>> addDefinitions(Model& model, CodeForms forms) {
  std::vector<DefinedSite> sites;
  Graph& graph = model.graph();
  // A definition is written for the types of its node.
  if (forms.groupCodes)
    if (llvm::Error error = inferShapes(graph))
      return error;
  for (Node& node : graph.nodes()) {
    if (forms.rowScales && roundsRows(node)) {
      if (!model.findFunction(quantizeRows))
        return invalid("the model has no function body for {}", quantizeRows);
      if (llvm::Error error = defineRounding(graph, node, sites))
        return error;
      continue;
    }
    if (forms.groupCodes && codeBits(node) != 0) {
      auto defined = defineGroup(model, node);
      if (!defined)
        return defined.takeError();
      sites.push_back(siteOf(node, *defined));
      continue;
    }
    if (!forms.rowScales || (!quantizedOpOf(node) && !isBlockAttention(node)))
      continue;
    auto site = defineAttention(model, node);
    if (!site)
      return site.takeError();
    sites.push_back(std::move(*site));
  }
  llvm::SmallVector<OpName, 8> defined{quantizeRows, QuantizedOp().name()};
  for (const CacheOperator& op : CacheOperator::all())
    if (op.hasCodes())
      defined.push_back(op.name());
  for (OpName op : defined)
    if (Function* body = model.findFunction(op))
      body->name = OpName(definitionName(op)).type().str();
  return sites;
}

} // namespace kvopt::unrounding
