// Opening of first steps.
#include "driver/first_step.h"

#include "driver/recover.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <filesystem>

namespace kvopt::driver {
using namespace ir;

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

} // namespace kvopt::driver
