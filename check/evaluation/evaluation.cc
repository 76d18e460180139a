// Evaluation on demand, without recursion over nodes.
#include "check/evaluation/evaluation.h"

#include "check/arithmetic/integer_range.h"
#include "check/evaluation/operand_types.h"
#include "check/evaluation/operator_contract.h"
#include "check/evaluation/result_growths.h"
#include "check/evaluation/roundings.h"
#include "check/evaluation/table_axes.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {
constexpr unsigned deepestCalls = 16;
}

bool Evaluation::fail(std::string text) {
  if (reason.empty())
    reason = std::move(text);
  return false;
}

bool Evaluation::refuse(const ir::Node& node, const std::string& why) {
  invalid |= reason.empty();
  return fail(node.describe() + ": " + why);
}

namespace {

/// Integers with the type that a graph input declares.
Ref typed(Ref contents, ir::ElementType type) {
  if (!contents || !contents->isInteger() || contents->type == type || !ir::isInteger(type))
    return contents;
  auto result = std::make_shared<Tensor>(*contents);
  result->type = type;
  return result;
}

} // namespace

/// Values that need no other value. False if the value is a result to be computed.
bool Evaluation::leaf(Frame& frame, const ir::Value& value) {
  const bool isTop = !frame.call.node;
  Ref contents;
  if (isTop && hooks.given)
    contents = hooks.given(value);
  if (!contents && value.isGraphInput() && isTop) {
    contents = typed(hooks.input(value), value.type().elementType());
    if (contents)
      math.countElements(*contents);
  }
  if (!contents && value.isInitializer() && value.initializer()) {
    contents = tensorOf(*value.initializer());
    if (contents)
      math.countElements(*contents);
  }
  if (!contents)
    return false;
  frame.values[&value] = std::move(contents);
  return true;
}

Ref Evaluation::demand(Frame& frame, const ir::Value& root) {
  llvm::SmallVector<const ir::Value*, 32> pending{&root};
  while (!pending.empty()) {
    const ir::Value& value = *pending.back();
    if (frame.values.count(&value)) {
      pending.pop_back();
      continue;
    }
    if (leaf(frame, value)) {
      pending.pop_back();
      continue;
    }
    const ir::Node* node = value.producer();
    if (!node) {
      fail("the value '" + value.name().str() + "' is unknown");
      return nullptr;
    }
    const size_t before = pending.size();
    for (const ir::Use& use : node->operands())
      if (use.value() && !frame.values.count(use.value()))
        pending.push_back(use.value());
    if (pending.size() != before)
      continue;
    if (node->is("If")) {
      const Ref condition = frame.values[node->operand(0)];
      if (!condition || !condition->isInteger() || condition->integers.empty()) {
        fail(node->describe() + ": its condition is unknown");
        return nullptr;
      }
      const ir::Attribute* branch =
          node->attribute(condition->integers[0] ? "then_branch" : "else_branch");
      if (!branch || branch->graphs().empty()) {
        fail(node->describe() + ": it has no such branch");
        return nullptr;
      }
      const ir::Graph& graph = *branch->graphs()[0];
      for (const ir::Value* output : graph.outputs())
        if (!frame.values.count(output))
          pending.push_back(output);
      if (pending.size() != before)
        continue;
      for (size_t i = 0; i < node->results().size() && i < graph.outputs().size(); ++i)
        frame.values[&node->result(unsigned(i))] = frame.values[graph.outputs()[i]];
      continue;
    }
    if (!run(frame, *node, value.resultIndex()))
      return nullptr;
  }
  return frame.values[&root];
}

namespace {

/// Whether only constants make the value, in few steps.
bool isOfConstants(const ir::Value& value, unsigned steps) {
  if (value.isInitializer())
    return true;
  return value.producer() && steps > 0 &&
         llvm::all_of(value.producer()->operands(), [&](const ir::Use& use) {
           return !use.value() || isOfConstants(*use.value(), steps - 1);
         });
}

} // namespace

bool Evaluation::isAbsorbed(Frame& frame, const ir::Node& node) {
  constexpr unsigned fewSteps = 3;
  const ir::Value& truth = node.result(0);
  // Values of the main graph are compared with others, which may be read elsewhere. What constants
  // make has no thresholds.
  if (!frame.call.node || truth.isGraphOutput() || !truth.hasUses() ||
      isOfConstants(truth, fewSteps))
    return false;
  return llvm::all_of(truth.uses(), [&](const ir::Use& use) {
    const ir::Node& reader = use.user();
    const bool isOr = reader.is("Or");
    if ((!isOr && !reader.is("And")) || reader.operands().size() != 2)
      return false;
    const ir::Value* other = reader.operand(1 - use.operandIndex());
    if (!other || !isOfConstants(*other, fewSteps))
      return false;
    const Ref decided = demand(frame, *other);
    return decided && decided->isFixed && decided->isInteger() &&
           llvm::all_of(decided->integers, [&](int64_t element) { return element == isOr; });
  });
}

