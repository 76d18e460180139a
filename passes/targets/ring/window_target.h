// WindowTarget: what targets have in common that keep no more rows than attention reads.
#pragma once

#include "passes/targets/target.h"

namespace kvopt::targets {

/// Serves attention whose caches become rings (ringSlots), and takes others beside it.
class WindowTarget : public Target {
public:
  bool takesSharedCaches() const override { return true; }
  bool changesPadding(const analysis::AttentionSite& site) const override;
  bool serves(const analysis::AttentionSite& site) const override;
  pattern::MatchFailure nothingToDo(const analysis::AttentionSite& site) const override;
};

} // namespace kvopt::targets
