// Determines the form of a body, and writes the bodies of that form for comparison.
#include "ir/ops/kvopt/own_body.h"

#include "ir/function_digest.h"
#include "ir/ops/kvopt/attention_tile_body.h"
#include "ir/ops/kvopt/cache_function_body.h"
#include "ir/ops/kvopt/earlier_bodies.h"
#include "ir/ops/kvopt/quantized_function_body.h"
#include "ir/text/reader.h"
#include "ir/verify/model_gate.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

/// Oldest opset for which bodies are written.
constexpr int64_t oldestOpset = 13;

/// Everything that determines a body.
struct FullForm {
  BodyForm body;
  CacheLayout key = CacheLayout::ofAttention();
  CacheLayout value = CacheLayout::ofAttention();
  size_t blocks = 0;
};

constexpr unsigned none = ~0u;

/// An operator, and the operands that determine the form of its body. An index is `none` if the
/// body does not depend on it.
struct OwnBody {
  llvm::StringRef op;
  /// For an operator over caches, instead of `text`.
  std::optional<CacheOperator> cache;
  std::string (*text)(const FullForm&) = nullptr;
  /// Operand with the element type of the form.
  unsigned element = 0;
  unsigned sinks = none;
  /// Operands with the layouts that key_axis and value_axis give: the first blocks of each, if
  /// caches are in blocks.
  unsigned pastKey = none;
  unsigned pastValue = none;
  /// Operand whose element type identifies the codes of rows.
  unsigned codes = none;
  /// Number of operands before the blocks, and number of lists of blocks.
  unsigned firstBlock = none;
  unsigned blockLists = 0;
  /// Whether caches of int8 have a separate body.
  bool hasInt8Form = false;

  std::string textOf(const FullForm& form) const {
    if (!cache)
      return text(form);
    CacheOperator written = *cache;
    if (codes != none)
      written.code = form.body.code;
    return cacheFunctionText(written, form.body, {form.key, form.value, form.blocks});
  }
};

constexpr OwnBody otherBodies[] = {
    {.op = "Sdpa", .text = [](const FullForm& f) { return sdpaFunctionText(f.body); }, .sinks = 4},
    {.op = "QuantizedSdpa",
     .text = [](const FullForm& f) { return quantizedSdpaFunctionText(f.body); },
     .sinks = 7,
     .codes = 1},
    {.op = "QuantizeRows",
     .text = [](const FullForm& f) { return quantizeRowsFunctionText(f.body.opset); },
     .element = none},
    {.op = "AppendRows",
     .text = [](const FullForm& f) { return appendRowsFunctionText(f.body.opset, f.body.element); },
     .element = 1},
    {.op = "AttentionTile",
     .text =
         [](const FullForm& f) { return attentionTileFunctionText(f.body.opset, f.body.element); },
     .element = 4},
};

std::optional<OwnBody> ownBodyOf(llvm::StringRef op) {
  for (const OwnBody& own : otherBodies)
    if (op == own.op)
      return own;
  const std::optional<CacheOperator> cache = CacheOperator::named(OpName(kvoptDomain, op));
  if (!cache)
    return std::nullopt;
  OwnBody own{.op = op, .cache = cache, .sinks = cache->sinks()};
  if (cache->isInBlocks()) {
    own.firstBlock = cache->firstBlock();
    own.blockLists = cache->blockLists();
    return own;
  }
  own.pastKey = cache->past(0);
  if (!cache->isLatent())
    own.pastValue = cache->past(1);
  if (cache->hasCodes())
    own.codes = cache->past(0);
  own.hasInt8Form = *cache == CacheOperator{};
  return own;
}

bool readsInput(const Function& function, unsigned index) {
  return index < function.body.inputs().size() && function.body.inputs()[index]->hasUses();
}

