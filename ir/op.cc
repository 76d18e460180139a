// Definitions of operators and their registry.
#include "ir/op.h"

#include "ir/node.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

namespace {
unsigned fewestOf(llvm::ArrayRef<Formal> formals) {
  unsigned count = 0;
  for (size_t i = 0; i < formals.size(); ++i)
    if (formals[i].arity == Formal::Arity::Required || formals[i].atLeastOne)
      count = static_cast<unsigned>(i + 1);
  return count;
}

std::optional<unsigned> mostOf(llvm::ArrayRef<Formal> formals) {
  if (!formals.empty() && formals.back().arity == Formal::Arity::Variadic)
    return std::nullopt;
  return static_cast<unsigned>(formals.size());
}

Formal parseFormal(llvm::StringRef text) {
  if (text.consume_back("?"))
    return {text.str(), Formal::Arity::Optional};
  if (text.consume_back("*"))
    return {text.str(), Formal::Arity::Variadic};
  if (text.consume_back("+"))
    return {text.str(), Formal::Arity::Variadic, /*atLeastOne=*/true};
  return {text.str(), Formal::Arity::Required};
}
} // namespace

unsigned OpDef::minOperands() const { return fewestOf(operands); }
unsigned OpDef::minResults() const { return fewestOf(results); }
std::optional<unsigned> OpDef::maxOperands() const { return mostOf(operands); }
std::optional<unsigned> OpDef::maxResults() const { return mostOf(results); }

const FormalAttribute* OpDef::findAttribute(llvm::StringRef attribute) const {
  for (const FormalAttribute& formal : attributes)
    if (formal.name == attribute)
      return &formal;
  return nullptr;
}

bool hasUnknownOperands(const Node& node) {
  const OpDef* definition = node.definition();
  const bool isVersioned = node.op().domain() != "com.microsoft";
  if (!definition || isVersioned)
    return false;
  const auto operands = definition->maxOperands();
  const auto results = definition->maxResults();
  return (operands && node.operands().size() > *operands) ||
         (results && node.results().size() > *results);
}

OpDefBuilder::OpDefBuilder(OpRegistry& registry, OpName name, int64_t since)
    : definition(registry.add(name, since)) {}

OpDefBuilder& OpDefBuilder::in(llvm::StringRef formal) {
  definition.operands.push_back(parseFormal(formal));
  return *this;
}

OpDefBuilder& OpDefBuilder::out(llvm::StringRef formal) {
  definition.results.push_back(parseFormal(formal));
  return *this;
}

OpDefBuilder& OpDefBuilder::attr(llvm::StringRef name, int64_t defaultValue) {
  definition.attributes.push_back(
      {name.str(), AttributeKind::Int, false, Attribute::ofInt(defaultValue)});
  return *this;
}

OpDefBuilder& OpDefBuilder::attr(llvm::StringRef name, float defaultValue) {
  definition.attributes.push_back(
      {name.str(), AttributeKind::Float, false, Attribute::ofFloat(defaultValue)});
  return *this;
}

OpDefBuilder& OpDefBuilder::attr(llvm::StringRef name, const char* defaultValue) {
  definition.attributes.push_back(
      {name.str(), AttributeKind::String, false, Attribute::ofString(defaultValue)});
  return *this;
}

OpDefBuilder& OpDefBuilder::attr(llvm::StringRef name, AttributeKind kind) {
  definition.attributes.push_back({name.str(), kind, false, std::nullopt});
  return *this;
}

OpDefBuilder& OpDefBuilder::requiredAttr(llvm::StringRef name, AttributeKind kind) {
  definition.attributes.push_back({name.str(), kind, true, std::nullopt});
  return *this;
}

OpDefBuilder& OpDefBuilder::shape(ShapeRule rule) {
  definition.inferShapes = rule;
  return *this;
}

OpDefBuilder& OpDefBuilder::moves(MovementKind kind, MovementRule rule, unsigned data) {
  definition.movement = OpMovement{kind, rule, data};
  return *this;
}

OpDefBuilder& OpDefBuilder::elementwise(ElementFunction function) {
  definition.elementFunction = function;
  return *this;
}

OpDefBuilder& OpDefBuilder::view(unsigned result, unsigned operand) {
  definition.aliases.push_back({result, operand, Alias::Kind::View});
  return *this;
}

OpDefBuilder& OpDefBuilder::inPlace(unsigned result, unsigned operand) {
  definition.aliases.push_back({result, operand, Alias::Kind::InPlace});
  return *this;
}

OpDefBuilder& OpDefBuilder::reuse(unsigned result, unsigned operand) {
  definition.aliases.push_back({result, operand, Alias::Kind::Reuse});
  return *this;
}

OpDefBuilder& OpDefBuilder::body(BodyRule rule) {
  definition.checkBody = rule;
  return *this;
}

OpDef& OpRegistry::add(OpName name, int64_t since) {
  names.push_back(name.domain().str());
  llvm::StringRef domain = names.back();
  names.push_back(name.type().str());
  llvm::StringRef type = names.back();
  definitions.emplace_back();
  OpDef& definition = definitions.back();
  definition.name = OpName(domain, type);
  definition.since = since;
  auto& versions = byName[definition.name];
  assert(llvm::none_of(versions, [&](const OpDef* other) { return other->since == since; }));
  versions.push_back(&definition);
  llvm::sort(versions, [](const OpDef* a, const OpDef* b) { return a->since < b->since; });
  return definition;
}

const OpDef* OpRegistry::find(OpName name, int64_t version) const {
  auto found = byName.find(name);
  if (found == byName.end())
    return nullptr;
  const OpDef* best = nullptr;
  for (const OpDef* definition : found->second)
    if (definition->since <= version)
      best = definition;
  return best;
}

std::vector<const OpDef*> OpRegistry::all() const {
  std::vector<const OpDef*> sorted;
  for (const OpDef& definition : definitions)
    sorted.push_back(&definition);
  llvm::sort(sorted, [](const OpDef* a, const OpDef* b) {
    return a->name != b->name ? a->name < b->name : a->since < b->since;
  });
  return sorted;
}

} // namespace kvopt::ir
