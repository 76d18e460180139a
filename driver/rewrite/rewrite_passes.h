// Passes of a rewrite.
#pragma once

#include "driver/rewrite/request.h"
#include "passes/pass_manager.h"
#include "passes/transforms/configured_passes.h"

#include <optional>

namespace kvopt::driver {

/// The form with standard operators and growing caches.
inline constexpr Form plainForm{Engine::Primitive, CacheKind::Grow, RowKind::Same, false,
                                SplitKind::None,   std::nullopt};

/// Adds the passes that recover the model and lower it to the target. `freed`: extents that become
/// symbols first; nullopt for none. `see` is called with the recovered model, before its caches are
/// changed for the form.
void addRewritePasses(passes::PassManager& manager, const RewriteRequest& request,
                      const targets::TargetChoice& target,
                      std::optional<transforms::FreedAxes> freed,
                      std::function<void(const ir::Model& recovered)> see);

/// Adds the passes that keep only the computation for an encoded sequence. `plain` is the target of
/// `plainForm`.
void addFirstStepPasses(passes::PassManager& manager, const RewriteRequest& request,
                        const targets::Target& plain);

} // namespace kvopt::driver