/// Layout of a cache that is an input, from the transposition that produces its rows.
CacheLayout layoutOf(const Function& function, unsigned input) {
  if (input >= function.body.inputs().size())
    return CacheLayout::ofAttention();
  // Rows of int8 are converted to numbers first.
  llvm::SmallVector<const Value*, 4> values{function.body.inputs()[input].get()};
  for (size_t i = 0; i < values.size(); ++i)
    for (const Use& use : values[i]->uses()) {
      if (use.user().is("Cast") && values.size() == 1)
        values.push_back(&use.user().result());
      const auto order = use.user().is("Transpose") ? use.user().intsAttr("perm") : std::nullopt;
      if (!order)
        continue;
      for (size_t axis = 0; axis < order->size(); ++axis)
        if (auto layout = CacheLayout::bySequenceAxis(order->size(), static_cast<int64_t>(axis)))
          if (llvm::ArrayRef<int64_t>(layout->rowOrder()) == *order)
            return *layout;
    }
  return CacheLayout::ofAttention();
}

/// Element types of the body's Casts, which include that of the form.
llvm::SmallVector<ElementType, 4> elementsIn(const Function& function) {
  llvm::SmallVector<ElementType, 4> elements;
  for (const Node& node : function.body.nodes()) {
    if (!node.is("Cast"))
      continue;
    const int64_t to = node.intAttr("to", 0);
    for (ElementType element :
         {ElementType::Float, ElementType::Float16, ElementType::BFloat16, ElementType::Double,
          ElementType::Int8, ElementType::UInt8, ElementType::Int64, ElementType::Int32})
      if (static_cast<int64_t>(element) == to && !llvm::is_contained(elements, element))
        elements.push_back(element);
  }
  return elements;
}

/// Forms in which the function may be written. Their number is small and independent of the
/// function's size.
llvm::SmallVector<FullForm, 8> possibleForms(const Function& function, const OwnBody& own) {
  FullForm form;
  form.body.opset = function.body.opsetVersion();
  const auto inputs = static_cast<unsigned>(function.body.inputs().size());
  unsigned pastKey = own.pastKey, pastValue = own.pastValue;
  if (own.blockLists != 0) {
    if (inputs < own.firstBlock || (inputs - own.firstBlock) % own.blockLists != 0)
      return {};
    form.blocks = (inputs - own.firstBlock) / own.blockLists;
    pastKey = own.firstBlock;
    pastValue = own.firstBlock + static_cast<unsigned>(form.blocks);
  }
  if (pastKey != none && pastKey < inputs)
    form.key = layoutOf(function, pastKey);
  if (pastValue != none && pastValue < inputs)
    form.value = layoutOf(function, pastValue);
  form.body.sinks = own.sinks != none && readsInput(function, own.sinks);
  constexpr unsigned pastLengthOfSdpa = 5;
  form.body.lengths = inputs > pastLengthOfSdpa;
  llvm::SmallVector<FullForm, 8> forms;
  for (ElementType element : elementsIn(function)) {
    form.body.element = element;
    form.body.int8Caches = false;
    if (own.codes == none)
      forms.push_back(form);
    else
      for (const RowCode* code : rowCodes()) {
        form.body.code = code;
        forms.push_back(form);
      }
    form.body.int8Caches = true;
    if (own.hasInt8Form)
      forms.push_back(form);
  }
  return forms;
}

/// Whether the function has this text.
bool isText(const std::string& text, const FunctionDigest& digest, const OpRegistry& registry) {
  Model scratch(registry);
  llvm::Expected<Function*> written = readFunctionText(text, scratch);
  if (!written) {
    llvm::consumeError(written.takeError());
    return false;
  }
  return functionDigest(**written) == digest;
}

/// Whether this version, or an earlier one, writes the function in that form.
bool isWrittenIn(const FullForm& form, const OwnBody& own, const FunctionDigest& digest,
                 const OpRegistry& registry) {
  const std::string text = own.textOf(form);
  return isText(text, digest, registry) ||
         llvm::any_of(earlierBodies(own.op, form.body, text), [&](const std::string& earlier) {
           return isText(earlier, digest, registry);
         });
}

