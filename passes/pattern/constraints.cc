// Unification of shapes and evaluation of predicates.
#include "passes/pattern/constraints.h"

#include "passes/pattern/handled.h"
#include "support/format.h"

namespace kvopt::pattern {
using namespace ir;

namespace {
std::string nameForMessages(const Node& node) {
  return node.name().empty() ? node.result().name().str() : node.name().str();
}
} // namespace

void Constraints::shape(const Var& var, std::vector<std::string> extents) {
  entries.push_back({ShapeDemand{&var, std::move(extents)}, nullptr});
}

void Constraints::require(std::string sentence, std::function<bool(const Match&)> predicate,
                          ReasonCode code) {
  entries.push_back(
      {std::nullopt, [sentence = std::move(sentence), predicate = std::move(predicate),
                      code](const Match& match, Refusal& refusal) {
         if (predicate(match))
           return true;
         return refusal.because([&] { return unmet(sentence, code, match); });
       }});
}

void Constraints::check(std::function<bool(const Match&, Refusal&)> predicate) {
  entries.push_back({std::nullopt, std::move(predicate)});
}

void Constraints::handles(llvm::ArrayRef<llvm::StringLiteral> attributes, std::string sentence) {
  check([attributes, sentence = std::move(sentence)](const Match& match, Refusal& refusal) {
    std::optional<MatchFailure> failure = unhandledAttribute(match.root(), attributes);
    return !failure || refusal.because([&] {
      return MatchFailure{ReasonCode::PatternMismatch, failure->node, sentence, failure->found, ""};
    });
  });
}

MatchFailure Constraints::unmet(const std::string& sentence, ReasonCode code, const Match& match) {
  return {code, nameForMessages(match.root()), sentence, "that it is not so", ""};
}

bool ConstraintChecker::check(const Constraints& constraints, Match& match, Refusal& refusal) {
  for (const Constraints::Entry& entry : constraints.entries) {
    bool holds =
        entry.shape ? unify(*entry.shape, match, refusal) : entry.predicate(match, refusal);
    if (!holds) {
      assert(refusal.isGiven() && "a constraint refused without a reason");
      return false;
    }
  }
  return true;
}

bool ConstraintChecker::unify(const Constraints::ShapeDemand& demand, Match& match,
                              Refusal& refusal) {
  const Value* value = match.find(*demand.var);
  if (!value)
    return true;
  const TensorType& type = value->type();
  auto refuse = [&](ReasonCode code, const std::string& expected, const std::string& found) {
    return refusal.because([&] {
      return MatchFailure{code, value->name().str(),
                          formatted("{} {}", demand.var->name(), expected), found, ""};
    });
  };
  if (!type.hasRank())
    return refuse(ReasonCode::DynamicRank, formatted("of rank {}", demand.extents.size()),
                  "unknown rank");
  if (type.rank() != demand.extents.size())
    return refuse(ReasonCode::ShapeMismatch, formatted("of rank {}", demand.extents.size()),
                  type.str());

  for (size_t axis = 0; axis < demand.extents.size(); ++axis) {
    const std::string& text = demand.extents[axis];
    Dim actual = type.shape()[axis];
    std::optional<Dim> formula = Dim::parse(text);
    assert(formula && "a shape constraint is a number, a name or an expression");
    // An unbound name takes this extent, known or not.
    if (*formula == Dim::symbol(text) && match.dim(text).isUnknown()) {
      bool isNew = true;
      for (const Match::Extent& extent : match.extents)
        isNew &= extent.symbol != text;
      if (isNew) {
        match.extents.push_back({text, actual});
        continue;
      }
    }
    Dim wanted = formula->substitute(
        [&](llvm::StringRef symbol) { return std::optional<Dim>(match.dim(symbol)); });
    if (wanted.isKnownEqual(actual))
      continue;
    bool unknown = wanted.isUnknown() || actual.isUnknown();
    return refuse(unknown ? ReasonCode::ShapeUnknown : ReasonCode::ShapeMismatch,
                  formatted("with {} = {} on axis {}", text, wanted.str(), axis), type.str());
  }
  return true;
}

} // namespace kvopt::pattern
