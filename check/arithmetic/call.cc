// The call of a node, and arithmetic on whole tensors.
#include "check/arithmetic/call.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/SHA256.h"

#include <cmath>
#include <cstring>

namespace kvopt::check {
using ir::Attribute;
using ir::AttributeKind;

namespace {

/// Attribute of a node or its default, resolved through the enclosing calls.
const Attribute* resolved(const ir::Node& node, llvm::StringRef name, const FunctionCall* call) {
  const Attribute* found = node.attribute(name);
  if (!found)
    return node.attributeOrDefault(name);
  if (!found->isReference())
    return found;
  if (!call)
    return nullptr;
  const std::string referenced = found->referencedName().str();
  if (call->node->attribute(referenced))
    return resolved(*call->node, referenced, call->outer);
  for (const ir::NamedAttribute& entry : call->function->defaults)
    if (entry.name == referenced)
      return &entry.value;
  return nullptr;
}

} // namespace

bool Call::isHollow() const {
  return llvm::any_of(operands, [](const Ref& operand) { return operand && operand->isHollow; });
}

namespace {

/// Whether open elements of an operand only make elements of the result open, or are left out.
bool keepsOpen(const ir::Node& node, unsigned operand) {
  static constexpr const char* moved[] = {"Identity", "Reshape", "Flatten",   "Transpose",
                                          "Squeeze",  "Expand",  "Unsqueeze", "Slice",
                                          "Split",    "Gather",  "Tile"};
  if (!node.op().isOnnx())
    return false;
  const llvm::StringRef name = node.op().type();
  if (operand == 0 && llvm::is_contained(moved, name))
    return true;
  using ir::ElementFunction;
  static constexpr ElementFunction combining[] = {ElementFunction::Sum, ElementFunction::Product,
                                                  ElementFunction::Bound, ElementFunction::Logic,
                                                  ElementFunction::Choice};
  const auto function = ir::elementFunction(node);
  return (function && llvm::is_contained(combining, *function)) || name == "Concat" ||
         name == "Shape";
}

} // namespace

bool Call::dependsOnOpenIntegers() const {
  for (unsigned i = 0; i < operands.size(); ++i)
    if (operands[i] && !keepsOpen(node, i) &&
        llvm::is_contained(operands[i]->integers, openInteger))
      return true;
  return false;
}

bool Call::isSpecial() const {
  return llvm::any_of(operands, [](const Ref& operand) {
    return operand && (operand->isSpecial || Constants::hasSpecial(*operand));
  });
}

Results Call::hollow(Extents shape) const { return {hollowTensor(std::move(shape), isSpecial())}; }

const Attribute* Call::attribute(llvm::StringRef name) const {
  return resolved(node, name, function);
}

int64_t Call::integer(llvm::StringRef name, int64_t otherwise) const {
  const Attribute* found = attribute(name);
  return found && found->kind() == AttributeKind::Int ? found->intValue() : otherwise;
}

double Call::number(llvm::StringRef name, double otherwise) const {
  const Attribute* found = attribute(name);
  return found && found->kind() == AttributeKind::Float ? double(found->floatValue()) : otherwise;
}

std::string Call::text(llvm::StringRef name, llvm::StringRef otherwise) const {
  const Attribute* found = attribute(name);
  return found && found->kind() == AttributeKind::String ? found->stringValue().str()
                                                         : otherwise.str();
}

std::optional<std::vector<int64_t>> Call::integers(llvm::StringRef name) const {
  const Attribute* found = attribute(name);
  if (!found || found->kind() != AttributeKind::Ints)
    return std::nullopt;
  return found->ints().vec();
}

std::optional<std::vector<int64_t>> Call::integers(llvm::StringRef name, unsigned operand) const {
  if (auto written = integers(name))
    return written;
  if (in(operand) && in(operand)->isInteger())
    return in(operand)->integers;
  return std::nullopt;
}

int64_t Call::version() const { return node.graph().opsetVersion(node.op().domain()); }

namespace {

const ir::Node& callerOf(const ir::Node& node, const FunctionCall* call) {
  const ir::Node* caller = &node;
  for (; call && call->node; call = call->outer)
    caller = call->node;
  return *caller;
}

} // namespace

void Call::noteThreshold(const Ref& a, const Ref& b, bool meets) const {
  const bool areIntegers = a->isInteger() && b->isInteger();
  const auto shape = broadcastShape(a->shape, b->shape);
  if (!shape || a->isReal() || b->isReal() || a->kind != b->kind || a->isBool())
    return;
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  const ir::Node& caller = callerOf(node, function);
  const auto count = static_cast<size_t>(left->count());
  // A constant is a threshold of its own, unless it is one of very many, as in a table.
  constexpr int64_t mostConstants = 64;
  auto isThreshold = [&](const Ref& tensor) {
    return tensor->isConstant && tensor->count() <= mostConstants;
  };
  const Tensor* constant = isThreshold(b) ? right.get() : isThreshold(a) ? left.get() : nullptr;
  auto valueOf = [&](const Tensor& tensor, size_t at) {
    return areIntegers ? static_cast<double>(tensor.integers[at]) : tensor.known[at];
  };
  for (size_t i = 0; i < count; ++i) {
    if (areIntegers && (left->integers[i] == openInteger || right->integers[i] == openInteger))
      continue; // it has no order, and the result is open
    const double threshold = constant ? valueOf(*constant, i) : 0;
    const Thresholds::Element element{i, count, std::isnan(threshold) ? 0 : threshold,
                                      commonPeriod(a->period, b->period)};
    math.thresholds.note(caller, node, element, valueOf(*left, i) - valueOf(*right, i),
                         areIntegers && meets, a->isToken || b->isToken);
  }
}

void Call::noteSteps(const Ref& numbers) const {
  auto sizes = std::make_shared<Tensor>(*numbers);
  for (double& number : sizes->known)
    number = std::abs(number);
  auto one = std::make_shared<Tensor>();
  one->kind = Kind::Known;
  one->known = {std::nextafter(1.0, 0.0)};
  noteThreshold(sizes, one, /*meets=*/false);
}

void Call::noteThreshold(int64_t difference, size_t which, bool meets) const {
  math.thresholds.note(callerOf(node, function), node, {0, 1, static_cast<double>(which)},
                       static_cast<double>(difference), meets, false);
}

Results Call::fail(std::string reason) {
  isInvalid = true;
  return unsupported(std::move(reason));
}

Results Call::unsupported(std::string reason) {
  if (failure.empty())
    failure = node.describe() + ": " + std::move(reason);
  return {};
}

RuleTable allRules() {
  RuleTable rules;
  addMovementRules(rules);
  addPartRules(rules);
  addIndexRules(rules);
  addArithmeticRules(rules);
  addComparisonRules(rules);
  addProductRules(rules);
  addReductionRules(rules);
  addAttentionRules(rules);
  addContribRules(rules);
  return rules;
}

std::optional<unsigned> axisOf(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return std::nullopt;
  return static_cast<unsigned>(axis < 0 ? axis + rank : axis);
}

bool isWeightData(const ir::TensorData& data) {
  constexpr int64_t fewest = 512;
  return ir::isFloatingPoint(data.elementType()) && data.shape().size() >= 2 &&
         data.elementCount() >= fewest;
}

Ref tensorOf(const ir::TensorData& data) {
  auto result = std::make_shared<Tensor>();
  result->type = data.elementType();
  result->isConstant = true;
  result->shape.assign(data.shape().begin(), data.shape().end());
  if (elementCount(result->shape) < 0)
    return nullptr;
  if (auto numbers = ir::floatValues(data, mostElements)) {
    result->kind = Kind::Known;
    result->known.assign(numbers->begin(), numbers->end());
    result->isWeight = isWeightData(data);
    return result;
  }
  if (auto numbers = ir::integerValues(data, mostElements)) {
    result->kind = Kind::Integer;
    result->integers.assign(numbers->begin(), numbers->end());
    return result;
  }
  return nullptr;
}

Ref mapReals(Call& call, llvm::ArrayRef<Ref> operands, const Extents& shape,
             llvm::function_ref<Exact(llvm::ArrayRef<Exact>)> compute) {
  auto result = std::make_shared<Tensor>();
  result->shape = shape;
  bool isHollow = false;
  bool isSpecial = false;
  std::vector<Ref> reals;
  for (const Ref& operand : operands) {
    isHollow |= operand->isHollow;
    isSpecial |= operand->isSpecial || Constants::hasSpecial(*operand);
    if (operand->isReal())
      result->type = operand->type;
  }
  if (isHollow)
    return hollowTensor(shape, isSpecial, result->type);
  const auto count = static_cast<size_t>(result->count());
  result->reals.reserve(count);
  llvm::SmallVector<Exact, 4> elements;
  llvm::SmallVector<std::pair<size_t, const Exact*>, 4> varying;
  for (const Ref& operand : operands) {
    reals.push_back(call.real(operand));
    if (reals.back()->count() != 1)
      reals.back() = broadcastTo(reals.back(), shape);
    if (count > 0 && reals.back()->count() != 1)
      varying.push_back({elements.size(), reals.back()->reals.data()});
    elements.push_back(count > 0 ? reals.back()->reals.front() : Exact());
  }
  for (size_t i = 0; i < count; ++i) {
    for (const auto& [operand, contents] : varying)
      elements[operand] = contents[i];
    result->reals.push_back(compute(elements));
  }
  return result;
}

Ref addReals(Call& call, const Ref& a, const Ref& b) {
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return nullptr;
  return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> elements) {
    return call.field().add(elements[0], elements[1]);
  });
}

