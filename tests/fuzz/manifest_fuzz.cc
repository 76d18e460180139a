// A model and the manifest in its metadata, which need not fit: opened, checked, run for two steps.
// The first byte selects a decoder, whose manifest becomes the rest; beyond the decoders, the rest
// is a whole ONNX file.
#include "ir/shapes/shape_inference.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"

namespace {

using namespace kvopt;
using namespace kvopt::analysis;
using namespace kvopt::driver;
using namespace kvopt::ir;
using namespace kvopt::passes;
using namespace kvopt::pattern;
using namespace kvopt::runtime;
using namespace kvopt::targets;

/// How often a loop runs is the model's choice, and limited by nothing.
bool hasLoops(Graph& main) {
  bool found = false;
  forEachGraph(main, [&](Graph& graph) {
    for (const Node& node : graph.nodes())
      found |= node.op() == OpName("Loop") || node.op() == OpName("Scan");
  });
  return found;
}

void drive(Model& model) {
  if (llvm::Error error = inferShapes(model.graph()))
    return fuzz::refused(std::move(error));
  auto manifest = manifestOf(model);
  if (!manifest)
    return fuzz::refused(manifest.takeError());
  if (!*manifest || hasLoops(model.graph()))
    return;
  auto session =
      Session::create(model, fuzz::kernels(), **manifest, fuzz::smallSession(**manifest));
  if (!session)
    return fuzz::refused(session.takeError());
  fuzz::takeSteps(**session);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0)
    return 0;
  const auto rest = std::as_bytes(std::span<const uint8_t>(data + 1, size - 1));
  const std::vector<fuzz::Decoder>& decoders = fuzz::decoders();
  if (data[0] < decoders.size()) {
    std::unique_ptr<Model> model = fuzz::copyOf(*decoders[data[0]].model);
    model->setMetadata(manifestKey,
                       std::string(reinterpret_cast<const char*>(rest.data()), rest.size()));
    drive(*model);
    return 0;
  }
  auto model = importModelBytes(rest, "", fuzz::toolkit().ops, fuzz::limits);
  if (!model)
    fuzz::refused(model.takeError());
  else
    drive(**model);
  return 0;
}
