// Edits of copies of models.
#include "runtime/equivalence/quantized_model.h"

#include "ir/required_values.h"
#include "ir/shapes/shape_inference.h"
#include "ir/views.h"
#include "runtime/equivalence/quantized_blocks.h"
#include "runtime/equivalence/quantized_groups.h"
#include "runtime/equivalence/removed_scales.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

#include <array>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// An operator over quantized caches: how its operands and results relate to those of the operator
/// over rows as they are.
struct QuantizedOp {
  const char* name;
  const char* plain;
  /// A name that no kernel has: it runs through its function.
  const char* definition;
  unsigned cacheCount;
  /// Of each cache that it appends to, the operands that are its new rows, the past, and the past's
  /// scales.
  std::array<std::array<unsigned, 3>, 2> caches;
  unsigned operandCount;
  unsigned mask;
  /// The operands of the operator over rows as they are, in its order.
  std::array<unsigned, 8> plainOperands;

  unsigned firstCache() const { return caches.front()[1]; }
  /// Pasts and their scales: as many operands as presents and theirs.
  unsigned parts() const { return 2 * cacheCount; }
};

constexpr QuantizedOp quantizedOps[] = {
    {"ai.kvopt::InPlaceQuantizedKvSdpa",
     "ai.kvopt::InPlaceKvSdpa",
     "ai.kvopt::InPlaceQuantizedKvSdpaDefinition",
     2,
     {{{1, 3, 4}, {2, 5, 6}}},
     8,
     8,
     {0, 1, 2, 3, 5, 7, 8, 9}},
    {"ai.kvopt::RingQuantizedKvSdpa",
     "ai.kvopt::RingKvSdpa",
     "ai.kvopt::RingQuantizedKvSdpaDefinition",
     2,
     {{{1, 3, 4}, {2, 5, 6}}},
     8,
     8,
     {0, 1, 2, 3, 5, 7, 8, 9}},
    {"ai.kvopt::InPlaceQuantizedLatentKvSdpa",
     "ai.kvopt::InPlaceLatentKvSdpa",
     "ai.kvopt::InPlaceQuantizedLatentKvSdpaDefinition",
     1,
     {{{1, 2, 3}}},
     6,
     5,
     {0, 1, 2, 4, 5, 6}},
    {"ai.kvopt::QuantizedSdpa",
     "ai.kvopt::Sdpa",
     "ai.kvopt::QuantizedSdpaDefinition",
     0,
     {},
     6,
     6,
     {0, 1, 3, 6, 7, 5}},
};

constexpr const char* blockAttention = "ai.kvopt::BlockQuantizedKvSdpa";
constexpr const char* blockAttentionDefinition = "ai.kvopt::BlockQuantizedKvSdpaDefinition";
constexpr unsigned blockAttentionMask = 3;

/// Rounds rows that other operators place in caches.
constexpr const char* quantizeRows = "ai.kvopt::QuantizeRows";
constexpr const char* quantizeRowsDefinition = "ai.kvopt::QuantizeRowsDefinition";

/// A node without a definition has not been checked to have the operands that it needs.
const QuantizedOp* quantizedOpOf(const Node& node) {
  if (!node.definition())
    return nullptr;
  for (const QuantizedOp& op : quantizedOps)
    if (node.is(op.name))
      return &op;
  return nullptr;
}

bool roundsRows(const Node& node) { return node.definition() && node.is(quantizeRows); }

llvm::SmallVector<Value*, 8> plainOperandsOf(const Node& node, const QuantizedOp& op) {
  llvm::SmallVector<Value*, 8> operands;
  for (unsigned operand : llvm::ArrayRef<unsigned>(op.plainOperands).take_front(op.operandCount))
    operands.push_back(operand < node.operands().size() ? node.operand(operand) : nullptr);
  return operands;
}

void copyAttributes(const Node& from, Node& to) {
  for (const NamedAttribute& attribute : from.attributes())
    to.setAttribute(attribute.name, attribute.value.clone());
}

/// The type of a cache of the numbers that codes stand for, `columns` in a row.
void setNumbers(Value& value, ElementType element, const Dim& columns, int64_t sequenceAxis) {
  const TensorType type = value.type();
  if (!type.hasRank())
    return value.setType(TensorType(element));
  Shape shape(type.shape().begin(), type.shape().end());
  if (const auto layout = CacheLayout::bySequenceAxis(type.rank(), sequenceAxis))
    shape[layout->columnAxis()] = columns;
  value.setType(TensorType(element, std::move(shape)));
}

