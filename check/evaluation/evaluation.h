// Evaluation: values of one model for given inputs.
#pragma once

#include "check/arithmetic/call.h"

#include "llvm/ADT/DenseMap.h"

#include <functional>
#include <memory>
#include <unordered_map>

namespace kvopt::check {

/// Evaluates values of a model on demand, each once. Functions are evaluated by their bodies, and
/// only the branch of an If that its condition selects.
class Evaluation {
public:
  struct Hooks {
    /// Contents of a graph input; null if it has none.
    std::function<Ref(const ir::Value&)> input;
    /// A result of the main graph or its subgraphs that is given instead of evaluated, or null.
    std::function<Ref(const ir::Value&)> given;
    /// Whether a result of the main graph is evaluated elsewhere if it is not needed here. Others
    /// are evaluated with those that are, as nothing else shows that they can be; may be empty:
    /// none is.
    std::function<bool(const ir::Value&)> isRead;
    /// Result of a node that has no rule; may be empty or return null.
    std::function<Ref(const ir::Value&)> unruled;
  };

  Evaluation(const ir::Model& evaluated, const RuleTable& table, Arithmetic& shared, Hooks ownHooks)
      : model(evaluated), rules(table), math(shared), hooks(std::move(ownHooks)) {}

  /// The value; null, with a failure, if it cannot be evaluated.
  Ref evaluate(const ir::Value& value) { return demand(top, value); }
  const std::string& failure() const { return reason; }
  /// Whether it failed because the model itself fails: its operands contradict each other.
  bool isInvalid() const { return invalid; }
  /// Nodes of the main graph and its subgraphs that were evaluated.
  const std::vector<const ir::Node*>& evaluatedNodes() const { return visited; }

private:
  struct Frame {
    llvm::DenseMap<const ir::Value*, Ref> values;
    /// Function bodies that have been evaluated in part.
    std::unordered_map<const ir::Node*, std::unique_ptr<Frame>> bodies;
    FunctionCall call;
    unsigned depth = 0;
    const FunctionCall* enclosing() const { return call.node ? &call : nullptr; }
  };
  Ref demand(Frame& frame, const ir::Value& root);
  bool leaf(Frame& frame, const ir::Value& value);
  /// Whether constants decide each reader of a truth in a function's body alone, as `window == 0`
  /// does in `window == 0 or distance < window`.
  bool isAbsorbed(Frame& frame, const ir::Node& node);
  /// Evaluates at least one result of a node.
  bool run(Frame& frame, const ir::Node& node, unsigned needed);
  Results runFunction(Frame& frame, const ir::Function& function, const Call& call);
  bool fail(std::string text);
  /// Fails because every engine refuses the node.
  bool refuse(const ir::Node& node, const std::string& why);

  const ir::Model& model;
  const RuleTable& rules;
  Arithmetic& math;
  Hooks hooks;
  Frame top;
  std::vector<const ir::Node*> visited;
  std::string reason;
  bool invalid = false;
};

} // namespace kvopt::check
