// Match: the parts of the graph that a rule's pattern found.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/pattern.h"
#include "passes/pattern/payload.h"

#include <memory>

namespace kvopt::pattern {

/// A successful match. Refers to the graph; valid until the graph is edited.
class Match {
public:
  ir::Node& root() const { return *rootNode; }
  /// The captured value; asserts that the Var is bound.
  ir::Value& operator[](const Var& var) const;
  /// The captured value or null, for Vars of `maybe` and of alternatives.
  ir::Value* find(const Var& var) const;
  /// The alternative of `oneOf(tag, …)` that matched; empty if the match did not reach that place.
  llvm::StringRef choice(llvm::StringRef tag) const;
  /// The extent that a shape constraint bound to `symbol`; unknown if none did.
  ir::Dim dim(llvm::StringRef symbol) const;
  /// The plan that `Constraints::plan` computed. Asserts that the rule has such a constraint. Later
  /// constraints may read it, too.
  template <class Type> const Type& operator[](const Payload<Type>& payload) const {
    return *static_cast<const Type*>(findPlan(&payload));
  }
  /// Every node of the match, root first, each once.
  llvm::ArrayRef<ir::Node*> nodes() const { return matchedNodes; }
  bool contains(const ir::Node& node) const;

private:
  friend class Matcher;
  friend class Constraints;
  friend class ConstraintChecker;
  struct Binding {
    const Var* var;
    ir::Value* value;
  };
  struct Choice {
    const PatternNode* place;
    unsigned alternative;
  };
  struct Extent {
    std::string symbol;
    ir::Dim extent;
  };
  /// A plan and the Payload that it belongs to; the Payload's address determines the plan's type.
  struct Plan {
    const void* payload;
    std::shared_ptr<const void> contents;
  };

  const void* findPlan(const void* payload) const;

  ir::Node* rootNode = nullptr;
  llvm::SmallVector<Binding, 12> bindings;
  llvm::SmallVector<Choice, 6> choices;
  llvm::SmallVector<ir::Node*, 12> matchedNodes;
  llvm::SmallVector<ir::Node*, 4> escapingNodes;
  llvm::SmallVector<Extent, 8> extents;
  llvm::SmallVector<Plan, 1> plans;
};

} // namespace kvopt::pattern
