// Decoding: models opened, brought to where generation starts, and run.
#pragma once

#include "driver/generate/request.h"
#include "driver/toolkit.h"

#include <memory>

namespace kvopt::driver {

/// One request, in three parts: the caller compares its outputs with all files that were opened
/// before sessions are made.
class Decoding {
public:
  /// Opens all models. The toolkit must outlive the decoding.
  static llvm::Expected<Decoding> open(GenerateRequest request, const Toolkit& toolkit);

  /// Makes the sessions, and brings them to where generation starts.
  llvm::Error start();
  /// Computes what encoder-decoder models compute once, and generates. Requires that sessions were
  /// started.
  llvm::Expected<GenerationResult> run();

  GenerateRequest& request() { return asked; }
  /// The session that generates.
  const runtime::Session& session() const { return *main.session; }

private:
  /// A model with a session of it; both null for a draft that is not there.
  struct Driven {
    std::unique_ptr<ir::Model> model;
    ir::Manifest manifest;
    std::unique_ptr<runtime::Session> session;
  };

  Decoding(GenerateRequest request, const Toolkit& known)
      : asked(std::move(request)), toolkit(&known) {}
  llvm::Error start(Driven& driven, const GeneratingModel& settings) const;
  llvm::Expected<int64_t> neededCapacity(const GeneratingModel& settings) const;
  llvm::Error computeFirst(const Driven& driven, const GeneratingModel& settings,
                           llvm::ArrayRef<runtime::InputRecipe> recipes,
                           runtime::FeedOptions& feed) const;

  GenerateRequest asked;
  const Toolkit* toolkit;
  Driven main;
  Driven draft;
};

} // namespace kvopt::driver
