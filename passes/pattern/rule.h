// Rule: a pattern, constraints and a rewrite. Each rule is one file in passes/rules.
#pragma once

#include "passes/pattern/constraints.h"
#include "passes/pattern/matcher.h"
#include "passes/pattern/pattern.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::pattern {

/// Purpose of a rule. A pass runs the rules of one group.
enum class RuleGroup {
  Normalize, ///< fewer spellings of the same thing
  Raise,     ///< attention in any spelling → ai.kvopt::Sdpa
  Strip,     ///< the broadcast of grouped keys and values → grouped Sdpa
  Fuse,      ///< operators around attention → ONNX Runtime's fused operators
};

llvm::StringRef ruleGroupName(RuleGroup group);

/// A rewrite rule. Rules are stateless: `rewrite` reads everything from the match, and constraints
/// pass results to it in a Payload of the match.
class Rule {
public:
  virtual ~Rule() = default;
  /// Kebab case; the stem of the file: `strip-gqa-broadcast`.
  virtual llvm::StringRef name() const = 0;
  virtual RuleGroup group() const = 0;
  virtual P pattern() const = 0;
  virtual void constraints(Constraints&) const {}
  /// Replaces the root. On failure (a cycle) the graph must be unchanged.
  virtual std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const = 0;
};

/// All rules. Filled once, then read-only.
class RuleRegistry {
public:
  struct Entry {
    std::unique_ptr<Rule> rule;
    std::unique_ptr<CompiledPattern> pattern;
  };

  /// Adds a rule. Its name must be new.
  void add(std::unique_ptr<Rule> rule);
  llvm::ArrayRef<Entry> all() const { return entries; }
  const Entry* find(llvm::StringRef name) const;

private:
  std::vector<Entry> entries;
};

/// Every rule under passes/rules (generated).
void registerAll(RuleRegistry& registry);

} // namespace kvopt::pattern
