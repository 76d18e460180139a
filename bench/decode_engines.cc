// Sessions and ONNX Runtime in the same state.
#include "bench/decode_engines.h"

#include "bench/measure.h"
#include "driver/recover.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/memory/buffer.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

constexpr int64_t chunkTokens = 512; // tokens of a prefill step
constexpr int64_t spareRows = 64;    // spare rows of a shared buffer

/// Tokens that depend only on their position.
DecoderStep stepOf(int64_t past, int64_t count, int64_t vocabulary) {
  DecoderStep step;
  step.pastLength = past;
  step.tokens.emplace_back();
  for (int64_t i = past; i < past + count; ++i)
    step.tokens.back().push_back(i * 7919 % vocabulary);
  return step;
}

/// Copies the first rows of tensors [B,G,T,D].
void copyRows(const TensorView& from, const TensorView& to, int64_t rows) {
  const int64_t width = *byteWidth(from.element);
  for (int64_t head = 0; head < from.shape[0] * from.shape[1]; ++head) {
    const int64_t batch = head / from.shape[1], group = head % from.shape[1];
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(
          to.data + (batch * to.strides[0] + group * to.strides[1] + row * to.strides[2]) * width,
          from.data +
              (batch * from.strides[0] + group * from.strides[1] + row * from.strides[2]) * width,
          static_cast<size_t>(from.shape[3] * width));
  }
}

class BaselineEngine final : public DecodeEngine {
public:
  explicit BaselineEngine(OnnxRuntimeSession opened) : session(std::move(opened)) {}

  llvm::Expected<double> step() override {
    const double start = seconds();
    if (llvm::Error error = session.run())
      return error;
    return seconds() - start;
  }

  TensorView logits() const override { return logitsView; }

  llvm::Error bindCaches(const Manifest& manifest, BaselineCaches caches, int64_t depth,
                         const SessionEngine& source) {
    const bool isShared = caches == BaselineCaches::Shared;
    for (const ManifestCache& cache : manifest.caches) {
      const std::optional<TensorView> rows = source.cache(cache.past);
      if (!rows || rows->rank() != 4 || cache.sequenceAxis != 2 || rows->shape[2] < depth)
        return unsupported("kvopt's model has no cache '{}' of this layout", cache.past);
      Extents shape = rows->shape;
      const auto withRows = [&](int64_t count) {
        shape[2] = count;
        return make(rows->element, shape);
      };
      auto past = withRows(isShared ? depth + spareRows : depth);
      if (!past)
        return past.takeError();
      copyRows(*rows, *past, depth);
      TensorView present = *past;
      if (!isShared) {
        auto longer = withRows(depth + 1);
        if (!longer)
          return longer.takeError();
        present = *longer;
      }
      if (llvm::Error error = session.bindInput(cache.past, *past))
        return error;
      if (llvm::Error error = session.bindOutput(cache.present, present))
        return error;
      bound.push_back(cache.past);
      bound.push_back(cache.present);
    }
    return llvm::Error::success();
  }

  llvm::Error bindOthers(const LoadedModel& loaded, int64_t depth) {
    const Graph& graph = loaded.model->graph();
    if (!loaded.manifest.lengths.empty())
      return unsupported("the model has inputs for lengths");
    std::vector<const Value*> given;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (!llvm::is_contained(bound, input->name()))
        given.push_back(input.get());
    auto inputs = decoderInputs(given, stepOf(depth, 1, loaded.vocabulary), allocator);
    if (!inputs)
      return inputs.takeError();
    fed = std::move(*inputs);
    for (const NamedTensor& input : fed)
      if (llvm::Error error = session.bindInput(input.name, input.tensor.view))
        return error;
    for (const Value* output : graph.outputs()) {
      if (llvm::is_contained(bound, output->name()))
        continue;
      auto view = make(output->type().elementType(), {1, 1, loaded.vocabulary});
      if (!view)
        return view.takeError();
      logitsView = *view;
      if (llvm::Error error = session.bindOutput(output->name().str(), logitsView))
        return error;
    }
    return llvm::Error::success();
  }

private:
  llvm::Expected<TensorView> make(ElementType element, llvm::ArrayRef<int64_t> shape) {
    TensorView view = TensorView::contiguous(element, shape, nullptr);
    const auto bytes = static_cast<size_t>(view.byteSize());
    auto buffer = Buffer::create(allocator, bytes);
    if (!buffer)
      return buffer.takeError();
    std::memset((*buffer)->data(), 0, bytes);
    view.data = (*buffer)->data();
    memory.push_back(std::move(*buffer));
    return view;
  }

  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  std::vector<std::shared_ptr<Buffer>> memory;
  std::vector<NamedTensor> fed;
  std::vector<std::string> bound;
  TensorView logitsView;
  OnnxRuntimeSession session;
};

} // namespace

