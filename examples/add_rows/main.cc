// A new type of cache rows: float8 with one scale for each row. The type is in float8_rows.cc, and
// row_codes.cc lists it. This program rewrites a model with it, checks that the kernel and the
// function body write the same codes, and decodes with both models.
//
//   add_rows model.onnx
#include "driver/recover.h"
#include "driver/toolkit.h"
#include "driver/verify/quantization.h"
#include "ir/shapes/shape_inference.h"
#include "passes/pass_manager.h"
#include "runtime/session/decoder_inputs.h"
#include "runtime/session/token_choice.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <cmath>
#include <cstdio>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace runtime;

namespace {

constexpr const char* touched = "In the tree, a new type of rows is these files:\n"
                                "  ir/rows/float8_rows.cc        what it is: codes, scale, body\n"
                                "  ir/rows/row_codes.cc          its line in the list\n"
                                "  driver/options/row_kind.h     its word for --rows\n"
                                "  driver/forms/form_table.cc    its cells\n";

struct Decoder {
  std::unique_ptr<Model> model;
  Manifest manifest;
};

/// The model as read, and how to drive it.
llvm::Expected<Decoder> exported(const std::string& path, const Toolkit& toolkit) {
  auto model = openModel(path, toolkit);
  if (!model)
    return model.takeError();
  auto manifest = drivingManifest(**model, toolkit);
  if (!manifest)
    return manifest.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return error;
  return Decoder{std::move(*model), std::move(*manifest)};
}

llvm::Expected<Decoder> rewritten(const std::string& path, const Toolkit& toolkit) {
  auto recovered = recoverModel(path, toolkit);
  if (!recovered)
    return recovered.takeError();
  PassManager manager(toolkit.passes, {});
  if (llvm::Error error = manager.addPipeline("lower{to=float8},eliminate-dead-nodes"))
    return error;
  if (llvm::Error error = manager.run(*recovered->model, *recovered->context))
    return error;
  return Decoder{std::move(recovered->model), std::move(*recovered->context->manifest)};
}

/// Tokens that a model generates after a prompt, and the scores of each token.
struct Said {
  std::vector<int64_t> tokens;
  std::vector<float> scores;
};

llvm::Expected<Said> decode(const Decoder& decoder, llvm::StringRef prompt, size_t count,
                            const Toolkit& toolkit) {
  SessionOptions options;
  options.mode = SessionOptions::Mode::Stateful;
  auto session =
      Session::create(*decoder.model, toolkit.runner->kernels(), decoder.manifest, options);
  if (!session)
    return session.takeError();
  Said said;
  std::vector<int64_t> tokens(prompt.bytes_begin(), prompt.bytes_end());
  while (said.tokens.size() < count) {
    auto result = stepDecoder(**session, {{tokens}, {}, (*session)->length()});
    if (!result)
      return result.takeError();
    auto logits = findLogits(*result);
    if (!logits)
      return logits.takeError();
    auto scores = lastScores(**logits, 0);
    auto next = greedyToken(**logits, 0);
    if (!scores || !next)
      return llvm::joinErrors(scores.takeError(), next.takeError());
    if (scores->element != ElementType::Float)
      return unsupported("scores of {} are not compared", dtypeName(scores->element));
    said.scores.insert(said.scores.end(), scores->as<float>(),
                       scores->as<float>() + scores->elementCount());
    said.tokens.push_back(*next);
    tokens = {*next};
  }
  return said;
}

llvm::Error checkDefinition(const Decoder& original, const Decoder& quantized,
                            const Toolkit& toolkit) {
  EquivalencePlan plan;
  plan.batch = 1;
  plan.vocabulary = 256;
  const std::vector<int64_t> steps{7, 1, 1, 3};
  auto report = checkQuantization(*original.model, original.manifest, *quantized.model,
                                  quantized.manifest, {.rowScales = true}, plan, steps, 1, toolkit);
  if (!report)
    return report.takeError();
  std::printf("%zu attention layers, %zu steps: codes %s those of the function body, attention "
              "within %.1e of "
              "it\n",
              report->sites, report->steps, report->rowsIdentical ? "are" : "are not",
              report->siteDifference);
  if (!report->equal())
    return invalid("the kernel is not what the function body says");
  return llvm::Error::success();
}

llvm::Error run(const std::string& path) {
  const Toolkit toolkit;
  auto original = exported(path, toolkit);
  if (!original)
    return original.takeError();
  auto quantized = rewritten(path, toolkit);
  if (!quantized)
    return quantized.takeError();
  for (const ManifestCache& cache : quantized->manifest.caches)
    if (cache.layer == 0)
      std::printf("%s: %s\n", cache.past.c_str(), dtypeName(cache.dtype).str().c_str());
  if (llvm::Error error = checkDefinition(*original, *quantized, toolkit))
    return error;

  constexpr llvm::StringLiteral prompt = "In the beginning God created ";
  auto expected = decode(*original, prompt, 32, toolkit);
  auto found = decode(*quantized, prompt, 32, toolkit);
  if (!expected || !found)
    return llvm::joinErrors(expected.takeError(), found.takeError());
  float largest = 0, difference = 0;
  for (size_t i = 0; i < expected->scores.size(); ++i) {
    largest = std::max(largest, std::fabs(expected->scores[i]));
    difference = std::max(difference, std::fabs(expected->scores[i] - found->scores[i]));
  }
  std::printf("%s%s\n", prompt.data(),
              std::string(found->tokens.begin(), found->tokens.end()).c_str());
  std::printf("tokens equal: %s, scores differ by %.3f of %.1f at most\n",
              expected->tokens == found->tokens ? "yes" : "no", static_cast<double>(difference),
              static_cast<double>(largest));
  std::fputs(touched, stdout);
  // The error of a float8 is at most a sixteenth; equal scores would mean that nothing was rounded.
  if (expected->tokens != found->tokens || difference == 0 || !(difference < largest / 16))
    return invalid("the rewritten model does not say what the exported one says");
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: add_rows MODEL.onnx\n", stderr);
    return 2;
  }
  if (llvm::Error error = kvopt::run(argv[1])) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
  return 0;
}
