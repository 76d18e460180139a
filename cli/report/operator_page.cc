// Sentences about the operators, and tables from their definitions.
#include "cli/report/operator_page.h"

#include "ir/ops/kvopt/cache_operator.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::cli {
using namespace ir;

namespace {

constexpr const char* introduction = R"(# kvopt's operators

`kvopt rewrite --to kvopt` writes operators of the domain `ai.kvopt`. Each call carries a function body in standard
operators, so that every engine computes the same, and kvopt's runtime executes them in place. In ONNX Runtime, the
library `libkvopt_onnxruntime.so` [computes all of them](drive.md#kvopts-kernels-inside-onnx-runtime). This page is
printed by `kvopt list ops --markdown`.

Operands that end in `?` may be absent. An attribute without a default need not be written, unless it is *required*.
)";

struct Sentence {
  const char* name;
  const char* text;
};

/// Sentences about the operators other than attention over a cache.
constexpr Sentence sentences[] = {
    {"AppendRows", "Writes new rows into a buffer from a place on."},
    {"AttentionTile", "Adds one tile of keys and values to the running state of a softmax."},
    {"QuantizeRows", "Turns rows into codes with a scale each."},
    {"QuantizedSdpa", "Attention over keys and values that are codes with scales."},
    {"Sdpa", "Attention without a cache: softmax(scale · Q Kᵀ + mask) V."},
};

std::string sentenceOf(const OpDef& definition) {
  if (const std::optional<CacheOperator> op = CacheOperator::named(definition.name)) {
    const char* place = op->isRing()       ? "a ring, which holds the last rows"
                        : op->isInBlocks() ? "blocks, each an operand"
                                           : "one buffer";
    return formatted("Attention over {} in {}{}.",
                     op->isLatent() ? "compressed rows" : "cached keys and values", place,
                     op->hasCodes() ? ", kept as int8 or four-bit codes with a scale each" : "");
  }
  const auto* found = llvm::find_if(
      sentences, [&](const Sentence& sentence) { return definition.name.type() == sentence.name; });
  return found == std::end(sentences) ? std::string() : found->text;
}

const char* kindWord(AttributeKind kind) {
  switch (kind) {
  case AttributeKind::Float:
    return "float";
  case AttributeKind::Int:
    return "int";
  case AttributeKind::String:
    return "string";
  case AttributeKind::Ints:
    return "ints";
  case AttributeKind::Floats:
    return "floats";
  default:
    return "tensor";
  }
}

std::string formals(llvm::ArrayRef<Formal> all) {
  std::string out;
  for (const Formal& formal : all)
    out += formatted("{}`{}{}`", out.empty() ? "" : ", ", formal.name,
                     formal.arity == Formal::Arity::Optional   ? "?"
                     : formal.arity == Formal::Arity::Variadic ? "…"
                                                               : "");
  return out;
}

std::string attributes(const OpDef& definition) {
  std::string out;
  for (const FormalAttribute& attribute : definition.attributes) {
    out +=
        formatted("{}`{}` ({}", out.empty() ? "" : ", ", attribute.name, kindWord(attribute.kind));
    if (attribute.required)
      out += ", required";
    if (attribute.defaultValue && attribute.kind == AttributeKind::Int)
      out += formatted(", {}", attribute.defaultValue->intValue());
    if (attribute.defaultValue && attribute.kind == AttributeKind::Float)
      out += formatted(", {}", attribute.defaultValue->floatValue());
    out += ")";
  }
  return out.empty() ? "none" : out;
}

std::string inPlace(const OpDef& definition) {
  std::string out;
  for (const Alias& alias : definition.aliases)
    if (alias.kind == Alias::Kind::InPlace)
      out +=
          formatted("{}`{}` is the memory of `{}`", out.empty() ? "" : ", ",
                    definition.results[alias.result].name, definition.operands[alias.operand].name);
  return out;
}

} // namespace

std::string operatorsMarkdown(const OpRegistry& registry) {
  std::string out = introduction;
  for (const OpDef* definition : registry.all()) {
    if (definition->name.domain() != kvoptDomain)
      continue;
    out += formatted("\n## {}\n\n{}\n\n", definition->name.type(), sentenceOf(*definition));
    out += formatted("* Operands: {}.\n* Results: {}.\n* Attributes: {}.\n",
                     formals(definition->operands), formals(definition->results),
                     attributes(*definition));
    if (const std::string written = inPlace(*definition); !written.empty())
      out += formatted("* In place: {}.\n", written);
  }
  return out;
}

} // namespace kvopt::cli
