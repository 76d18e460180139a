// Passes of a request in their order.
#include "driver/rewrite/rewrite_passes.h"

#include "driver/recover.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace targets;
using namespace transforms;

namespace {

/// Adds the passes that find attention layers with their masks.
void addPreparation(PassManager& manager, const RewriteRequest& request,
                    std::optional<FreedAxes> freed) {
  if (freed) {
    manager.addNamed(readingPasses);
    manager.add("free-extents", makeFreeExtents(*freed));
  } else {
    manager.addNamed({"restore-caches"});
  }
  if (request.oneBranch) {
    manager.addNamed(recoveryPasses);
    manager.add("specialise-branch", makeBranchWithPast());
  }
  manager.addNamed(recoveryPasses);
  if (request.padding == PaddedRows::None) {
    manager.addNamed({"assume-no-padding"});
    manager.add("prove-masks", makeProveMasks({.neverPadded = true}));
    manager.addNamed({"detect-sites"});
  }
  // A model that receives caches has fewer keys than before: padding cannot average over all of
  // them.
  if (request.addCaches || request.hiddenRows == HiddenRows::Undefined) {
    manager.add("prove-masks", makeProveMasks({.hiddenRowsUndefined = true}));
    manager.addNamed({"detect-sites"});
  }
  if (freed)
    manager.addNamed({"prove-extents", "detect-sites"});
}

/// Shows the recovered model to a function.
class SeeRecovered final : public Pass {
public:
  explicit SeeRecovered(std::function<void(const Model& recovered)> seeing)
      : see(std::move(seeing)) {}

  llvm::Error run(Model& model, PassContext&) override {
    see(model);
    return llvm::Error::success();
  }

private:
  std::function<void(const Model& recovered)> see;
};

} // namespace

void addRewritePasses(PassManager& manager, const RewriteRequest& request,
                      const TargetChoice& target, std::optional<FreedAxes> freed,
                      std::function<void(const Model& recovered)> see) {
  addPreparation(manager, request, freed);
  if (request.addCaches)
    manager.addNamed({"add-caches", "detect-sites"});
  manager.add("see-recovered", std::make_unique<SeeRecovered>(std::move(see)));
  // Caches are compressed before rows are rounded and before lowering.
  const bool roundsRows = request.form.roundsRows();
  if (request.form.isLatent && (!target.target->compressesCaches() || roundsRows))
    manager.addNamed({"compress-caches", "detect-sites"});
  if (roundsRows) {
    manager.add("narrow-caches",
                makeNarrowCaches(request.form.rows == RowKind::Float16 ? ElementType::Float16
                                                                       : ElementType::BFloat16));
    manager.addNamed({"detect-sites"});
  }
  LowerRequest lower;
  lower.target = target.target;
  lower.options = {request.capacity, request.layers, target.size, request.tileState};
  lower.requiresAll = request.require == LayerRequirement::All;
  manager.add("lower", makeLower(std::move(lower)));
  if (request.computesPastLength)
    manager.addNamed({"compute-past-length"});
  manager.addNamed({"eliminate-dead-nodes"});
  manager.addNamed(target.target->finishingPasses());
}

void addFirstStepPasses(PassManager& manager, const RewriteRequest& request, const Target& plain) {
  addPreparation(manager, request, std::nullopt);
  manager.add("add-caches", makeAddCaches(CachedPart::FirstStep));
  manager.addNamed({"detect-sites"});
  LowerRequest lower;
  lower.target = &plain;
  manager.add("lower", makeLower(std::move(lower)));
  manager.addNamed({"eliminate-dead-nodes"});
}

} // namespace kvopt::driver
