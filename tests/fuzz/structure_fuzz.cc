// Structural changes to decoders of every form. The bytes choose the decoder and the changes. A
// changed file is refused with a message, or everything that takes models apart, rewrites them, and
// compares them accepts it or refuses it with a message.
#include "driver/verify/verification.h"
#include "ir/shapes/shape_inference.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"
#include "tests/fuzz/structural_change.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvopt;
  constexpr size_t mostChanges = 4;
  fuzz::Choices choices({data, size});
  const fuzz::Decoder& decoder = fuzz::decoders()[choices.below(fuzz::decoders().size())];
  std::unique_ptr<ir::Model> copy = fuzz::copyOf(*decoder.model);
  fuzz::mustHold(ir::inferShapes(copy->graph()), "a copy");
  ir::Manifest manifest = decoder.manifest;
  for (size_t i = 0; i < mostChanges && !choices.isEmpty(); ++i)
    fuzz::StructuralChange(*copy, manifest, choices).make();
  if (!fuzz::exerciseChanged(*copy, manifest))
    return 0;
  if (llvm::Error error = ir::inferShapes(copy->graph())) {
    fuzz::refused(std::move(error));
    return 0;
  }
  runtime::EquivalencePlan plan = driver::quickVerification();
  plan.prompt = 3;
  plan.chunks = {2};
  plan.decodeSteps = 1;
  auto report = driver::verifyModels(*decoder.model, decoder.manifest, *copy, manifest, plan, 1,
                                     fuzz::toolkit());
  if (!report)
    fuzz::refused(report.takeError());
  return 0;
}
