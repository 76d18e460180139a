// Decodes greedily with a model that `kvopt rewrite` wrote, for whichever target: what becomes of
// caches and lengths from step to step is in the manifest that lies in the file.
//
//   decode_from_manifest model.onnx 1,2,3 8        prompt, tokens to make
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/session/decoder_inputs.h"
#include "runtime/session/token_choice.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringExtras.h"

#include <cstdio>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error decode(const std::string& path, std::vector<int64_t> tokens, size_t count) {
  OpRegistry ops;
  registerAll(ops);
  KernelRegistry kernels;
  registerAll(kernels);
  auto model = importModel(path, ops);
  if (!model)
    return model.takeError();
  auto manifest = manifestOf(**model);
  if (!manifest)
    return manifest.takeError();
  if (!*manifest)
    return invalid("has no manifest").file(path).hint("rewrite it: kvopt rewrite --to kvopt");
  if (llvm::Error error = inferShapes((*model)->graph()))
    return error;
  SessionOptions options;
  options.mode = SessionOptions::Mode::Stateful; // buffers grow as far as the manifest allows
  auto session = Session::create(**model, kernels, **manifest, options);
  if (!session)
    return session.takeError();
  for (size_t made = 0; made < count; ++made) {
    auto result = stepDecoder(**session, {{tokens}, {}, (*session)->length()});
    if (!result)
      return result.takeError();
    auto logits = findLogits(*result);
    auto next = logits ? greedyToken(**logits, 0) : logits.takeError();
    if (!next)
      return next.takeError();
    std::printf("%s%lld", made == 0 ? "" : ",", static_cast<long long>(*next));
    tokens = {*next};
  }
  std::printf("\n");
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  std::vector<int64_t> prompt;
  int64_t count = 0;
  bool isUsage = argc == 4 && llvm::to_integer(argv[3], count) && count > 0;
  for (llvm::StringRef number : llvm::split(argc > 2 ? argv[2] : "", ','))
    isUsage &= llvm::to_integer(number, prompt.emplace_back());
  if (!isUsage) {
    std::fprintf(stderr, "usage: decode_from_manifest MODEL.onnx 1,2,3 COUNT\n");
    return 2;
  }
  if (llvm::Error error = kvopt::decode(argv[1], prompt, static_cast<size_t>(count))) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
  return 0;
}
