// The steps of a reduction, repeated until none removes anything.
#include "driver/reduce/reduce.h"

#include "driver/reduce/anonymous.h"
#include "driver/reduce/candidates.h"
#include "driver/reduce/chunks.h"
#include "driver/reduce/constant_edits.h"
#include "driver/reduce/node_edits.h"
#include "driver/reduce/part_edits.h"
#include "passes/pass_manager.h"
#include "support/progress.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;

namespace {

/// Initializers of fewer bytes may be extents and indices that operators need.
constexpr int64_t leastWeightBytes = 256;

/// Reduction of one model.
class Reduction {
public:
  Reduction(const Toolkit& kit, Candidates& smallest) : toolkit(kit), candidates(smallest) {}

  llvm::Error run(bool isAnonymous);
  std::vector<ReductionStep> takeSteps() { return std::move(steps); }

private:
  using Trial = llvm::function_ref<bool(Model&, llvm::ArrayRef<std::string>)>;

  /// Removes items of a list in chunks. `trial` edits a copy of the model.
  llvm::Error reduceList(llvm::StringRef step, std::vector<std::string> items, size_t largest,
                         Trial trial);
  /// Tries one edit.
  llvm::Error tryOnce(llvm::StringRef step, CandidateEdit edit);

  llvm::Error removeManifest();
  llvm::Error reduceOutputs();
  llvm::Error reduceWeights();
  llvm::Error reduceNodes();
  llvm::Error reduceNested();
  llvm::Error reduceParts();
  llvm::Error reduceExtents();
  llvm::Error removeOrigin();

  ReductionStep& stepNamed(llvm::StringRef name);
  /// Counts the candidates since `before`, and whether one was accepted.
  void count(llvm::StringRef step, size_t before, bool isAccepted);

