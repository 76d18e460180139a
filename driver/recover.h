// Recovery of attention layers from a model file.
#pragma once

#include "driver/model_source.h"
#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "passes/pass_manager.h"
#include "passes/pass_names.h"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace kvopt::driver {

inline constexpr auto readingText = passes::joinNames<passes::readingPasses>();
/// `passes::readingPasses` as a pipeline text.
inline constexpr const char* readingPipeline = readingText.data();

inline constexpr auto recoveryText = passes::joinNames<passes::recoveryPasses>();
/// `passes::recoveryPasses` as a pipeline text.
inline constexpr const char* recoveryPipeline = recoveryText.data();

/// A model in which attention has been raised, and its attention layers.
struct RecoveredModel {
  std::unique_ptr<ir::Model> model;
  std::unique_ptr<passes::PassContext> context;
  /// Versions of the operator sets that the file imports, by domain.
  std::map<std::string, int64_t> opsets;
  /// Version of ONNX's own operator set.
  int64_t opset = 0;
  std::vector<passes::PassTiming> timings;
  /// For a model whose caches kvopt manages, the target for which it was written; empty otherwise.
  std::string writtenFor;
  /// The comparison with the model before a rewrite that the model's manifest claims.
  std::optional<ir::ManifestComparison> comparison;
};

struct RecoveryOptions {
  /// Receives near misses; null if they are not needed.
  pattern::NearMissList* nearMisses = nullptr;
  pattern::MatcherOptions matcher;
  /// Rules and passes to omit.
  std::vector<std::string> disabled;
  /// Whether a model that kvopt wrote is first converted, if possible, to growing caches, with
  /// which a rewrite for another target starts.
  bool restoresCaches = false;
  /// Adds passes before all others; null for none.
  std::function<void(passes::PassManager& manager)> addBefore;
};

/// Imports a model. Checks the manifest in its metadata, and that its external data, which is not
/// read, is in the model's folder. Registers every file of the model in `toolkit.files`, even if
/// the model cannot be imported, and fails if one of them is a declared output.
llvm::Expected<std::unique_ptr<ir::Model>> openModel(const ModelSource& source,
                                                     const Toolkit& toolkit);

/// Opens a model and runs the recovery.
llvm::Expected<RecoveredModel> recoverModel(const ModelSource& source, const Toolkit& toolkit,
                                            const RecoveryOptions& options = {});

/// Runs recovery on a copy of the model.
llvm::Expected<RecoveredModel> recoverCopy(const ir::Model& model, const Toolkit& toolkit,
                                           const RecoveryOptions& options = {});

/// Collects near misses of the rules that raise attention, and of those in `more`.
pattern::NearMissList listenToRaising(const Toolkit& toolkit, std::vector<std::string> more = {});

/// Disables the named rules and passes; fails for an unknown name.
llvm::Error disable(llvm::ArrayRef<std::string> names, const Toolkit& toolkit,
                    passes::PassContext& context, passes::PassManagerOptions& settings);

/// Effect of positions on the cached rows of a recovered model; nullopt if rows cannot be moved to
/// other positions. PassContext::shiftFailure then has the reason.
std::optional<analysis::ContextRotations> contextRotationsOf(const RecoveredModel& recovered);

/// Whether a manifest says how positions affect cached rows, which reads constants.
enum class Rotations { Included, LeftOut };

/// Description of how to drive a recovered model that kvopt did not write: its caches, and the
/// roles of its inputs as far as the graph shows them.
ir::Manifest derivedManifest(RecoveredModel& recovered, Rotations rotations);

/// Description of how to drive the model: its own manifest or, for a model that kvopt did not
/// write, the derived one. No run has tested it; see testedManifest (driver/roles/driving.h).
llvm::Expected<ir::Manifest> drivingManifest(const ir::Model& model, const Toolkit& toolkit,
                                             Rotations rotations = Rotations::Included);

} // namespace kvopt::driver
