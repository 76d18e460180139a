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
  readAttributes.insert(name);
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

void Call::noteUntraced(GrowthId growth) const {
  const Growth& known = math.growths.at(growth);
  if (known.isTraced())
    return;
  math.thresholds.noteOpen(known.why);
  math.readsSizes = true;
}

void Call::noteThreshold(Growths::Number a, Growths::Number b, bool isExact) const {
  noteDifference(math.growths.sum(a, b, -1), a.value - b.value, isExact);
}

void Call::noteDifference(GrowthId difference, double value, bool isExact, int side) const {
  if (difference == fixedGrowth)
    return;
  const Growth& growth = math.growths.at(difference);
  if (!growth.isTraced())
    return noteUntraced(difference);
  // Functions that are the same on both sides where they meet only change beyond it.
  if (growth.low > 0 || growth.high < 0 || (growth.low == 0 && (!isExact || side > 0)) ||
      (growth.high == 0 && (!isExact || side < 0)))
    return;
  if (!growth.isAffine())
    return math.thresholds.noteOpen(node.describe() + " compares products of sizes");
  math.thresholds.note(callerOf(node, function), node, difference, growth, value, isExact);
}

void Call::noteThreshold(const Ref& a, const Ref& b, bool meets, int side) const {
  if (a->growths.empty() && b->growths.empty())
    return;
  const auto shape = broadcastShape(a->shape, b->shape);
  if (!shape || elementCount(*shape) < 0)
    return;
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  const auto count = static_cast<size_t>(elementCount(*shape));
  const bool areIntegers = a->isInteger() && b->isInteger();
  Growths::Number lastX, lastY;
  GrowthId difference = fixedGrowth;
  bool isExact = false;
  auto isSame = [](Growths::Number one, Growths::Number other) {
    return one.id == other.id && (one.id != fixedGrowth || one.value == other.value);
  };
  for (size_t i = 0; i < count; ++i) {
    const Growths::Number x = left->number(i), y = right->number(i);
    if (areIntegers && (left->integers[i] == openInteger || right->integers[i] == openInteger))
      continue; // it has no order, and the result is open
    if (i == 0 || !isSame(x, lastX) || !isSame(y, lastY)) {
      difference = math.growths.sum(x, y, -1);
      isExact = meets;
    }
    lastX = x;
    lastY = y;
    noteDifference(difference, x.value - y.value, isExact, side);
  }
}

void Call::noteRead(unsigned operand, unsigned axis, llvm::ArrayRef<int64_t> entries,
                    llvm::ArrayRef<Ref> selectors, unsigned result) const {
  const Ref data = in(operand);
  const bool varies =
      llvm::any_of(selectors, [](const Ref& selector) { return selector && !selector->isFixed; });
  if (data->isHollow || !data->isTableAlong(axis) || !varies)
    return;
  constexpr unsigned axes = 32, operandCount = 64;
  math.tableReads.note(callerOf(node, function), node,
                       (result * operandCount + operand) * axes + axis, data->shape[axis], entries);
}

void Call::noteReadElements(unsigned operand, llvm::ArrayRef<int64_t> elements,
                            const Ref& selector) const {
  const Ref data = in(operand);
  if (!data->isHollow && data->tableAxes && !selector->isFixed)
    math.tableReads.note(callerOf(node, function), node, operand, data->count(), elements);
}

void Call::noteSteps(Growths::Number number, double apart) const {
  for (double end : {-apart, 0.0, apart})
    noteThreshold(number, {fixedGrowth, end}, /*isExact=*/false);
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
  addIntegerRules(rules);
  addFunctionRules(rules);
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
  result->isConstant = result->isFixed = true;
  result->shape.assign(data.shape().begin(), data.shape().end());
  if (elementCount(result->shape) < 0)
    return nullptr;
  if (auto numbers = ir::floatValues(data, mostElements)) {
    result->kind = Kind::Known;
    result->known.assign(numbers->begin(), numbers->end());
    result->isWeight = isWeightData(data);
    result->tableAxes = tableAxesOf(*result);
    return result;
  }
  if (auto numbers = ir::integerValues(data, mostElements)) {
    result->kind = Kind::Integer;
    result->integers.assign(numbers->begin(), numbers->end());
    result->tableAxes = tableAxesOf(*result);
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
  const Ref factors = broadcastTo(b, *shape);
  size_t at = 0;
  return mapReals(call, {a, b}, *shape, [&](llvm::ArrayRef<Exact> elements) {
    return call.field().multiply(elements[0], elements[1], factors->known[at++]);
  });
}

Ref unknownOf(Call& call, llvm::StringRef name, const Ref& operand) {
  const uint64_t hash = nameHash(name);
  return mapReals(call, {operand}, operand->shape, [&](llvm::ArrayRef<Exact> elements) {
    if (name == "Log" && elements[0].isZero())
      return Exact{0, 0, Status::MinusInfinity};
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
