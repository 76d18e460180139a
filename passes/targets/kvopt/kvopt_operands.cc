// Operands, attributes and bodies of ai.kvopt's attention.
#include "passes/targets/kvopt/kvopt_operands.h"

#include "ir/function_digest.h"
#include "ir/text/reader.h"
#include "passes/pattern/handled.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/read_rows.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

std::optional<MatchFailure> KvoptOperands::obstacle(const Node& sdpa) {
  static constexpr llvm::StringLiteral attributes[] = {"scale", "causal", "window", "softcap",
                                                       "mask_boolean"};
  static constexpr llvm::StringLiteral operands[] = {"query", "key",   "value",
                                                     "mask",  "sinks", "past_length"};
  return unhandled(sdpa, {attributes, operands});
}

void KvoptOperands::see(const AttentionSite& site) {
  sinksSeen |= site.node->operand(4) != nullptr;
  const bool readsBuffer = site.owner && site.update == CacheUpdate::Grows;
  lengthsSeen |= !site.grows() && (site.node->operand(5) || readsBuffer || provesEarlierRows(site));
}

AttributeList KvoptOperands::attributes(const Node& sdpa, const Value& mask) {
  return attrs({{"scale", sdpa.floatAttr("scale", 1.0f)},
                {"causal", sdpa.intAttr("causal", 0)},
                {"window", sdpa.intAttr("window", 0)},
                {"softcap", sdpa.floatAttr("softcap", 0.0f)},
                {"mask_boolean", mask.type().elementType() == ElementType::Bool}});
}

Value& KvoptOperands::mask(const Node& sdpa) {
  if (Value* mask = sdpa.operand(3))
    return *mask;
  if (!neutralMask)
    neutralMask = &model.graph().addConstant(
        "no_mask", floatScalar(sdpa.operand(0)->type().elementType(), 0.0, 4));
  return *neutralMask;
}

Value* KvoptOperands::sinks(const Node& sdpa) {
  if (Value* given = sdpa.operand(4))
    return given;
  if (!sinksSeen)
    return nullptr;
  // -inf has no weight.
  std::vector<float> none(static_cast<size_t>(*sdpa.operand(0)->type().dim(1).value()),
                          -std::numeric_limits<float>::infinity());
  return &model.graph().addConstant("no_sinks", floatTensor(none));
}

BodyForm KvoptOperands::bodyForm(const Node& sdpa) const {
  return {model.graph().opsetVersion(), sdpa.operand(0)->type().elementType(), sinksSeen};
}

namespace {

/// The int8 rows from which the operand is cast; null for other operands.
Value* codesOf(const Node& sdpa, unsigned operand) {
  const Node* cast = sdpa.operand(operand)->producer();
  Value* rows = cast && cast->is("Cast") ? cast->operand(0) : nullptr;
  return rows && rows->type().elementType() == ElementType::Int8 ? rows : nullptr;
}

} // namespace

llvm::Error KvoptOperands::complete(Node& sdpa, Rewriter& rewriter, Value* pastLength) {
  // A Cast of codes would write all of them as floats in every step.
  Value* keyCodes = codesOf(sdpa, 1);
  Value* valueCodes = codesOf(sdpa, 2);
  if (keyCodes && valueCodes) {
    sdpa.setOperand(1, keyCodes);
    sdpa.setOperand(2, valueCodes);
  }
  Value& maskTerms = mask(sdpa);
  for (const PlainAttribute& attribute : attributes(sdpa, maskTerms))
    sdpa.setAttribute(attribute.name, attribute.attribute());
  llvm::SmallVector<Value*, 6> operands{sdpa.operand(0), sdpa.operand(1), sdpa.operand(2),
                                        &maskTerms};
  Value* logits = sinks(sdpa);
  if (logits || lengthsSeen)
    operands.push_back(logits);
  if (lengthsSeen)
    operands.push_back(pastLength ? pastLength : &lengths(sdpa, rewriter));
  sdpa.setOperands(operands);
  BodyForm form = bodyForm(sdpa);
  form.lengths = lengthsSeen;
  return addFunction("ai.kvopt::Sdpa", [&] { return sdpaFunctionText(form); });
}

/// If any attention outside caches has lengths, all bodies take lengths.
Value& KvoptOperands::lengths(Node& sdpa, Rewriter& rewriter) {
  if (Value* given = sdpa.operand(5))
    return *given;
  auto rows = [&](unsigned operand) -> Value& {
    Value& shape = rewriter.create("Shape", {sdpa.operand(operand)}, {}, 1, "extents").result();
    Value& axis = rewriter.constant("axis", int64Tensor({2}));
    return rewriter.create("Gather", {&shape, &axis}, {}, 1, "extent").result();
  };
  Value& earlier = rewriter.create("Sub", {&rows(1), &rows(0)}, {}, 1, "earlier").result();
  return earlier;
}

llvm::Error KvoptOperands::addAppendRows() {
  const Node* first = nullptr;
  forEachGraph(model.graph(), [&](Graph& visited) {
    for (const Node& node : visited.nodes())
      if (!first && node.op() == OpName("ai.kvopt::AppendRows"))
        first = &node;
  });
  if (!first)
    return llvm::Error::success();
  return addFunction("ai.kvopt::AppendRows", [&] {
    return appendRowsFunctionText(model.graph().opsetVersion(),
                                  first->result().type().elementType());
  });
}

llvm::Error KvoptOperands::addFunction(OpName op, llvm::function_ref<std::string()> text) {
  if (!written.insert(op.str()).second)
    return llvm::Error::success();
  const std::string body = text();
  if (const Function* there = model.findFunction(op)) {
    // The existing function may be an unused one in another form.
    Model scratch(model.context().ops());
    auto wanted = readFunctionText(body, scratch);
    if (!wanted)
      return wanted.takeError();
    if (functionDigest(*there) == functionDigest(**wanted))
      return llvm::Error::success();
    llvm::erase_if(model.functions, [&](const std::unique_ptr<Function>& function) {
      return OpName(function->domain, function->name) == op;
    });
    model.markEdited();
  }
  auto function = readFunctionText(body, model);
  return function ? llvm::Error::success() : function.takeError();
}

Value& canonicalNewRows(const AttentionSite& site, const SiteCache& update, Rewriter& rewriter) {
  const Value& operand = *site.node->operand(&update == &*site.key ? 1 : 2);
  Dim groups = operand.type().dim(1);
  if (auto divided = groups.dividedBy(update.repeats))
    groups = *divided;
  return canonicalRows(*update.fresh, update.freshLayout, *site.node->operand(0), groups,
                       operand.type().dim(3), rewriter);
}

void recordSiteOrigin(Node& fused, const AttentionSite& site, Rewriter& rewriter) {
  llvm::SmallVector<Node*, 3> sources;
  for (Node* update : {site.key->writer, site.value->writer})
    if (update && !llvm::is_contained(sources, update))
      sources.push_back(update);
  sources.push_back(site.node);
  rewriter.recordSources(fused, sources);
  Metadata metadata = fused.metadata();
  for (const auto& [key, text] : site.node->metadata())
    metadata.emplace_back(key == ruleMetadataKey ? "kvopt.raised_by" : key + ".raised", text);
  fused.setMetadata(std::move(metadata));
}

} // namespace kvopt::targets
