// Recovery: from a model file to its attention sites.
#pragma once

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

/// A model in which attention has been raised, with its sites.
struct RecoveredModel {
  std::unique_ptr<ir::Model> model;
  std::unique_ptr<passes::PassContext> context;
  /// The model's operator sets, as the file imports them.
  std::map<std::string, int64_t> opsets;
  /// The version of ONNX's own.
  int64_t opset = 0;
  std::vector<passes::PassTiming> timings;
  /// Of a model whose caches kvopt drives, the target that it was written for; empty otherwise.
  std::string writtenFor;
};

struct RecoveryOptions {
  /// Where near misses go; null when nobody listens.
  pattern::NearMissList* nearMisses = nullptr;
  pattern::MatcherOptions matcher;
  /// Rules and passes to leave out.
  std::vector<std::string> disabled;
  /// Whether a model that kvopt wrote is recovered from what a rewrite for another target would
  /// start with, where it can: with caches that grow.
  bool restoresCaches = false;
  /// Adds passes that come first; null for none.
  std::function<void(passes::PassManager& manager)> addBefore;
};

/// Where a model is read from: the file at `path`, or `bytes`.
struct ModelSource {
  std::string path;
  /// A serialized ModelProto; null for a file.
  std::shared_ptr<const std::string> bytes;
  /// Folder of the external data that `bytes` name; nullopt: they must not name any.
  std::optional<ConfinedFolder> folder;

  ModelSource() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a file is its path
  ModelSource(std::string filePath) : path(std::move(filePath)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a file is its path
  ModelSource(const char* filePath) : path(filePath) {}
};

/// Imports a model and checks the manifest in its metadata, and that its external data is in the
/// model's folder, without reading any. Registers every file that the model consists of in
/// `toolkit.files`, and fails where one is a declared output; a file that cannot be imported, too.
llvm::Expected<std::unique_ptr<ir::Model>> openModel(const ModelSource& source,
                                                     const Toolkit& toolkit);

/// Opens a model and runs the recovery.
llvm::Expected<RecoveredModel> recoverModel(const ModelSource& source, const Toolkit& toolkit,
                                            const RecoveryOptions& options = {});

/// Runs the recovery on a copy of the model.
llvm::Expected<RecoveredModel> recoverCopy(const ir::Model& model, const Toolkit& toolkit,
                                           const RecoveryOptions& options = {});

/// Listens to the rules that raise attention, and to those named.
pattern::NearMissList listenToRaising(const Toolkit& toolkit, std::vector<std::string> more = {});

/// Keeps the named rules and passes from being applied; fails for a name that is neither.
llvm::Error disable(llvm::ArrayRef<std::string> names, const Toolkit& toolkit,
                    passes::PassContext& context, passes::PassManagerOptions& settings);

/// What positions do to the cached rows of a recovered model; nullopt, and
/// PassContext::shiftFailure says why, where rows cannot be moved to other positions.
std::optional<analysis::ContextRotations> contextRotationsOf(const RecoveredModel& recovered);

/// How to drive the model: its own manifest, or, for one that kvopt did not write, the growing
/// contract of the caches found in it.
llvm::Expected<ir::Manifest> drivingManifest(const ir::Model& model, const Toolkit& toolkit);

} // namespace kvopt::driver
