// Creation of sessions, and functions that concern both steps and caches.
#include "runtime/session/session.h"

#include "runtime/session/interface_check.h"
#include "support/file_access.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Caches that are only read are ordinary inputs: the caller provides them with every step.
Manifest withoutReadOnlyCaches(Manifest manifest) {
  llvm::erase_if(manifest.caches, [](const ManifestCache& cache) {
    return cache.update() == CacheUpdate::ReadOnly;
  });
  return manifest;
}

SessionOptions withPoolAndAllocator(SessionOptions options) {
  if (!options.pool)
    options.pool = std::make_shared<ThreadPool>(options.threads);
  if (!options.allocator)
    options.allocator = std::make_shared<Allocator>();
  return options;
}

} // namespace

Session::Session(const Model& sessionModel, const KernelRegistry& sessionKernels,
                 const Manifest& manifest, const SessionOptions& sessionOptions)
    : model(sessionModel), kernels(sessionKernels), description(withoutReadOnlyCaches(manifest)),
      options(withPoolAndAllocator(sessionOptions)), state(model, description, options) {}

llvm::Expected<std::unique_ptr<Session>> Session::create(const Model& model,
                                                         const KernelRegistry& kernels,
                                                         const Manifest& manifest,
                                                         const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(model, kernels, manifest, options));
  if (llvm::Error error = session->startSteps(nullptr))
    return error;
  if (llvm::Error error = session->start())
    return withFile(std::move(error), model.path);
  return session;
}

llvm::Error Session::startSteps(const Session* like) {
  auto created = StepRunner::create(model, kernels, description, options, state,
                                    like ? like->steps.get() : nullptr);
  if (!created)
    return created.takeError();
  steps = std::move(*created);
  return llvm::Error::success();
}

llvm::Error Session::start() {
  if (llvm::Error error = checkInterface(graph(), description))
    return error;
  if (options.batch < 1 || options.capacity < 0 || options.blockLimit < 0)
    return usageError("a session needs a batch of at least 1, and a capacity and a limit of blocks "
                      "that are not negative");
  if (llvm::Error error = steps->findOutputs())
    return error;
  if (llvm::Error error = state.start(/*readsWholeBlocks=*/!variants().empty()))
    return error;
  return steps->makeLengths();
}

llvm::Expected<StepResult> Session::step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) {
  StepResult result;
  if (llvm::Error error = step(inputs, newTokens, result))
    return error;
  return result;
}

llvm::Error Session::step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result) {
  return steps->step(inputs, newTokens, result);
}

llvm::Expected<std::unique_ptr<Session>> Session::fork() const {
  SessionOptions settings = options;
  settings.batch = batch();
  std::unique_ptr<Session> copy(new Session(model, kernels, description, settings));
  if (llvm::Error error = copy->startSteps(this))
    return error;
  if (llvm::Error error = copy->state.copyFrom(state))
    return error;
  if (llvm::Error error = copy->steps->findOutputs())
    return error;
  if (llvm::Error error = copy->steps->makeLengths())
    return error;
  return copy;
}

llvm::Error Session::freeze() {
  if (isFrozen())
    return llvm::Error::success();
  if (llvm::Error error = state.freeze())
    return error;
  steps->dropMemory();
  return llvm::Error::success();
}

llvm::Error Session::save(const std::string& path) const {
  FileAccess access;
  return save(path, access);
}

} // namespace kvopt::runtime
