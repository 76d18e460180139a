// The backtracking matcher.
//
// Matching is written in continuation-passing style: `match(place, value, next)` calls `next` once
// `place` matches and undoes its own bindings when `next` fails. A later failure therefore re-opens
// every earlier choice without any bookkeeping of choice points.
#include "passes/pattern/matcher.h"

#include "ir/op.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::pattern {
using namespace ir;

CompiledPattern::CompiledPattern(P pattern, Constraints constraints)
    : rootPattern(std::move(pattern)), demands(std::move(constraints)) {
  collect(rootPattern.node(), "", true);
  assert(!roots.empty() && "a pattern is rooted at an operator");
}

void CompiledPattern::collect(const PatternNode& place, const std::string& prefix, bool atRoot) {
  std::string here = prefix;
  if (place.kind == PatternNode::Kind::Op) {
    here += place.nameText;
    if (atRoot && !llvm::is_contained(roots, place.name))
      roots.push_back(place.name);
  } else if (place.var) {
    here += place.var->name();
  }
  // Sub-patterns are shared; this check avoids repeated walks of nested alternatives.
  if (!paths.try_emplace(&place, here).second && !atRoot)
    return;
  bool isOp = place.kind == PatternNode::Kind::Op;
  for (size_t i = 0; i < place.children.size(); ++i)
    collect(place.children[i].node(), isOp ? formatted("{}/{}:", here, i) : prefix,
            atRoot && !isOp);
}

llvm::StringRef CompiledPattern::path(const PatternNode& place) const {
  auto found = paths.find(&place);
  return found == paths.end() ? llvm::StringRef() : llvm::StringRef(found->second);
}

class Matcher {
public:
  Matcher(const CompiledPattern& compiled, const MatcherOptions& matcherOptions, NearMiss* miss)
      : pattern(compiled), options(matcherOptions), nearMiss(miss) {}

  bool hasGivenUp() const { return gaveUp; }

  std::optional<Match> run(Node& root) {
    current.rootNode = &root;
    bool found = false;
    for (Value& result : root.results())
      if (!result.isAbsent() && !found)
        found = match(pattern.root(), &result, [&] { return finish(); });
    if (!found)
      return std::nullopt;
    return std::move(current);
  }

private:
  using Continuation = llvm::function_ref<bool()>;

  bool match(const PatternNode& place, Value* value, Continuation next) {
    if (gaveUp)
      return false;
    if (++steps > options.stepBudget)
      return giveUp(place, value);
    switch (place.kind) {
    case PatternNode::Kind::Any:
      return value ? next() : missing(place, value);
    case PatternNode::Kind::Maybe:
      return value ? bindTo(place, value, next) : next();
    case PatternNode::Kind::Var:
      return value ? bindTo(place, value, next) : missing(place, value);
    case PatternNode::Kind::Constant:
      return matchConstant(place, value, next);
    case PatternNode::Kind::Bind:
      if (!value)
        return missing(place, value);
      return bindTo(place, value,
                    [&] { return match(place.children.front().node(), value, next); });
    case PatternNode::Kind::Escaping:
      return matchEscaping(place, value, next);
    case PatternNode::Kind::OneOf:
      return matchOneOf(place, value, next);
    case PatternNode::Kind::Op:
      return matchOp(place, value, next);
    }
    return false;
  }

  /// Ends the search. This reason takes precedence over all others, because nothing was refuted.
  bool giveUp(const PatternNode& place, const Value* value) {
    gaveUp = true;
    if (!nearMiss)
      return false;
    unsigned matched = static_cast<unsigned>(current.matchedNodes.size());
    nearMiss->matched = nearMiss->isSet ? std::max(nearMiss->matched, matched) : matched;
    nearMiss->isSet = true;
    nearMiss->path = pattern.path(place).str();
    recordNodes();
    nearMiss->failure = {ReasonCode::StepBudget, nameOf(value),
                         formatted("a match within {} steps", options.stepBudget),
                         "that the search goes on", ""};
    return false;
  }

  bool missing(const PatternNode& place, Value* value) {
    return note(place, value, [&] {
      return MatchFailure{ReasonCode::PatternMismatch, "", "an operand", "none", ""};
    });
  }

  bool bindTo(const PatternNode& place, Value* value, Continuation next) {
    if (Value* bound = current.find(*place.var)) {
      if (bound == value)
        return next();
      return note(place, value, [&] {
        return MatchFailure{
            ReasonCode::PatternMismatch, nameOf(value),
            formatted("{} to be '{}' again", place.var->name(), bound->name().str()), nameOf(value),
            ""};
      });
    }
    current.bindings.push_back({place.var, value});
    if (next())
      return true;
    current.bindings.pop_back();
    return false;
  }

  bool matchConstant(const PatternNode& place, Value* value, Continuation next) {
    if (!value || !value->constant())
      return note(place, value, [&] {
        return MatchFailure{ReasonCode::PatternMismatch, nameOf(value),
                            formatted("{} to be a constant", place.var->name()), describe(value),
                            ""};
      });
    return bindTo(place, value, next);
  }

