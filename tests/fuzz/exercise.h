// What every fuzzed model goes through once it was read: verifier, shape inference, recovery,
// lowering, export and import.
#pragma once

#include "driver/recover.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/text/printer.h"
#include "ir/verify/model_gate.h"
#include "ir/verify/verifier.h"
#include "support/diagnostic.h"

#include <cstdio>
#include <cstdlib>

namespace kvopt::fuzz {

/// What models are read and rewritten with; made once.
inline const driver::Toolkit& toolkit() {
  static const driver::Toolkit made;
  return made;
}

/// A refusal is an answer, but it must say something.
inline void refused(llvm::Error error) {
  if (takeDiagnostic(std::move(error)).message.empty()) {
    std::fputs("a refusal without a message\n", stderr);
    std::abort();
  }
}

/// For what must not fail once everything before it went through.
inline void mustHold(llvm::Error error, const char* what) {
  if (!error)
    return;
  std::fprintf(stderr, "%s: %s\n", what, takeDiagnostic(std::move(error)).str().c_str());
  std::abort();
}

/// Expanding functions to the usual limit takes seconds, which other inputs are worth more.
inline constexpr ir::ModelLimits limits{5000};

inline std::span<const std::byte> asBytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// Whatever a model that was read goes through either refuses it with a message, or leaves a model
/// that the verifier accepts and that can be written and read again.
inline void exerciseModel(ir::Model& model) {
  if (llvm::Error error = ir::verify(model))
    return refused(std::move(error));
  if (auto manifest = ir::manifestOf(model); !manifest)
    refused(manifest.takeError());
  ir::PrintOptions print;
  print.maxTensorElements = 64;
  print.types = print.declareTypes = true;
  printText(model, print);

  passes::PassContext context(toolkit().rules, toolkit().targets);
  pattern::NearMissList nearMisses;
  context.nearMisses = &nearMisses;
  passes::PassManagerOptions options;
  options.verifyEach = false; // what a pass leaves is verified below: it may not be refused
  for (const char* pipeline :
       {driver::recoveryPipeline, "lower{to=kvopt require=any}", "eliminate-dead-nodes"}) {
    passes::PassManager manager(toolkit().passes, options);
    mustHold(manager.addPipeline(pipeline), "the pipeline");
    llvm::Error error = manager.run(model, context);
    mustHold(ir::verify(model), pipeline);
    if (error)
      return refused(std::move(error));
  }

  auto bytes = ir::exportModelBytes(model);
  if (!bytes)
    return refused(bytes.takeError());
  auto again = ir::importModelBytes(asBytes(*bytes), "", toolkit().ops, limits);
  if (!again)
    return mustHold(again.takeError(), "what was written cannot be read");
  mustHold(ir::verify(**again), "what was written");
}

} // namespace kvopt::fuzz
