// Executors of a model, its variants and its pieces.
#include "runtime/session/model_runner.h"

#include "support/diagnostic.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

ModelRunner::ModelRunner(const Model& runModel, const KernelRegistry& knownKernels,
                         const Manifest& described, const SessionOptions& settings)
    : model(runModel), kernels(knownKernels), manifest(described), source(settings.variants) {
  executorOptions.foldedConstantsLimit = settings.foldedConstantsLimit;
  executorOptions.pool = settings.pool;
  executorOptions.allocator = settings.allocator;
  executorOptions.timeOperators = settings.timeOperators;
}

llvm::Expected<std::unique_ptr<ModelRunner>>
ModelRunner::create(const Model& model, const KernelRegistry& kernels, const Manifest& manifest,
                    const SessionOptions& options, const ModelRunner* like) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, kernels, manifest, options));
  if (llvm::Error error = runner->start(like))
    return error;
  return runner;
}

llvm::Error ModelRunner::start(const ModelRunner* like) {
  if (!manifest.tiles) {
    auto created = createExecutor(model, like ? like->executor.get() : nullptr);
    if (!created)
      return created.takeError();
    executor = std::move(*created);
  }
  llvm::Expected<Pyramid> created = Pyramid::create(manifest);
  if (!created)
    return created.takeError();
  pyramid = std::move(*created);
  if (like)
    source = like->source;
  else if (!pyramid.empty() && !source)
    source = variantFiles(model.folder, model.graph().context().ops());
  variantExecutors.resize(pyramid.size());
  running = executor.get();
  runningVariant = pyramid.empty() ? 0 : pyramid.size() - 1;
  return manifest.tiles ? startPieces(like) : llvm::Error::success();
}

llvm::Error ModelRunner::startPieces(const ModelRunner* like) {
  auto created = CutDecoder::create(
      model, manifest, *source,
      [&](const Model& piece, const Executor* constantsOf) {
        return createExecutor(piece, constantsOf);
      },
      like ? like->pieces.get() : nullptr);
  if (!created)
    return withFile(created.takeError(), model.path);
  pieces = std::move(*created);
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Executor>>
ModelRunner::createExecutor(const Model& executed, const Executor* constantsOf) const {
  ExecutorOptions options = executorOptions;
  options.constantsOf = constantsOf;
  return Executor::create(executed, kernels, options);
}

/// Checks that a variant has the inputs and outputs of the model, except for blocks that it does
/// not have.
llvm::Error ModelRunner::checkVariant(const Graph& variant, int64_t blocks) const {
  llvm::StringSet<> missing;
  for (const ManifestCache& cache : manifest.caches)
    for (size_t i = static_cast<size_t>(blocks); i < cache.blocks().size(); ++i)
      missing.insert(cache.blocks()[i]);
  llvm::StringSet<> wanted;
  for (const std::unique_ptr<Value>& input : graph().inputs())
    if (!missing.contains(input->name()))
      wanted.insert(input->name());
  size_t found = 0;
  for (const std::unique_ptr<Value>& input : variant.inputs()) {
    if (!wanted.contains(input->name()))
      return invalid("its input '{}' is none of the largest variant, or a block too many",
                     input->name());
    ++found;
  }
  if (found != wanted.size())
    return invalid("it has {} of the {} inputs that a variant with {} blocks has", found,
                   wanted.size(), blocks);
  llvm::ArrayRef<Value*> outputs = variant.outputs();
  llvm::ArrayRef<Value*> largest = graph().outputs();
  const bool sameOutputs = std::equal(outputs.begin(), outputs.end(), largest.begin(),
                                      largest.end(), [](const Value* a, const Value* b) {
                                        return a->name() == b->name() &&
                                               a->type().elementType() == b->type().elementType();
                                      });
  if (!sameOutputs)
    return invalid("its outputs are not those of the largest variant");
  return llvm::Error::success();
}

llvm::Error ModelRunner::makeVariant(size_t index) {
  llvm::Expected<const Model*> opened = source->open(pyramid[index]);
  if (!opened)
    return opened.takeError();
  if (llvm::Error error = checkVariant((*opened)->graph(), pyramid[index].pastBlocks))
    return withFile(std::move(error), (*opened)->path);
  llvm::Expected<std::unique_ptr<Executor>> created = createExecutor(**opened, nullptr);
  if (!created)
    return created.takeError();
  variantExecutors[index] = std::move(*created);
  return llvm::Error::success();
}

llvm::Error ModelRunner::chooseVariant(int64_t past) {
  if (pyramid.empty() || pieces)
    return llvm::Error::success();
  const size_t index = pyramid.variantFor(past);
  const bool isLargest = index + 1 == pyramid.size();
  if (!isLargest && !variantExecutors[index])
    if (llvm::Error error = makeVariant(index))
      return error;
  Executor* chosen = isLargest ? executor.get() : variantExecutors[index].get();
  // Only one variant keeps memory for its next step.
  if (chosen != running)
    running->dropMemory();
  running = chosen;
  runningVariant = index;
  return llvm::Error::success();
}

size_t ModelRunner::blockCount(const ManifestCache& cache) const {
  return pyramid.empty() ? cache.blocks().size()
                         : static_cast<size_t>(pyramid[runningVariant].pastBlocks);
}

llvm::Error ModelRunner::run(llvm::ArrayRef<NamedView> inputs, llvm::ArrayRef<Binding> bindings,
                             int64_t past, std::vector<Tensor>& outputs) {
  return pieces ? pieces->run(inputs, past, outputs) : running->run(inputs, bindings, outputs);
}

void ModelRunner::dropMemory() {
  if (pieces)
    pieces->dropMemory();
  else
    running->dropMemory();
}

} // namespace kvopt::runtime