/// Whether codes and scales of the same rows are put to the same places.
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
    // Of places that are repeated for each column, scales take those of the first.
    const Node* first = ofScales ? ofScales->producer() : nullptr;
    if (ofCodes != ofScales && !(first && first->is("Slice") && first->operand(0) == ofCodes))
      return false;
  }
  return rounding != nullptr;
}

/// What is wrong with the codes that attention reads from operand `codes` on, whose scales are
/// behind them: a sentence, or empty where they are a cache and its scales.
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
    return fmt::format("attention reads the codes '{}' with the scales '{}'", rows, scales);
  // Where other operators than attention place rows, scales go where their codes do.
  const Node* codeWriter = node.operand(codes)->producer();
  const Node* scaleWriter = node.operand(codes + 1)->producer();
  const bool arePlaced = codeWriter && !quantizedOpOf(*codeWriter);
  if (arePlaced && !placeAlike(*codeWriter, scaleWriter))
    return fmt::format("the scales '{}' are not placed as the codes '{}' are", scales, rows);
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

/// What is wrong with the caches that attention appends to: a sentence each.
void findMiswired(const Node& node, const QuantizedOp& op, const Manifest& manifest,
                  std::vector<std::string>& found) {
  constexpr unsigned firstPresent = 1;
  const ManifestCache* codes = nullptr;
  for (unsigned i = 0; i < op.parts(); ++i) {
    const Value* operand = node.operand(op.firstCache() + i);
    const llvm::StringRef past = operand ? bufferOf(*operand).name() : "";
    const Value& written = node.result(firstPresent + i);
    const auto cache = llvm::find_if(manifest.caches,
                                     [&](const ManifestCache& each) { return each.past == past; });
    if (cache == manifest.caches.end()) {
      found.push_back(
          fmt::format("attention writes '{}' into '{}', which is no cache", written.name(), past));
      continue;
    }
    if (!isGivenOutAs(written, cache->present))
      found.push_back(fmt::format("cache '{}' continues as '{}', but its attention writes '{}'",
                                  cache->past, cache->present, written.name()));
    // Each cache has its scales behind it.
    if (i % 2 == 0)
      codes = &*cache;
    else if (codes && (cache->layer != codes->layer || cache->role != scaleRole(codes->role)))
      found.push_back(fmt::format("attention writes the codes '{}' with the scales '{}'",
                                  codes->past, cache->past));
  }
}

} // namespace

std::vector<std::string> miswiredCaches(const Model& model, const Manifest& manifest) {
  std::vector<std::string> found;
  for (const Node& node : model.graph().nodes()) {
    if (isBlockAttention(node))
      if (std::string wrong = miswiredBlocks(node, manifest); !wrong.empty())
        found.push_back(std::move(wrong));
    const QuantizedOp* op = quantizedOpOf(node);
    if (op && op->cacheCount == 0)
      for (unsigned codes : {1u, 3u})
        if (std::string wrong = miswiredScales(node, codes, manifest); !wrong.empty())
          found.push_back(std::move(wrong));
    if (op)
      findMiswired(node, *op, manifest, found);
  }
  return found;
}

namespace {

/// Attention that only reads codes reads what those who append to them make of them.
void unquantizeReaders(Graph& graph) {
  for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
    const QuantizedOp* op = quantizedOpOf(node);
    if (!op || op->cacheCount != 0)
      continue;
    Node& plain = graph.createFresh(op->plain, plainOperandsOf(node, *op), 1, &node, "attention");
    copyAttributes(node, plain);
    plain.removeAttribute("v_width");
    plain.result().setType(node.result().type());
    node.result().replaceAllUsesWith(plain.result());
    graph.erase(node);
  }
}

/// The cache that the use writes rows into; an error where it does something else with them.
llvm::Expected<Value*> placedInto(const Use& use, const Graph& graph) {
  Node& writer = use.user();
  Value* past = writer.operand(0);
  if (use.operandIndex() == 0 || !past || writer.results().size() != 1 || &writer.graph() != &graph)
    return invalid("rows of codes are read by {}, which places them in no cache",
                   writer.describe());
  return past;
}

