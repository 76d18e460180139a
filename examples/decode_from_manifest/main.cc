// Decodes greedily with a model that `kvopt rewrite` wrote for any target: the manifest in the file
// describes how caches and lengths change from step to step.
//
//   decode_from_manifest model.onnx 1,2,3 8        prompt, number of tokens to generate
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/session/decoder_inputs.h"
#include "runtime/session/token_choice.h"
#include "runtime/session/token_limits.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdio>
#include <fstream>
#include <map>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// A float32 tensor from a file.
struct Given {
  Extents extents;
  std::vector<float> elements;
};

/// NAME=1,80,3000:FILE
llvm::Error addGiven(llvm::StringRef text, std::map<std::string, Given>& all) {
  const auto [name, rest] = text.split('=');
  const auto [extents, path] = rest.split(':');
  Given& given = all[name.str()];
  int64_t count = 1;
  for (llvm::StringRef word : llvm::split(extents, ',')) {
    int64_t extent = 0;
    if (!llvm::to_integer(word, extent) || extent <= 0 || extent > (int64_t{1} << 32) / count)
      return invalid("'{}' is not a list of extents", extents);
    given.extents.push_back(extent);
    count *= extent;
  }
  given.elements.resize(static_cast<size_t>(count));
  std::ifstream file(path.str(), std::ios::binary);
  file.read(reinterpret_cast<char*>(given.elements.data()), count * 4);
  if (file.gcount() != count * 4)
    return invalid("has fewer than {} elements", count).file(path.str());
  return llvm::Error::success();
}

/// Takes a step: tokens, masks and positions are made, and other inputs are given.
llvm::Expected<StepResult> step(Session& session, const std::vector<int64_t>& tokens,
                                std::map<std::string, Given>& given) {
  auto inputs = decoderInputs(session, {{tokens}, {}, session.length()});
  if (!inputs)
    return inputs.takeError();
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs) {
    views.push_back({input.name, input.tensor.view});
    if (auto found = given.find(input.name); found != given.end())
      views.back().view =
          TensorView::contiguous(ElementType::Float, found->second.extents,
                                 reinterpret_cast<std::byte*>(found->second.elements.data()));
  }
  return session.step(views, static_cast<int64_t>(tokens.size()));
}

llvm::Error decode(const std::string& path, std::vector<int64_t> tokens, size_t count,
                   std::map<std::string, Given> given) {
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
  const auto limits = TokenLimits::of((*model)->graph(), (*manifest)->inputs);
  if (llvm::Error error = limits.check(tokens))
    return error;
  SessionOptions options;
  options.mode = SessionOptions::Mode::Stateful; // buffers grow up to the manifest's limit
  auto session = Session::create(**model, kernels, **manifest, options);
  if (!session)
    return session.takeError();
  for (size_t made = 0; made < count; ++made) {
    auto result = step(**session, tokens, given);
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
  bool isUsage = argc >= 4 && argc % 2 == 0 && llvm::to_integer(argv[3], count) && count > 0;
  for (llvm::StringRef number : llvm::split(argc > 2 ? argv[2] : "", ','))
    isUsage &= llvm::to_integer(number, prompt.emplace_back());
  std::map<std::string, kvopt::Given> given;
  llvm::Error error = llvm::Error::success();
  for (int i = 4; isUsage && !error && i < argc; i += 2) {
    isUsage = llvm::StringRef(argv[i]) == "--input";
    error = kvopt::addGiven(argv[i + 1], given);
  }
  if (isUsage && !error)
    error = kvopt::decode(argv[1], prompt, static_cast<size_t>(count), std::move(given));
  if (error) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
  if (!isUsage) {
    std::fprintf(
        stderr,
        "usage: decode_from_manifest MODEL.onnx 1,2,3 COUNT [--input NAME=EXTENTS:FILE]…\n");
    return 2;
  }
  return 0;
}