  bool matchEscaping(const PatternNode& place, Value* value, Continuation next) {
    const PatternNode& inner = place.children.front().node();
    if (!value || !value->producer())
      return match(inner, value, next);
    current.escapingNodes.push_back(value->producer());
    if (match(inner, value, next))
      return true;
    current.escapingNodes.pop_back();
    return false;
  }

  bool matchOneOf(const PatternNode& place, Value* value, Continuation next) {
    for (unsigned i = 0; i < place.children.size(); ++i) {
      current.choices.push_back({&place, i});
      if (match(place.children[i].node(), value, next))
        return true;
      current.choices.pop_back();
    }
    return false;
  }

  bool matchOp(const PatternNode& place, Value* value, Continuation next) {
    Node* node = value ? value->producer() : nullptr;
    if (!node || !node->is(place.name) || value->resultIndex() != place.result)
      return note(place, value, [&] {
        return MatchFailure{ReasonCode::PatternMismatch, nameOf(value), place.nameText,
                            describe(value), ""};
      });
    if (!attributesHold(place, *node))
      return false;
    unsigned count = node->operands().size();
    while (count > place.children.size() && !node->operand(count - 1))
      --count;
    if (count > place.children.size())
      return note(place, value, [&] {
        return MatchFailure{ReasonCode::PatternMismatch, nameOf(value),
                            formatted("at most {} operands", place.children.size()),
                            formatted("{}", count), ""};
      });
    bool isNew = !current.contains(*node);
    if (isNew)
      current.matchedNodes.push_back(node);
    if (matchOperands(place, *node, 0, false, next))
      return true;
    if (place.isCommutative && matchOperands(place, *node, 0, true, next))
      return true;
    if (isNew)
      current.matchedNodes.pop_back();
    return false;
  }

  bool matchOperands(const PatternNode& place, Node& node, unsigned index, bool swapped,
                     Continuation next) {
    if (index == place.children.size())
      return next();
    Value* operand = node.operand(swapped ? 1 - index : index);
    return match(place.children[index].node(), operand,
                 [&] { return matchOperands(place, node, index + 1, swapped, next); });
  }

  bool attributesHold(const PatternNode& place, Node& node) {
    for (const PlainAttribute& demand : place.attributes)
      if (!attributeHolds(demand, node))
        return note(place, nullptr, [&] {
          const Attribute* written = node.attributeOrDefault(demand.name);
          return MatchFailure{isAxisOfUnknownRank(demand, node) ? ReasonCode::DynamicRank
                                                                : ReasonCode::PatternMismatch,
                              nameOf(&node.result()),
                              formatted("{} = {}", demand.name, demandText(demand)),
                              written ? attributeText(*written) : "that it is not written", ""};
        });
    return true;
  }

  static bool isAxisAttribute(llvm::StringRef name) {
    return name == "axis" || name == "axes" || name == "perm";
  }

  static bool isAxisOfUnknownRank(const PlainAttribute& demand, const Node& node) {
    return isAxisAttribute(demand.name) && node.operand(0) && !node.operand(0)->type().hasRank() &&
           node.attributeOrDefault(demand.name);
  }

  /// The rank by which the axes of a node are normalized: the rank of the first operand, or of the
  /// result where the axes are the result's.
  static std::optional<unsigned> axisRank(const Node& node) {
    const Value* operand = node.operand(0);
    if (!operand || !operand->type().hasRank())
      return std::nullopt;
    unsigned rank = operand->type().rank();
    if (node.op() == "Unsqueeze") {
      auto inserted = node.intsAttr("axes");
      return rank + static_cast<unsigned>(inserted ? inserted->size() : 0);
    }
    return node.op() == "OneHot" ? rank + 1 : rank;
  }