/// Rows that operators of the model place are placed as they are, and their scales nowhere.
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

/// Attention that appends to caches of codes appends to caches of numbers.
llvm::Error unquantizeWriter(Node& node, const QuantizedOp& op,
                             llvm::StringMap<ElementType>& elements, RemovedScales& removed) {
  Graph& graph = node.graph();
  auto fresh = requiredOperand(node, 1);
  if (!fresh)
    return fresh.takeError();
  const ElementType element = (*fresh)->type().elementType();
  if (element == ElementType::Undefined)
    return invalid("{}: the type of the new rows is not known", node.describe());
  const unsigned caches = op.cacheCount;
  Node& plain =
      graph.createFresh(op.plain, plainOperandsOf(node, op), 1 + caches, &node, "attention");
  copyAttributes(node, plain);
  plain.result().setType(node.result().type());
  node.result().replaceAllUsesWith(plain.result());
  for (unsigned i = 0; i < caches; ++i) {
    const auto& [newRows, pastCodes, pastScales] = op.caches[i];
    auto rows = requiredOperand(node, newRows);
    auto past = requiredOperand(node, pastCodes);
    if (!rows || !past)
      return llvm::joinErrors(rows.takeError(), past.takeError());
    const Dim columns = (*rows)->type().dim(3);
    const int64_t axis = node.intAttr(i == 0 ? "key_axis" : "value_axis", 2);
    Value& present = plain.result(1 + i);
    present.setType(node.result(1 + 2 * i).type());
    node.result(1 + 2 * i).replaceAllUsesWith(present);
    Value& presentScale = node.result(2 + 2 * i);
    removeOutputOf(presentScale);
    if (llvm::Error error = checkUnread(presentScale))
      return error;
    setNumbers(**past, element, columns, axis);
    setNumbers(present, element, columns, axis);
    elements[(*past)->name()] = element;
    removed.note(node.operand(pastScales));
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
  llvm::StringMap<ElementType> elements; // of caches that are codes no more
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
    if (const QuantizedOp* op = quantizedOpOf(node))
      if (llvm::Error error = unquantizeWriter(node, *op, elements, removed))
        return error;
  for (const ManifestCache& cache : manifest.caches)
    if (isScale(cache.role)) {
      removed.note(graph.findValue(cache.past));
      for (const std::string& block : cache.blocks)
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

/// Compares what a node rounds with its function body.
llvm::Error defineRounding(Graph& graph, Node& node, std::vector<DefinedSite>& sites) {
  Node& definition =
      graph.createFresh(quantizeRowsDefinition, {node.operand(0)}, 2, &node, "defined");
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

/// The operands for a call of the function that attention computes: a body has no way to leave out
/// an operand that it reads.
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

/// Compares attention over codes with its function body.
llvm::Expected<DefinedSite> defineAttention(const Model& model, Node& node, const QuantizedOp* op) {
  Graph& graph = node.graph();
  const char* name = op ? op->name : blockAttention;
  const unsigned parts = op ? op->parts() : 0;
  const Function* body = model.findFunction(name);
  if (!body)
    return invalid("the model has no function body for {}", name);
  auto operands = definitionOperands(node, *body, op ? op->mask : blockAttentionMask);
  if (!operands)
    return operands.takeError();
  Node& definition = graph.createFresh(op ? op->definition : blockAttentionDefinition, *operands,
                                       1 + parts, &node, "defined");
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
  } else if (op->cacheCount == 0) {
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
    const QuantizedOp* op = quantizedOpOf(node);
    if (!forms.rowScales || (!op && !isBlockAttention(node)))
      continue;
    auto site = defineAttention(model, node, op);
    if (!site)
      return site.takeError();
    sites.push_back(std::move(*site));
  }
  for (const QuantizedOp& op : quantizedOps)
    if (Function* body = model.findFunction(op.name))
      body->name = OpName(op.definition).type().str();
  if (Function* body = model.findFunction(blockAttention))
    body->name = OpName(blockAttentionDefinition).type().str();
  if (Function* body = model.findFunction(quantizeRows))
    body->name = OpName(quantizeRowsDefinition).type().str();
  return sites;
}

} // namespace kvopt::runtime
