// Decoding: models that are opened, prepared for generation, and run.
#pragma once

#include "driver/generate/request.h"
#include "driver/toolkit.h"

#include <memory>

namespace kvopt::driver {

/// One request, processed in three steps. Before sessions are created, the caller can compare its
/// output paths with all opened files.
class Decoding {
public:
  /// Opens all models. The toolkit must outlive the decoding.
  static llvm::Expected<Decoding> open(GenerateRequest request, const Toolkit& toolkit);

  /// Creates the sessions and prepares them for generation.
  llvm::Error start();
  /// Runs the first steps of encoder-decoder models, then generates. Requires `start`.
  llvm::Expected<GenerationResult> run();

  GenerateRequest& request() { return asked; }
  /// The session that generates.
  const runtime::Session& session() const { return *main.session; }
  /// A sentence about guesses among the ways of driving the models that were not tested; empty if
  /// there are none. Requires `start`.
  std::string untested() const { return main.untested.empty() ? draft.untested : main.untested; }

private:
  /// A model and its session; both null if there is no draft.
  struct Driven {
    std::unique_ptr<ir::Model> model;
    ir::Manifest manifest;
    std::unique_ptr<runtime::Session> session;
    std::string untested; ///< see TestedManifest
  };

  Decoding(GenerateRequest request, const Toolkit& known)
      : asked(std::move(request)), toolkit(&known) {}
  std::vector<ir::InputRecipe> ownRecipes(const ir::Graph& graph) const;
  llvm::Error start(Driven& driven, const GeneratingModel& settings) const;
  llvm::Expected<int64_t> neededCapacity(const GeneratingModel& settings) const;
  llvm::Error computeFirst(const Driven& driven, const GeneratingModel& settings,
                           llvm::ArrayRef<ir::InputRecipe> recipes,
                           runtime::FeedOptions& feed) const;

  GenerateRequest asked;
  const Toolkit* toolkit;
  Driven main;
  Driven draft;
};

} // namespace kvopt::driver
