// Rule: a pattern, constraints and a rewrite; one file each under passes/rules.
#pragma once

#include "passes/pattern/constraints.h"
#include "passes/pattern/matcher.h"
#include "passes/pattern/pattern.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::pattern {

/// What a rule is for; passes run the rules of one group.
enum class RuleGroup {
  Normalize, ///< fewer spellings of the same thing
  Raise,     ///< attention in any spelling → ai.kvopt::Sdpa
  Strip,     ///< the broadcast of grouped keys and values → grouped Sdpa
};

llvm::StringRef ruleGroupName(RuleGroup group);

/// Stateless: `rewrite` learns everything from the match. What constraints find out for it goes
/// into a Payload of the match.
class Rule {
public:
  virtual ~Rule() = default;
  /// Kebab case, the file's stem: `strip-gqa-broadcast`.
  virtual llvm::StringRef name() const = 0;
  virtual RuleGroup group() const = 0;
  virtual P pattern() const = 0;
  virtual void constraints(Constraints&) const {}
  /// Replaces the root. A failure (a cycle) must leave the graph as it was.
  virtual std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const = 0;
};

/// All rules. Filled once, then read only.
class RuleRegistry {
public:
  struct Entry {
    std::unique_ptr<Rule> rule;
    std::unique_ptr<CompiledPattern> pattern;
  };

  /// The name must be new.
  void add(std::unique_ptr<Rule> rule);
  llvm::ArrayRef<Entry> all() const { return entries; }
  const Entry* find(llvm::StringRef name) const;

private:
  std::vector<Entry> entries;
};

/// Every rule under passes/rules (generated).
void registerAll(RuleRegistry& registry);

} // namespace kvopt::pattern