  const Toolkit& toolkit;
  Candidates& candidates;
  std::vector<ReductionStep> steps;
  size_t accepted = 0;
};

ReductionStep& Reduction::stepNamed(llvm::StringRef name) {
  auto found = llvm::find_if(steps, [&](const ReductionStep& step) { return name == step.name; });
  if (found != steps.end())
    return *found;
  steps.push_back({name.str(), 0, 0});
  return steps.back();
}

void Reduction::count(llvm::StringRef step, size_t before, bool isAccepted) {
  ReductionStep& counted = stepNamed(step);
  counted.candidates += candidates.count() - before;
  counted.accepted += isAccepted ? 1 : 0;
  accepted += isAccepted ? 1 : 0;
}

llvm::Error Reduction::reduceList(llvm::StringRef step, std::vector<std::string> items,
                                  size_t largest, Trial trial) {
  if (items.empty())
    return llvm::Error::success();
  Progress progress(toolkit.progress, ("reducing " + step).str());
  auto remaining = removeInChunks(
      std::move(items), largest, [&](llvm::ArrayRef<std::string> chunk) -> llvm::Expected<bool> {
        const size_t before = candidates.count();
        auto removed = candidates.attempt([&](Model& model) { return trial(model, chunk); });
        if (!removed)
          return removed;
        count(step, before, *removed);
        progress.advance(1);
        return removed;
      });
  return remaining ? llvm::Error::success() : remaining.takeError();
}

llvm::Error Reduction::tryOnce(llvm::StringRef step, CandidateEdit edit) {
  const size_t before = candidates.count();
  auto removed = candidates.attempt(edit);
  if (!removed)
    return removed.takeError();
  count(step, before, *removed);
  return llvm::Error::success();
}

llvm::Error Reduction::removeManifest() {
  if (candidates.hasManifest()) {
    const size_t before = candidates.count();
    auto removed = candidates.attemptWithoutManifest();
    if (!removed)
      return removed.takeError();
    count("manifest", before, *removed);
  }
  const size_t before = candidates.count();
  auto removed = candidates.attemptWithoutDeadNodes();
  if (!removed)
    return removed.takeError();
  count("unread nodes", before, *removed);
  return reduceList("metadata", metadataKeys(candidates.best()), SIZE_MAX, removeMetadata);
}

llvm::Error Reduction::reduceOutputs() {
  return reduceList("outputs", outputNames(candidates.best().graph()), SIZE_MAX,
                    [](Model& model, llvm::ArrayRef<std::string> names) {
                      return removeOutputs(model.graph(), names);
                    });
}

llvm::Error Reduction::reduceWeights() {
  if (llvm::Error error =
          reduceList("weights", initializerNames(candidates.best().graph(), leastWeightBytes),
                     SIZE_MAX, [](Model& model, llvm::ArrayRef<std::string> names) {
                       return turnIntoInputs(model.graph(), names);
                     }))
    return error;
  for (Contents contents : {Contents::Scalar, Contents::Zeros})
    if (llvm::Error error =
            reduceList("contents", initializerNames(candidates.best().graph(), leastWeightBytes),
                       SIZE_MAX, [&](Model& model, llvm::ArrayRef<std::string> names) {
                         return simplify(model.graph(), names, contents);
                       }))
      return error;
  return llvm::Error::success();
}

llvm::Error Reduction::reduceNodes() {
  struct Kind {
    Replacement replacement;
    bool keepsOperands;
  };
  // Each end of a chunk can become an input or an output, which isolates any part of the model.
  for (const Kind kind : {Kind{Replacement::Input, true}, Kind{Replacement::Input, false},
                          Kind{Replacement::Operand, false}}) {
    const std::vector<std::string> names = nodeNames(candidates.best().graph());
    if (llvm::Error error = reduceList("nodes", names, (names.size() + 1) / 2,
                                       [&](Model& model, llvm::ArrayRef<std::string> chunk) {
                                         return removeNodes(model.graph(), chunk, kind.replacement,
                                                            kind.keepsOperands);
                                       }))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error Reduction::reduceNested() {
  if (!candidates.best().functions.empty())
    if (llvm::Error error = tryOnce("functions", [&](Model& model) {
          passes::PassContext context(toolkit.rules, toolkit.targets);
          passes::PassManager manager(toolkit.passes, {});
          manager.addNamed({"inline-functions"});
          llvm::Error failed = manager.run(model, context);
          const bool isInlined = !failed;
          llvm::consumeError(std::move(failed));
          return isInlined;
        }))
      return error;
  for (const std::string& name : nodeNames(candidates.best().graph()))
    for (unsigned branch = 0; branch < 2; ++branch) {
      const Value* value = candidates.best().graph().findValue(name);
      if (!value || !value->producer() || branch >= value->producer()->subgraphs().size())
        break;
      if (llvm::Error error = tryOnce(
              "branches", [&](Model& model) { return takeBranch(model.graph(), name, branch); }))
        return error;
    }
  // Keys are numbers, which change with every removal.
  for (size_t index = nestedNodeKeys(candidates.best()).size(); index-- > 0;) {
    const std::vector<std::string> keys = nestedNodeKeys(candidates.best());
    if (index >= keys.size())
      continue;
    if (llvm::Error error = tryOnce(
            "nested nodes", [&](Model& model) { return removeNestedNodes(model, keys[index]); }))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error Reduction::reduceParts() {
  struct Part {
    const char* step;
    std::vector<std::string> (*list)(const Graph&);
    bool (*remove)(Graph&, llvm::ArrayRef<std::string>);
  };
  for (const Part& part :
       {Part{"attributes", attributeKeys, removeAttributes},
        Part{"operands", operandKeys, removeOperands}, Part{"inputs", unreadInputs, removeInputs}})
    if (llvm::Error error = reduceList(part.step, part.list(candidates.best().graph()), SIZE_MAX,
                                       [&](Model& model, llvm::ArrayRef<std::string> keys) {
                                         return part.remove(model.graph(), keys);
                                       }))
      return error;
  return llvm::Error::success();
}

llvm::Error Reduction::reduceExtents() {
  for (int64_t extent : fixedExtents(candidates.best().graph()))
    for (int64_t smaller : {int64_t{1}, int64_t{2}, extent / 2}) {
      const bool isNew = smaller < extent && (smaller <= 2 || extent > 4);
      if (!isNew || !llvm::is_contained(fixedExtents(candidates.best().graph()), extent))
        continue;
      if (llvm::Error error = tryOnce(
              "extents", [&](Model& model) { return scaleExtents(model, extent, smaller); }))
        return error;
    }
  return llvm::Error::success();
}

llvm::Error Reduction::removeOrigin() {
  if (llvm::Error error = tryOnce("remarks", removeRemarks))
    return error;
  if (llvm::Error error = reduceList("names", valueNames(candidates.best().graph()), SIZE_MAX,
                                     [](Model& model, llvm::ArrayRef<std::string> names) {
                                       return renameValues(model.graph(), names);
                                     }))
    return error;
  if (llvm::Error error = tryOnce("symbols", renameSymbols))
    return error;
  return reduceList("values", initializerNames(candidates.best().graph(), 0), SIZE_MAX,
                    [](Model& model, llvm::ArrayRef<std::string> names) {
                      return simplify(model.graph(), names, Contents::Zeros);
                    });
}

llvm::Error Reduction::run(bool isAnonymous) {
  if (llvm::Error error = removeManifest())
    return error;
  for (size_t before = SIZE_MAX; before != accepted;) {
    before = accepted;
    for (auto step : {&Reduction::reduceOutputs, &Reduction::reduceWeights, &Reduction::reduceNodes,
                      &Reduction::reduceNested, &Reduction::reduceParts, &Reduction::reduceExtents})
      if (llvm::Error error = (this->*step)())
        return error;
  }
  return isAnonymous ? removeOrigin() : llvm::Error::success();
}

} // namespace

size_t ReducedModel::candidates() const {
  size_t count = 0;
  for (const ReductionStep& step : steps)
    count += step.candidates;
  return count;
}

llvm::Expected<ReducedModel> reduce(const ReduceRequest& request, const Toolkit& toolkit) {
  const auto start = std::chrono::steady_clock::now();
  auto candidates = Candidates::create(request, toolkit);
  if (!candidates)
    return candidates.takeError();
  ReducedModel result;
  result.exitCode = candidates->exitCode();
  result.before = candidates->size();
  Reduction reduction(toolkit, *candidates);
  if (llvm::Error error = reduction.run(request.isAnonymous))
    return error;
  if (llvm::Error error = candidates->writeOutput())
    return error;
  result.after = candidates->size();
  result.steps = reduction.takeSteps();
  result.hasManifest = candidates->hasManifest();
  result.hasData = candidates->hasData();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace kvopt::driver
