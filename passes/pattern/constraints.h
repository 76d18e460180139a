// Constraints: conditions that a rule places on a match beyond its structure.
#pragma once

#include "passes/pattern/match.h"
#include "passes/pattern/reason.h"

#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

namespace kvopt::pattern {

/// Collects the reason of a refusal. The reason is built only if a caller wants it.
class Refusal {
public:
  explicit Refusal(bool isWanted) : wanted(isWanted) {}
  /// Always false, so that a check can `return refusal.because(…)`.
  bool because(llvm::function_ref<MatchFailure()> build) {
    given = true;
    if (wanted)
      failure = build();
    return false;
  }
  /// Whether `because` was called: a check must give a reason when it refuses.
  bool isGiven() const { return given; }
  const MatchFailure& reason() const { return failure; }

private:
  bool wanted;
  bool given = false;
  MatchFailure failure;
};

/// Constraints of one rule. They are checked in the order in which they were added, after the
/// structure matched; a failure re-opens the pattern's earlier choices.
class Constraints {
public:
  /// The captured value has this rank, and its extents unify: a name means one extent everywhere, a
  /// number means itself, and an expression ("P + S", "G*N") means the value computed from the
  /// names bound so far. An unbound Var is skipped.
  void shape(const Var& var, std::vector<std::string> extents);
  /// A predicate, and the sentence that refusals quote.
  void require(std::string sentence, std::function<bool(const Match&)> predicate,
               ReasonCode code = ReasonCode::PatternMismatch);
  /// A predicate that builds its own reason through Refusal::because.
  void check(std::function<bool(const Match&, Refusal&)> predicate);
  /// The root has only these attributes; any others have their default values (see handled.h).
  /// Refusals quote `sentence`. The names must outlive the rule.
  void handles(llvm::ArrayRef<llvm::StringLiteral> attributes, std::string sentence);
  /// Computes what the rewrite needs, which the rewrite reads as `match[payload]`. Nullopt refuses,
  /// with `sentence` or through Refusal::because.
  template <class Type>
  void plan(const Payload<Type>& payload, std::string sentence,
            std::function<std::optional<std::type_identity_t<Type>>(const Match&)> make,
            ReasonCode code = ReasonCode::PatternMismatch) {
    plan(payload, [sentence = std::move(sentence), make = std::move(make), code](const Match& match,
                                                                                 Refusal& refusal) {
      std::optional<Type> made = make(match);
      if (!made)
        refusal.because([&] { return unmet(sentence, code, match); });
      return made;
    });
  }
  template <class Type>
  void plan(const Payload<Type>& payload,
            std::function<std::optional<std::type_identity_t<Type>>(const Match&, Refusal&)> make) {
    entries.push_back(
        {std::nullopt, [&payload, make = std::move(make)](Match& match, Refusal& refusal) {
           std::optional<Type> made = make(match, refusal);
           if (made)
             match.plans.push_back({&payload, std::make_shared<const Type>(std::move(*made))});
           return made.has_value();
         }});
  }

private:
  friend class ConstraintChecker;
  struct ShapeDemand {
    const Var* var;
    std::vector<std::string> extents;
  };
  struct Entry {
    std::optional<ShapeDemand> shape;
    std::function<bool(Match&, Refusal&)> predicate;
  };
  static MatchFailure unmet(const std::string& sentence, ReasonCode code, const Match& match);

  std::vector<Entry> entries;
};

/// Evaluates constraints, binds their extents and stores their plans in the match.
class ConstraintChecker {
public:
  static bool check(const Constraints& constraints, Match& match, Refusal& refusal);

private:
  static bool unify(const Constraints::ShapeDemand& demand, Match& match, Refusal& refusal);
};

} // namespace kvopt::pattern
