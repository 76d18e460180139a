// Evaluation of nodes in all steps at once.
#include "check/regions/shapes.h"

#include "ir/graph.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

const Form* Shapes::placesOf(const CacheInput& input) {
  auto [at, isNew] = places.try_emplace(input.form, nullptr);
  if (isNew) {
    Form all;
    for (const Step& step : steps)
      all.push_back(feeding.cachePlaces(input, step));
    at->second = forms.form(all);
  }
  return at->second;
}

/// A weight without its numbers.
Ref Shapes::ofWeight(const ir::TensorData& data) {
  return hollowTensor(Extents(data.shape().begin(), data.shape().end()), digests.hasInfinite(data),
                      data.elementType());
}

/// Values that need no other value. False if the value is a result to be computed.
bool Shapes::settle(const ir::Value& value) {
  Form all(steps.size());
  const auto data = value.constantRef();
  if (data && isWeightData(*data)) {
    all.assign(steps.size(), ofWeight(*data));
  } else if (value.isGraphInput()) {
    if (const CacheInput* cache = feeding.cacheInput(false, value)) {
      const Form& rows = *placesOf(*cache);
      for (size_t i = 0; i < all.size(); ++i)
        all[i] = rows[i] ? hollowTensor(rows[i]->shape, false, ir::ElementType::Float,
                                        feeding.extentGrowths(false, value, steps[i], math))
                         : nullptr;
    } else {
      for (size_t i = 0; i < all.size(); ++i)
        all[i] = hollowed(feeding.beforeInput(value, steps[i], math));
    }
  } else if (value.isInitializer() && value.initializer()) {
    all.assign(steps.size(), tensorOf(*value.initializer()));
  } else if (value.producer()) {
    return false;
  }
  known[&value] = forms.form(all);
  return true;
}

const Form* Shapes::of(const ir::Value& root) {
  llvm::SmallVector<const ir::Value*, 32> pending{&root};
  while (!pending.empty()) {
    const ir::Value& value = *pending.back();
    if (known.count(&value) || settle(value)) {
      pending.pop_back();
      continue;
    }
    const ir::Node& node = *value.producer();
    const size_t before = pending.size();
    for (const ir::Use& use : node.operands())
      if (use.value() && !known.count(use.value()))
        pending.push_back(use.value());
    if (!node.subgraphs().empty())
      for (const ir::Value* captured : ir::capturedValues(node))
        if (!known.count(captured))
          pending.push_back(captured);
    if (pending.size() == before)
      run(node);
  }
  return known.lookup(&root);
}

/// Everything that the results of a node depend on; empty if that is not known.
Key Shapes::keyOf(const ir::Node& node) {
  if (!node.subgraphs().empty() ||
      (!rules.count(node.op().str()) && !feeding.before().model.findFunction(node)))
    return {};
  Key key = classes.identityOf(node);
  for (const ir::Use& use : node.operands())
    key.push_back(use.value() ? addressOf(known.lookup(use.value())) : 0);
  return key;
}

Ref Shapes::withPattern(size_t step, const ir::Value& value, Ref contents) {
  const Form* patterns = comparedAs(classes.of(value));
  if (!contents || !contents->isReal() || !patterns)
    return contents;
  return hollowTensor(contents->shape, (*patterns)[step] != nullptr, contents->type,
                      contents->extentGrowths);
}

/// An evaluation that takes the values that are known already.
Evaluation Shapes::evaluationOf(size_t step) {
  Evaluation::Hooks hooks;
  hooks.input = [this, step](const ir::Value& input) {
    return hollowed(feeding.beforeInput(input, steps[step], math));
  };
  hooks.given = [this, step](const ir::Value& value) -> Ref {
    auto found = known.find(&value);
    if (found != known.end())
      return (*found->second)[step];
    const auto data = value.constantRef();
    if (!data || !isWeightData(*data))
      return nullptr;
    return ofWeight(*data);
  };
  hooks.unruled = [this, step](const ir::Value& value) { return declared(step, value); };
  return Evaluation(feeding.before().model, rules, math, hooks);
}

Shapes::Evaluated Shapes::evaluate(const ir::Node& node) {
  std::vector<Form> all(node.results().size(), Form(steps.size()));
  const NotesApart notes(math);
  math.isOfShapes = true;
  for (size_t step = 0; step < steps.size(); ++step) {
    const bool isFed = llvm::all_of(node.operands(), [&](const ir::Use& use) {
      return !use.value() || (*known.lookup(use.value()))[step];
    });
    if (!isFed)
      continue;
    enter(math.thresholds, steps[step]);
    Evaluation evaluation = evaluationOf(step);
    for (size_t i = 0; i < all.size(); ++i)
      if (!node.result(unsigned(i)).isAbsent())
        all[i][step] = evaluation.evaluate(node.result(unsigned(i)));
  }
  math.isOfShapes = false;
  Evaluated evaluated;
  for (const Form& form : all)
    evaluated.forms.push_back(forms.form(form));
  evaluated.gap = notes.gap();
  evaluated.unread = notes.unread();
  return evaluated;
}

void Shapes::run(const ir::Node& node) {
  const Key key = keyOf(node);
  Evaluated evaluated;
  if (auto earlier = results.find(key); !key.empty() && earlier != results.end()) {
    evaluated = earlier->second;
  } else {
    evaluated = evaluate(node);
    if (!key.empty())
      results.emplace(key, evaluated);
  }
  std::vector<const Form*>& found = evaluated.forms;
  for (size_t i = 0; i < found.size(); ++i) {
    const ir::Value& result = node.result(unsigned(i));
    if (result.isAbsent())
      continue;
    if (comparedAs(classes.of(result))) {
      Form own = *found[i];
      for (size_t step = 0; step < own.size(); ++step)
        own[step] = withPattern(step, result, own[step]);
      found[i] = forms.form(own);
    }
    known[&result] = found[i];
  }
  gaps.add(node, {evaluated.gap, evaluated.unread},
           [&](const ir::Value& value) { return known.lookup(&value); });
}

bool Shapes::accepts(size_t step) {
  if (!accepted[step]) {
    const NotesApart notes(math);
    Evaluation whole = evaluationOf(step);
    accepted[step] =
        llvm::all_of(feeding.before().model.graph().outputs(), [&](const ir::Value* output) {
          return whole.evaluate(*output) || !whole.isInvalid();
        });
  }
  return *accepted[step];
}

Ref Shapes::declared(size_t step, const ir::Value& value) {
  if (!value.type().hasRank() || !ir::isFloatingPoint(value.type().elementType()))
    return nullptr;
  Extents shape;
  llvm::SmallVector<GrowthId, 4> growths;
  for (const ir::Dim& dim : value.type().shape()) {
    auto extent = feeding.extentOf(dim, steps[step]);
    if (!extent)
      return nullptr;
    shape.push_back(*extent);
    growths.push_back(feeding.growthOf(dim, steps[step], math));
  }
  math.assumptions.insert("results of operators without a rule are numbers, in the shapes that the "
                          "first model declares");
  return hollowTensor(shape, false, value.type().elementType(), growths);
}

} // namespace kvopt::check
