// What both models of a check have in common.
#include "check/regions/aligned_models.h"

#include "check/regions/scope.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

AlignedModels::AlignedModels(Feeding& inputs, const RuleTable& table, std::vector<Step> scope,
                             unsigned seed, int64_t mostWork)
    : feeding(inputs), rules(table), steps(std::move(scope)), math(seed),
      classesBefore(inputs.before().model, digests), classesAfter(inputs.after().model, digests),
      shapes(inputs, table, classesBefore, digests, steps, math, forms),
      leaves(inputs, table, classesBefore, digests, shapes, steps, math, forms),
      stops(classesBefore, classesAfter, shapes, leaves) {
  math.mostWork = mostWork;
  math.mostInAll = Arithmetic::regions * mostWork;
  math.codeSteps = &feeding.cacheContents().pairs().codeSteps();
  if (const auto limit = lengthLimit(feeding.before(), feeding.after())) {
    math.thresholds.limitLengths();
    math.assumptions.insert("sequences have at most " + std::to_string(*limit) +
                            " tokens, for which the caches have room");
  }
  digests.readCopies(feeding.before().model, feeding.after().model);
  indexInputs();
  classesBefore.hashAll();
  classesAfter.hashAll();
  for (const auto& input : feeding.before().model.graph().inputs())
    if (std::string why = feeding.gapOfInput(false, *input); !why.empty())
      leaves.setDoubt(*input, why);
  collectDoubts(feeding.before().model.graph());
  stops.index(feeding.before().model, feeding.after().model);
}

/// Whether the first model has neither a rule nor a function for an operator.
bool AlignedModels::isUnruled(const ir::Node& node) const {
  return !node.is("If") && !feeding.before().model.findFunction(node) &&
         !rules.count(node.op().str());
}

void AlignedModels::collectDoubts(const ir::Graph& graph) {
  llvm::DenseMap<const ir::Function*, bool> functions; // whether a node of their body is unruled
  auto hasUnruled = [&](const ir::Node& node) {
    const ir::Function* function = feeding.before().model.findFunction(node);
    if (!function)
      return isUnruled(node);
    auto [at, isNew] = functions.try_emplace(function, false);
    if (isNew)
      at->second = llvm::any_of(function->body.nodes(),
                                [&](const ir::Node& inner) { return isUnruled(inner); });
    return at->second;
  };
  for (const ir::Node& node : graph.nodes()) {
    std::string why;
    auto take = [&](const ir::Value* value) {
      if (why.empty() && value)
        why = leaves.doubtOf(*value);
    };
    if (hasUnruled(node)) {
      why = node.describe() + " has no rule: its results are taken for numbers in the shapes that "
                              "the first model declares";
      if (firstDoubt.empty())
        firstDoubt = why;
    }
    for (const ir::Use& use : node.operands())
      take(use.value());
    for (const ir::Graph* inner : node.subgraphs()) {
      collectDoubts(*inner);
      for (const ir::Value* output : inner->outputs())
        take(output);
    }
    if (!why.empty())
      for (const ir::Value& result : node.results())
        leaves.setDoubt(result, why);
  }
}

bool AlignedModels::isSameInput(const ir::Value& before, const ir::Value& after) {
  const CacheInput* first = feeding.cacheInput(false, before);
  const CacheInput* second = feeding.cacheInput(true, after);
  if (first || second) // both have one name, so that rows that no token wrote are the same numbers
    return first && second && second->history && first->history->past == second->history->past &&
           (!second->pair || second->pair->content == RowContent::Numbers) &&
           shapes.placesOf(*first) == shapes.placesOf(*second) &&
           !llvm::is_contained(*shapes.placesOf(*first), nullptr);
  return llvm::all_of(steps, [&](const Step& step) {
    const Ref a = feeding.beforeInput(before, step, math);
    const Ref b = feeding.afterInput(after, step, math);
    return a && b && a->shape == b->shape && a->kind == b->kind && a->integers == b->integers &&
           a->known == b->known &&
           std::equal(a->reals.begin(), a->reals.end(), b->reals.begin(), b->reals.end(),
                      [](const Exact& x, const Exact& y) { return x.isEqual(y); });
  });
}

/// Inputs with the same contents in all steps have one class.
void AlignedModels::indexInputs() {
  for (const auto& input : feeding.after().model.graph().inputs()) {
    const ir::Value* twin = feeding.before().model.graph().findValue(input->name());
    if (!twin || !twin->isGraphInput() || !isSameInput(*twin, *input))
      classesAfter.setInput(*input,
                            classOf("input of the second model", {}, {nameHash(input->name())}));
  }
}

} // namespace kvopt::check