llvm::Expected<LoadedModel> LoadedModel::open(const std::string& path, const Toolkit& toolkit) {
  LoadedModel loaded;
  loaded.path = path;
  auto model = importModel(path, toolkit.ops);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return withFile(std::move(error), path);
  auto manifest = drivingManifest(**model, toolkit);
  if (!manifest)
    return manifest.takeError();
  auto vocabulary = vocabularyOf((*model)->graph());
  if (!vocabulary)
    return vocabulary.takeError();
  loaded.model = std::move(*model);
  loaded.manifest = std::move(*manifest);
  loaded.vocabulary = *vocabulary;
  return loaded;
}

llvm::Expected<std::unique_ptr<SessionEngine>> SessionEngine::start(const LoadedModel& loaded,
                                                                    const Toolkit& toolkit,
                                                                    unsigned threads,
                                                                    int64_t depth) {
  SessionOptions options;
  options.threads = threads;
  if (!loaded.manifest.capacityValue)
    options.capacity = depth + spareRows;
  auto session =
      Session::create(*loaded.model, toolkit.runner->kernels(), loaded.manifest, options);
  if (!session)
    return session.takeError();
  while ((*session)->length() < depth) {
    const int64_t past = (*session)->length();
    auto result = stepDecoder(**session,
                              stepOf(past, std::min(chunkTokens, depth - past), loaded.vocabulary));
    if (!result)
      return result.takeError();
  }
  return std::unique_ptr<SessionEngine>(new SessionEngine(loaded, std::move(*session), depth));
}

llvm::Expected<double> SessionEngine::step() {
  if (llvm::Error error = session->crop(depth))
    return error;
  auto inputs = decoderInputs(session->callerInputs(), stepOf(depth, 1, loaded.vocabulary),
                              session->allocator());
  if (!inputs)
    return inputs.takeError();
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  const double start = seconds();
  if (llvm::Error error = session->step(views, 1, result))
    return error;
  return seconds() - start;
}

TensorView SessionEngine::logits() const { return result.outputs.front().tensor.view; }

std::optional<TensorView> SessionEngine::cache(llvm::StringRef past) const {
  // The compared caches are not in blocks.
  for (size_t i = 0; i < session->cacheCount(); ++i)
    if (session->cacheInfo(i).past == past)
      return session->caches().set().view(i);
  return std::nullopt;
}

llvm::Expected<std::unique_ptr<DecodeEngine>>
startBaseline(const OnnxRuntime& runtime, const LoadedModel& loaded, BaselineCaches caches,
              unsigned threads, bool spins, int64_t depth, const SessionEngine& source) {
  auto session = runtime.open(loaded.path, threads, spins);
  if (!session)
    return session.takeError();
  auto baseline = std::make_unique<BaselineEngine>(std::move(*session));
  if (llvm::Error error = baseline->bindCaches(loaded.manifest, caches, depth, source))
    return error;
  if (llvm::Error error = baseline->bindOthers(loaded, depth))
    return error;
  return baseline;
}

} // namespace kvopt
