// Sessions of models in variants and in pieces: what runs a step, and which blocks it is fed.
#include "runtime/session/session.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

llvm::Error Session::startVariants() {
  llvm::Expected<Pyramid> created = Pyramid::create(description);
  if (!created)
    return created.takeError();
  pyramid = std::move(*created);
  if (!pyramid.empty() && !options.variants)
    options.variants = variantFiles(model.folder, model.graph().context().ops());
  variantExecutors.resize(pyramid.size());
  running = executor.get();
  runningVariant = pyramid.empty() ? 0 : pyramid.size() - 1;
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Executor>>
Session::createExecutor(const Model& executed, const Executor* constantsOf) const {
  ExecutorOptions executorOptions;
  executorOptions.foldedConstantsLimit = options.foldedConstantsLimit;
  executorOptions.constantsOf = constantsOf;
  executorOptions.pool = options.pool;
  executorOptions.allocator = options.allocator;
  executorOptions.timeOperators = options.timeOperators;
  return Executor::create(executed, kernels, executorOptions);
}

/// A variant has the inputs and outputs of the model but for the blocks that it does without.
llvm::Error Session::checkVariant(const Graph& variant, int64_t blocks) const {
  llvm::StringSet<> missing;
  for (const ManifestCache& cache : description.caches)
    for (size_t i = static_cast<size_t>(blocks); i < cache.blocks.size(); ++i)
      missing.insert(cache.blocks[i]);
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

/// Makes the smallest variant that has room for the tokens that are there the one that runs.
llvm::Error Session::chooseVariant() {
  if (pyramid.empty() || pieces)
    return llvm::Error::success();
  const size_t index = pyramid.variantFor(length());
  std::unique_ptr<Executor>& made = variantExecutors[index];
  const bool isLargest = index + 1 == pyramid.size();
  if (!isLargest && !made) {
    llvm::Expected<const Model*> opened = options.variants->open(pyramid[index]);
    if (!opened)
      return opened.takeError();
    if (llvm::Error error = checkVariant((*opened)->graph(), pyramid[index].pastBlocks))
      return withFile(std::move(error), (*opened)->path);
    llvm::Expected<std::unique_ptr<Executor>> created = createExecutor(**opened, nullptr);
    if (!created)
      return created.takeError();
    made = std::move(*created);
  }
  Executor* chosen = isLargest ? executor.get() : made.get();
  // One variant at a time keeps memory for its next step.
  if (chosen != running)
    running->dropMemory();
  running = chosen;
  runningVariant = index;
  return llvm::Error::success();
}

llvm::Error Session::startPieces(const Session* like) {
  auto created = CutDecoder::create(
      model, description, *options.variants,
      [&](const Model& piece, const Executor* constantsOf) {
        return createExecutor(piece, constantsOf);
      },
      like ? like->pieces.get() : nullptr);
  if (!created)
    return withFile(created.takeError(), model.path);
  pieces = std::move(*created);
  return llvm::Error::success();
}

llvm::Error Session::runModel() {
  return pieces ? pieces->run(stepInputs, length(), stepOutputs)
                : running->run(stepInputs, stepBindings, stepOutputs);
}

void Session::dropMemory() {
  if (pieces)
    pieces->dropMemory();
  else
    running->dropMemory();
}

llvm::Error Session::feedBlocks(size_t index) {
  const ManifestCache& cache = description.caches[index];
  const size_t count = pyramid.empty() ? cache.blocks.size()
                                       : static_cast<size_t>(pyramid[runningVariant].pastBlocks);
  for (size_t position = 0; position < count; ++position) {
    llvm::Expected<TensorView> rows =
        pyramid.empty() ? caches.blockRows(index, position) : caches.wholeBlock(index, position);
    if (!rows)
      return rows.takeError();
    stepInputs.push_back({cache.blocks[position], std::move(*rows)});
  }
  return llvm::Error::success();
}

} // namespace kvopt::runtime
