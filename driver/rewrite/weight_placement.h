// Where a written model has the weights that its source has in external files.
#pragma once

#include "ir/onnx/external_data.h"

namespace kvopt::driver {

enum class WeightPlacement {
  Keep, ///< They stay where they are. Files that the output cannot refer to are copied next to it.
  Link, ///< The same with hard links instead of copies.
  Copy, ///< Those that the model uses are copied to one file next to it.
  Inline, ///< They become part of the model's file.
};

/// The placement for the writer of a model, which does not move the files of Keep and Link.
inline ir::ExternalPlacement exported(WeightPlacement placement) {
  switch (placement) {
  case WeightPlacement::Copy:
    return ir::ExternalPlacement::Copy;
  case WeightPlacement::Inline:
    return ir::ExternalPlacement::Inline;
  case WeightPlacement::Keep:
  case WeightPlacement::Link:
    break;
  }
  return ir::ExternalPlacement::Keep;
}

/// Adds --external-data. `Options` adds variables to the command line's parser or to an
/// OptionReader.
template <class Options> void addPlacementOption(Options& add, WeightPlacement& placement) {
  add.add("--external-data", placement,
          {{"keep", WeightPlacement::Keep},
           {"link", WeightPlacement::Link},
           {"copy", WeightPlacement::Copy},
           {"inline", WeightPlacement::Inline}});
}

} // namespace kvopt::driver