Ref multiplyReals(Call& call, const Ref& a, const Ref& b) {
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape)
    return nullptr;
  if (a->kind == Kind::Known && b->kind != Kind::Known)
    return multiplyReals(call, b, a);
  if (b->kind != Kind::Known || b->isWeight || a->isHollow)
    return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> elements) {
      return call.field().multiply(elements[0], elements[1]);
    });
  const Ref signs = broadcastTo(b, *shape);
  size_t at = 0;
  return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> elements) {
    const double value = signs->known[at++];
    return call.field().multiply(elements[0], elements[1], value > 0 ? 1 : value < 0 ? -1 : 0);
  });
}

Ref unknownOf(Call& call, llvm::StringRef name, const Ref& operand) {
  const uint64_t hash = nameHash(name);
  return mapReals(call, {operand}, operand->shape, [&](llvm::ArrayRef<Exact> elements) {
    return call.field().unknown(hash, {elements[0]});
  });
}

Ref realScalar(Call& call, double value) {
  auto result = std::make_shared<Tensor>();
  result->reals = {call.math.constants.constant(value)};
  return result;
}

void unify(Call& call, llvm::MutableArrayRef<Ref> tensors) {
  const bool isReal = llvm::any_of(tensors, [](const Ref& tensor) { return tensor->isReal(); });
  const bool isMixed = llvm::any_of(tensors, [&](const Ref& tensor) {
    return tensor->kind != tensors.front()->kind || tensor->isWeight != tensors.front()->isWeight;
  });
  if (!isReal && !isMixed)
    return;
  const bool isHollow = llvm::any_of(tensors, [](const Ref& tensor) { return tensor->isHollow; });
  for (Ref& tensor : tensors)
    tensor = isHollow
                 ? hollowTensor(tensor->shape, tensor->isSpecial || Constants::hasSpecial(*tensor))
                 : call.real(tensor);
}

uint64_t nameHash(llvm::StringRef name) {
  llvm::SHA256 hash;
  hash.update(name);
  uint64_t bits = 0;
  std::memcpy(&bits, hash.final().data(), sizeof(bits));
  return bits;
}

} // namespace kvopt::check
