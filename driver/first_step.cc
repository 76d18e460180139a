// Opening and running of first steps.
#include "driver/first_step.h"

#include "driver/recover.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <filesystem>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Whether a name in JSON is exact: JSON replaces bytes that are not UTF-8.
bool isExactName(llvm::StringRef name) { return !name.contains("\xEF\xBF\xBD"); }

/// Checks that an output of the first step fits the cache.
llvm::Error checkGiven(const Value& given, const ManifestCache& cache) {
  const auto differs = [&](const std::string& problem) {
    return invalid("the first step does not give this cache: {}", problem).value(cache.past);
  };
  const TensorType& type = given.type();
  if (type.elementType() != ElementType::Undefined && type.elementType() != cache.dtype)
    return differs(formatted("its output has element type {}, not {}",
                             dtypeName(type.elementType()), dtypeName(cache.dtype)));
  if (!type.hasRank())
    return llvm::Error::success();
  if (type.rank() != cache.shape.size())
    return differs(formatted("its output has {} axes, not {}", type.rank(), cache.shape.size()));
  for (size_t axis = 0; axis < cache.shape.size(); ++axis) {
    const auto* wanted = std::get_if<int64_t>(&cache.shape[axis]);
    const std::optional<int64_t> found = type.shape()[axis].value();
    if (wanted && found && *wanted != *found)
      return differs(
          formatted("axis {} of its output has extent {}, not {}", axis, *found, *wanted));
  }
  return llvm::Error::success();
}

/// Checks that the outputs are exactly the read-only caches.
llvm::Error checkOutputs(const Graph& firstStep, const Manifest& manifest) {
  llvm::StringSet<> known;
  bool isExact = true;
  for (const ManifestCache& cache : manifest.caches) {
    if (cache.update() != CacheUpdate::ReadOnly)
      continue;
    isExact &= isExactName(cache.past);
    known.insert(cache.past);
    const Value* given = firstStep.findValue(cache.past);
    if (given && given->isGraphOutput()) {
      if (llvm::Error error = checkGiven(*given, cache))
        return error;
    } else if (isExactName(cache.past)) {
      return invalid("the first step does not give this cache: it has no such output")
          .value(cache.past);
    }
  }
  for (const Value* output : firstStep.outputs())
    if (isExact && !known.contains(output->name()))
      return invalid("the first step gives an output that is not a cache that is only read")
          .value(output->name());
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::unique_ptr<Model>>
openFirstStep(const ModelSource& source, const Manifest& manifest, const Toolkit& toolkit) {
  if (manifest.firstStep.empty())
    return std::unique_ptr<Model>();
  if (source.bytes && !source.folder)
    return invalid("has a first step in '{}', and no folder is given", manifest.firstStep);
  const std::filesystem::path folder = source.folder
                                           ? std::filesystem::path(source.folder->path)
                                           : std::filesystem::path(source.path).parent_path();
  auto model = openModel((folder / manifest.firstStep).string(), toolkit);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return withFile(std::move(error), (*model)->path);
  if (llvm::Error error = checkOutputs((*model)->graph(), manifest))
    return withFile(std::move(error), (*model)->path);
  return model;
}

bool hasInput(const Graph& graph, llvm::StringRef name) {
  const Value* input = graph.findValue(name);
  return input && input->isGraphInput();
}

llvm::Expected<std::vector<NamedTensor>> runFirstStep(const Model& firstStep, int64_t batch,
                                                      llvm::ArrayRef<InputRecipe> recipes,
                                                      unsigned threads, const Toolkit& toolkit) {
  auto manifest = drivingManifest(firstStep, toolkit);
  if (!manifest)
    return manifest.takeError();
  SessionOptions options;
  options.batch = batch;
  options.threads = threads;
  auto session = Session::create(firstStep, toolkit.kernels, *manifest, options);
  if (!session)
    return withFile(session.takeError(), firstStep.path);
  DecoderStep step;
  step.tokens.assign(static_cast<size_t>(batch), {0});
  std::vector<InputRecipe> own;
  llvm::copy_if(recipes, std::back_inserter(own), [&](const InputRecipe& recipe) {
    return hasInput(firstStep.graph(), recipe.input);
  });
  step.recipes = own;
  auto inputs = decoderInputs(**session, step);
  if (!inputs)
    return withFile(inputs.takeError(), firstStep.path);
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  auto results = (*session)->step(views, 1);
  if (!results)
    return withFile(results.takeError(), firstStep.path);
  std::vector<NamedTensor> caches;
  for (const NamedTensor& result : results->outputs) {
    auto copy = Tensor::copyOf((*session)->allocator(), result.tensor.view);
    if (!copy)
      return copy.takeError();
    caches.push_back({result.name, std::move(*copy)});
  }
  return caches;
}

} // namespace kvopt::driver
