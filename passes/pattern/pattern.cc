// Construction of patterns.
#include "passes/pattern/pattern.h"

#include <cassert>

namespace kvopt::pattern {
using namespace ir;

namespace {

std::shared_ptr<PatternNode> make(PatternNode::Kind kind) {
  auto node = std::make_shared<PatternNode>();
  node->kind = kind;
  return node;
}

std::shared_ptr<PatternNode> makeOp(OpName name, std::vector<P> operands) {
  auto node = make(PatternNode::Kind::Op);
  node->nameText = name.str();
  node->name = OpName(llvm::StringRef(node->nameText));
  node->children = std::move(operands);
  return node;
}

P withVar(PatternNode::Kind kind, const Var& var) {
  auto node = make(kind);
  node->var = &var;
  return P(std::move(node));
}

} // namespace

P::P(const Var& var) : P(withVar(PatternNode::Kind::Var, var)) {}

P op(OpName name, std::vector<P> operands, AttributeList attributes, unsigned result) {
  auto node = makeOp(name, std::move(operands));
  node->attributes = std::move(attributes);
  node->result = result;
  return P(std::move(node));
}

P commutative(OpName name, std::vector<P> operands) {
  assert(operands.size() == 2);
  auto node = makeOp(name, std::move(operands));
  node->isCommutative = true;
  return P(std::move(node));
}

P oneOf(std::string tag, std::vector<Alternative> alternatives) {
  assert(!alternatives.empty());
  auto node = make(PatternNode::Kind::OneOf);
  node->tag = std::move(tag);
  for (Alternative& alternative : alternatives) {
    node->alternativeNames.push_back(std::move(alternative.name));
    node->children.push_back(std::move(alternative.pattern));
  }
  return P(std::move(node));
}

P optional(P with, P without) {
  return oneOf("", {{"with", std::move(with)}, {"without", std::move(without)}});
}

P bind(const Var& var, P pattern) {
  auto node = make(PatternNode::Kind::Bind);
  node->var = &var;
  node->children.push_back(std::move(pattern));
  return P(std::move(node));
}

P constant(const Var& var) { return withVar(PatternNode::Kind::Constant, var); }

P any() { return P(make(PatternNode::Kind::Any)); }

P maybe(const Var& var) { return withVar(PatternNode::Kind::Maybe, var); }

P escaping(P pattern) {
  auto node = make(PatternNode::Kind::Escaping);
  node->children.push_back(std::move(pattern));
  return P(std::move(node));
}

} // namespace kvopt::pattern
