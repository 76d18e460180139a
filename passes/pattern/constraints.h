// Constraints: what a rule demands of a match beyond its structure.
#pragma once

#include "passes/pattern/match.h"
#include "passes/pattern/reason.h"

#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

namespace kvopt::pattern {

/// Where a refusal goes. Building the reason costs nothing unless somebody listens.
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
  /// Whether `because` was called: a check may not refuse without a reason.
  bool isGiven() const { return given; }
  const MatchFailure& reason() const { return failure; }

private:
  bool wanted;
  bool given = false;
  MatchFailure failure;
};

/// The list a rule fills. Constraints are checked in the order they were added, once the structure
/// matched; a failure re-opens the pattern's earlier choices.
class Constraints {
public:
  /// The captured value has this rank, and its extents unify: a name stands for one extent wherever
  /// it is used, a number for itself, and an expression ("P + S", "G*N") for what its names are
  /// bound to by then. A Var that the match left unbound is skipped.
  void shape(const Var& var, std::vector<std::string> extents);
  /// A predicate with the sentence that refusals quote.
  void require(std::string sentence, std::function<bool(const Match&)> predicate,
               ReasonCode code = ReasonCode::PatternMismatch);
  /// A predicate that builds its own reason through Refusal::because.
  void check(std::function<bool(const Match&, Refusal&)> predicate);
  /// The root has no attributes but these, and others at their defaults (see handled.h); `sentence`
  /// is what refusals quote. The names must outlive the rule.
  void handles(llvm::ArrayRef<llvm::StringLiteral> attributes, std::string sentence);
  /// Finds out what the rewrite needs, which then reads `match[payload]`; nullopt refuses, with the
  /// sentence or through Refusal::because.
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