std::optional<FullForm> formOf(const Function& function, const OwnBody& own) {
  const std::optional<FunctionDigest> digest = functionDigest(function);
  const int64_t opset = function.body.opsetVersion();
  if (!digest || opset < oldestOpset || opset > newestOnnxOpset)
    return std::nullopt;
  for (const FullForm& form : possibleForms(function, own))
    if (isWrittenIn(form, own, *digest, function.body.context().ops()))
      return form;
  return std::nullopt;
}

ElementType elementOf(const Value* value) {
  return value ? value->type().elementType() : ElementType::Undefined;
}

/// Reason that an operand of the node does not fit the form; empty if all operands fit.
std::string contradiction(const Node& call, const Function& function, const OwnBody& own,
                          const FullForm& form) {
  for (const Use& operand : call.operands())
    if (operand.value() && !readsInput(function, operand.operandIndex()))
      return formatted("the function does not read operand {}", operand.operandIndex());
  if (own.blockLists != 0 && call.operands().size() != function.body.inputs().size())
    return formatted("the function takes {} operands, not {}", function.body.inputs().size(),
                     call.operands().size());
  if (own.element != none)
    for (ElementType element : {elementOf(call.operand(own.element)), elementOf(&call.result())})
      if (element != ElementType::Undefined && element != form.body.element)
        return formatted("the function gives {}, not {}", dtypeName(form.body.element),
                         dtypeName(element));
  if (own.codes != none)
    if (const ElementType element = elementOf(call.operand(own.codes));
        element != ElementType::Undefined && element != form.body.code->element)
      return formatted("the function is not written for codes of {}", dtypeName(element));
  if (own.hasInt8Form)
    if (const ElementType element = elementOf(call.operand(own.pastKey));
        element != ElementType::Undefined && (element == ElementType::Int8) != form.body.int8Caches)
      return formatted("the function is not written for caches of {}", dtypeName(element));
  const unsigned pastKey = own.blockLists != 0 && form.blocks != 0 ? own.firstBlock : own.pastKey;
  const unsigned pastValue = own.blockLists > 1 && form.blocks != 0
                                 ? own.firstBlock + static_cast<unsigned>(form.blocks)
                                 : own.pastValue;
  for (const auto& [operand, axis, layout] : {std::tuple(pastKey, "key_axis", &form.key),
                                              std::tuple(pastValue, "value_axis", &form.value)}) {
    if (operand == none)
      continue;
    const Value* past = call.operand(operand);
    const bool hasRank = past && past->type().hasRank();
    if (call.intAttr(axis, 2) != static_cast<int64_t>(layout->sequenceAxis()) ||
        (hasRank && past->type().rank() != layout->rank()))
      return formatted("the function is written for caches laid out as {}", layout->text());
  }
  return "";
}

} // namespace

llvm::Error checkOwnBody(const Function& function, llvm::ArrayRef<const Node*> calls) {
  constexpr const char* hint = "rewrite the exported model again: engines run the function, and "
                               "kvopt runs the operator";
  const std::optional<OwnBody> own = ownBodyOf(function.name);
  assert(own && "the operator has this rule");
  const std::optional<FullForm> form = formOf(function, *own);
  if (!form)
    return invalid(
               "function '{}' of domain '{}' is not the one that kvopt writes for that operator",
               function.name, function.domain)
        .hint(hint);
  for (const Node* call : calls)
    if (std::string why = contradiction(*call, function, *own, *form); !why.empty())
      return invalid("function '{}' of domain '{}' does not compute what the operator does: {}",
                     function.name, function.domain, why)
          .node(call->name().empty() ? call->result().name() : call->name(), call->op().str())
          .hint(hint);
  return llvm::Error::success();
}

} // namespace kvopt::ir
