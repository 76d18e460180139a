// A session of a model, fed by what its inputs are called, without a manifest.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "tests/generated/decoder_graph.h"

#include <string>
#include <vector>

namespace kvopt::generated {

/// Numbers of a tensor, with its name and extents.
struct RecordedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> numbers;
};

/// What a session computed.
struct RecordedRun {
  std::vector<RecordedTensor> logits; ///< of each step
  std::vector<RecordedTensor> caches; ///< after the last step, by the names of the pasts
  std::string failure;                ///< why the session ended early; empty where it did not
};

/// Runs the decoder as it was built: each step's presents are the next one's pasts.
RecordedRun runAsBuilt(const ir::Model& model, const driver::Toolkit& toolkit);

/// Runs a model as its manifest says, with the same tokens.
RecordedRun runByManifest(const ir::Model& model, const ir::Manifest& manifest,
                          const driver::Toolkit& toolkit);

/// Where the two differ by more than rounding; empty where they do not.
std::string differenceOf(const RecordedRun& expected, const RecordedRun& found);

} // namespace kvopt::generated