bool Evaluation::run(Frame& frame, const ir::Node& node, unsigned needed) {
  if (math.isExhaustedInAll())
    return fail("the check needs more than " + std::to_string(math.mostInAll) + " products");
  if (math.isExhausted())
    return fail("more than " + std::to_string(math.mostWork) + " products are needed");
  constexpr int64_t workOfNode = 1024; // of looking up operands and making a tensor
  math.work += workOfNode;
  llvm::SmallVector<Ref, 8> operands;
  for (const ir::Use& use : node.operands()) {
    operands.push_back(use.value() ? frame.values[use.value()] : nullptr);
    if (use.value() && !operands.back())
      return fail(node.describe() + ": an operand is not a tensor");
  }
  const bool isTop = !frame.call.node;
  const bool isFirst = llvm::none_of(
      node.results(), [&](const ir::Value& result) { return frame.values.count(&result) != 0; });
  if (isTop && isFirst)
    visited.push_back(&node);
  Results results;
  auto isNeeded = [&](unsigned i) {
    return i == needed || !isTop || !hooks.isRead || !hooks.isRead(node.result(i));
  };
  const ir::Function* function = model.findFunction(node);
  auto rule = rules.find(node.op().str());
  if (function) {
    const Call call(node, frame.enclosing(), operands, math, isNeeded);
    if (const std::string why = contractViolation(call); !why.empty())
      return refuse(node, why);
    results = runFunction(frame, *function, call);
    if (results.empty())
      return false;
  } else if (rule != rules.end()) {
    Call call(node, frame.enclosing(), operands, math, isNeeded);
    // A rule may read its first operand.
    if (!node.operands().empty() && !operands[0])
      return fail(node.describe() + ": its first operand is absent");
    if (const std::string why = contractViolation(call); !why.empty())
      return refuse(node, why);
    if (const std::string why = mixedTypes(node, operands); !why.empty())
      return refuse(node, why);
    if (!math.openInteger.empty() && call.dependsOnOpenIntegers())
      math.thresholds.noteOpen(math.openInteger);
    const auto step = math.codeSteps ? math.codeSteps->find(&node) : CodeSteps::const_iterator();
    const bool makesCodes = math.codeSteps && step != math.codeSteps->end();
    math.thresholds.mute(node.results().size() == 1 && isAbsorbed(frame, node));
    results = makesCodes ? evaluateCodes(call, step->second, rule->second) : rule->second(call);
    math.thresholds.mute(false);
    if (results.empty()) {
      invalid |= call.isInvalid && reason.empty();
      return fail(call.failure.empty() ? node.describe() + ": it has no value" : call.failure);
    }
    spreadTables(call, results);
    // A hollow result is a shape, for which not everything is asked for.
    const bool isHollow =
        llvm::any_of(results, [](const Ref& made) { return made && made->isHollow; });
    if (!makesCodes && !isHollow && !call.isHollow())
      if (const std::string unread = unreadPart(call); !unread.empty())
        return fail(node.describe() + ": " + unread);
    traceResults(call, results);
  } else {
    for (const ir::Value& result : node.results()) {
      Ref unknown = isTop && hooks.unruled && !result.isAbsent() ? hooks.unruled(result) : nullptr;
      if (!unknown && !result.isAbsent())
        return fail(node.describe() + ": no rule evaluates this operator");
      results.push_back(std::move(unknown));
    }
  }
  for (Ref& result : results)
    if (result) {
      result = wrappedToType(std::move(result));
      if (result->type == ir::ElementType::UInt64 && math.openInteger.empty() &&
          llvm::is_contained(result->integers, openInteger))
        math.openInteger = node.describe() + " makes an integer that the check does not represent";
      math.countElements(*result);
    }
  for (size_t i = 0; i < node.results().size(); ++i) {
    const ir::Value& result = node.result(unsigned(i));
    Ref contents = i < results.size() ? results[i] : nullptr;
    if ((!contents && i != needed && !result.isAbsent()) || frame.values.count(&result))
      continue; // it is evaluated when it is needed
    frame.values[&result] = std::move(contents);
  }
  return true;
}

Results Evaluation::runFunction(Frame& frame, const ir::Function& function, const Call& call) {
  if (frame.depth >= deepestCalls) {
    fail(call.node.describe() + ": functions call each other too deeply");
    return {};
  }
  std::unique_ptr<Frame>& inner = frame.bodies[&call.node];
  if (!inner) {
    inner = std::make_unique<Frame>();
    inner->depth = frame.depth + 1;
    inner->call = {&call.node, &function, frame.enclosing()};
    for (unsigned i = 0; i < function.body.inputs().size(); ++i)
      inner->values[function.body.inputs()[i].get()] = call.in(i);
  }
  Results results(function.body.outputs().size());
  bool isComplete = true;
  for (unsigned i = 0; i < results.size() && i < call.node.results().size(); ++i) {
    const ir::Value& result = call.node.result(i);
    if (result.isAbsent())
      continue;
    if (!call.isNeeded(i)) {
      isComplete &= frame.values.count(&result) != 0;
      continue;
    }
    results[i] = demand(*inner, *function.body.outputs()[i]);
    if (!results[i] && reason.empty())
      fail(call.node.describe() + ": a result of its function is not a tensor");
    if (!results[i])
      return {};
  }
  if (isComplete)
    frame.bodies.erase(&call.node);
  return results;
}

} // namespace kvopt::check
