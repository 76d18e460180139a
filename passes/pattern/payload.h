// Payload: results of a rule's constraints that its rewrite reads.
#pragma once

namespace kvopt::pattern {

/// A place for one `Type` in every match of a rule. Payloads are members of their rule, as Vars
/// are, and are identified by address; the rule itself stays stateless:
///
///   Payload<Plan> plan;
///   void constraints(Constraints& c) const override {
///     c.plan(plan, "a plan", [this](const Match& match) { return planOf(match); });
///   }
///   … rewrite(const Match& match, Rewriter& rewriter) const override { use(match[plan]); }
template <class Type> class Payload {
public:
  Payload() = default;
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
};

} // namespace kvopt::pattern