  static bool attributeHolds(const PlainAttribute& demand, const Node& node) {
    const Attribute* written = node.attributeOrDefault(demand.name);
    if (!written || written->isReference())
      return false;
    bool isAxis = isAxisAttribute(demand.name);
    std::optional<unsigned> rank = isAxis ? axisRank(node) : std::nullopt;
    auto sameAxis = [&](int64_t a, int64_t b) {
      if (a == b || !rank)
        return a == b;
      auto left = normalizedAxis(a, *rank);
      return left && left == normalizedAxis(b, *rank);
    };
    if (const auto* number = std::get_if<int64_t>(&demand.value))
      return written->kind() == AttributeKind::Int && sameAxis(*number, written->intValue());
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&demand.value)) {
      if (written->kind() != AttributeKind::Ints || written->ints().size() != numbers->size())
        return false;
      for (size_t i = 0; i < numbers->size(); ++i)
        if (!sameAxis((*numbers)[i], written->ints()[i]))
          return false;
      return true;
    }
    if (const auto* real = std::get_if<float>(&demand.value))
      return written->kind() == AttributeKind::Float && written->floatValue() == *real;
    return written->kind() == AttributeKind::String &&
           written->stringValue() == std::get<std::string>(demand.value);
  }

  static std::string demandText(const PlainAttribute& demand) {
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&demand.value))
      return formatted("[{}]", joinedText(*numbers, ", "));
    if (const auto* number = std::get_if<int64_t>(&demand.value))
      return formatted("{}", *number);
    if (const auto* real = std::get_if<float>(&demand.value))
      return formatted("{}", *real);
    return std::get<std::string>(demand.value);
  }

  static std::string attributeText(const Attribute& attribute) {
    if (attribute.isReference())
      return "an attribute of the function";
    switch (attribute.kind()) {
    case AttributeKind::Int:
      return formatted("{}", attribute.intValue());
    case AttributeKind::Ints:
      return formatted("[{}]", joinedText(attribute.ints(), ", "));
    case AttributeKind::Float:
      return formatted("{}", attribute.floatValue());
    case AttributeKind::String:
      return attribute.stringValue().str();
    default:
      return "a value of another kind";
    }
  }

  /// Checks the readers outside a structural match, then the rule's constraints.
  bool finish() {
    if (!nothingEscapes())
      return false;
    Refusal refusal(nearMiss != nullptr);
    if (ConstraintChecker::check(pattern.constraints(), current, refusal))
      return true;
    current.extents.clear();
    current.plans.clear();
    return note(pattern.root(), nullptr, [&] { return refusal.reason(); });
  }

  bool nothingEscapes() {
    for (Node* node : current.matchedNodes) {
      if (node == current.rootNode || llvm::is_contained(current.escapingNodes, node))
        continue;
      for (Value& result : node->results()) {
        if (result.isGraphOutput())
          return escapes(result, "the graph's output");
        for (Use& use : result.uses())
          if (!current.contains(use.user()))
            return escapes(result, use.user().describe());
      }
    }
    return true;
  }

  bool escapes(Value& value, const std::string& reader) {
    return note(pattern.root(), &value, [&] {
      return MatchFailure{ReasonCode::ValueEscapes, nameOf(&value),
                          "no reader outside the matched nodes", reader, ""};
    });
  }

  /// Records a failure if it is the furthest so far; always returns false. Operators that were
  /// tried one after another at the same place are listed together.
  bool note(const PatternNode& place, Value* value, llvm::function_ref<MatchFailure()> build) {
    if (!nearMiss || gaveUp)
      return false;
    unsigned matched = current.matchedNodes.size();
    bool isOp = place.kind == PatternNode::Kind::Op && value;
    if (nearMiss->isSet && nearMiss->matched >= matched) {
      if (nearMiss->matched == matched && isOp && value == furthestValue)
        addAlternative(place, build);
      return false;
    }
    nearMiss->isSet = true;
    nearMiss->matched = matched;
    nearMiss->path = pattern.path(place).str();
    recordNodes();
    nearMiss->failure = build();
    furthestValue = isOp ? value : nullptr;
    alternatives.assign(1, nearMiss->failure.expected);
    return false;
  }

  void addAlternative(const PatternNode& place, llvm::function_ref<MatchFailure()> build) {
    MatchFailure failure = build();
    if (failure.code != nearMiss->failure.code || failure.found != nearMiss->failure.found ||
        llvm::is_contained(alternatives, failure.expected))
      return;
    // The path leads to the operand; the expected operator is named elsewhere in the message.
    nearMiss->path = llvm::StringRef(pattern.path(place)).rsplit(':').first.str();
    alternatives.push_back(failure.expected);
    std::string& text = nearMiss->failure.expected;
    text = alternatives.front();
    for (size_t i = 1; i < alternatives.size(); ++i)
      text += (i + 1 == alternatives.size() ? " or " : ", ") + alternatives[i];
  }

  void recordNodes() {
    nearMiss->nodes.clear();
    for (const Node* node : current.matchedNodes)
      nearMiss->nodes.push_back(labelOf(*node));
  }

  static std::string nameOf(const Value* value) {
    if (!value)
      return "";
    return value->producer() && !value->producer()->name().empty() ? value->producer()->name().str()
                                                                   : value->name().str();
  }

  static std::string describe(const Value* value) {
    if (!value)
      return "no operand";
    if (value->producer())
      return value->producer()->op().str();
    return value->isGraphInput() ? "a graph input" : "an initializer";
  }

  const CompiledPattern& pattern;
  const MatcherOptions& options;
  NearMiss* nearMiss;
  Match current;
  unsigned steps = 0;
  bool gaveUp = false;
  const Value* furthestValue = nullptr;  // where the furthest failure expected another operator
  std::vector<std::string> alternatives; // operators expected there
};

std::optional<Match> matchAt(const CompiledPattern& pattern, Node& root,
                             const MatcherOptions& options, NearMiss* nearMiss, bool* gaveUp) {
  if (nearMiss)
    nearMiss->root = labelOf(root);
  Matcher matcher(pattern, options, nearMiss);
  std::optional<Match> match = matcher.run(root);
  if (gaveUp)
    *gaveUp = matcher.hasGivenUp();
  return match;
}

} // namespace kvopt::pattern
