// Decode speed of a whole model: kvopt's runtime on the rewritten model beside ONNX Runtime on the
// original export and on the same weights with caches in one buffer, in turns, in one process.
//
//   bench_whole_model --library PATH --kvopt M [--growing M] [--shared M] [--depth 4096]
//                     [--threads 1,2] [--steps N] [--turns N]
//
// PATH is what bench/peers/install.sh prints; bench/whole_model.sh makes the models and calls this.
// All start from the caches that kvopt's prefill made, and their first logits must agree. A turn is
// N steps of each, all of them after `--depth` tokens, so that nothing but the model's run is
// timed: ONNX Runtime never pays for moving a present to the next step's past, and never allocates
// one.
#include "bench/onnx_runtime.h"
#include "cli/recover.h"
#include "ir/diagnostic.h"
#include "ir/onnx_import.h"
#include "ir/shape_inference.h"
#include "runtime/buffer.h"
#include "runtime/decoder_inputs.h"
#include "runtime/equivalence.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>

namespace kvopt {
namespace {

constexpr int64_t chunkTokens = 512;
constexpr int64_t spareRows = 64;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

struct Options {
  std::string library, rewritten, growing, shared;
  int64_t depth = 4096;
  std::vector<unsigned> threads = {1, 2};
  int steps = 8;
  int turns = 6;
};

/// Tokens that depend on their place only.
DecoderStep stepOf(int64_t past, int64_t count, int64_t vocabulary) {
  DecoderStep step;
  step.pastLength = past;
  step.tokens.emplace_back();
  for (int64_t i = past; i < past + count; ++i)
    step.tokens.back().push_back(i * 7919 % vocabulary);
  return step;
}

/// A model file and how it is driven.
struct LoadedModel {
  static llvm::Expected<LoadedModel> open(const std::string& path, const Registries& registries) {
    LoadedModel loaded;
    auto model = importModel(path, registries.ops);
    if (!model)
      return model.takeError();
    if (llvm::Error error = inferShapes((*model)->graph()))
      return withFile(std::move(error), path);
    auto manifest = drivingManifest(**model, path, registries);
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

  std::unique_ptr<Model> model;
  Manifest manifest;
  int64_t vocabulary = 0;
};

/// kvopt's session, `depth` tokens long.
class Ours {
public:
  static llvm::Expected<Ours> start(const LoadedModel& loaded, const Registries& registries,
                                    unsigned threads, int64_t depth) {
    SessionOptions options;
    options.threads = threads;
    if (!loaded.manifest.capacityValue)
      options.capacity = depth + spareRows;
    auto session = Session::create(*loaded.model, registries.kernels, loaded.manifest, options);
    if (!session)
      return session.takeError();
    Ours ours(loaded, std::move(*session), depth);
    while (ours.session->length() < depth) {
      const int64_t past = ours.session->length();
      auto result = stepDecoder(
          *ours.session, stepOf(past, std::min(chunkTokens, depth - past), loaded.vocabulary));
      if (!result)
        return result.takeError();
    }
    return ours;
  }

  /// One step after `depth` tokens; seconds.
  llvm::Expected<double> step() {
    if (session->length() > depth)
      if (llvm::Error error = session->crop(depth))
        return error;
    auto inputs = decoderInputs(session->callerInputs(), stepOf(depth, 1, loaded->vocabulary),
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

  /// Of the latest step.
  llvm::ArrayRef<float> logits() const {
    const TensorView& view = result.outputs.front().tensor.view;
    return {view.as<float>(), static_cast<size_t>(view.elementCount())};
  }

  /// The valid rows of the cache that the model calls so; null if there is none.
  const TensorView* cache(llvm::StringRef past) {
    for (size_t i = 0; i < session->cacheCount(); ++i)
      if (session->cacheInfo(i).past == past)
        return &(found = session->cacheView(i));
    return nullptr;
  }

private:
  Ours(const LoadedModel& model, std::unique_ptr<Session> started, int64_t tokens)
      : loaded(&model), session(std::move(started)), depth(tokens) {}

  const LoadedModel* loaded;
  std::unique_ptr<Session> session;
  int64_t depth;
  StepResult result;
  TensorView found;
};

/// ONNX Runtime on a model after `depth` tokens.
class Peer {
public:
  static llvm::Expected<Peer> start(const OnnxRuntime& runtime, const std::string& path,
                                    const LoadedModel& loaded, bool isShared, unsigned threads,
                                    int64_t depth, Ours& ours) {
    auto session = runtime.open(path, threads);
    if (!session)
      return session.takeError();
    Peer peer(std::move(*session));
    if (llvm::Error error = peer.bindCaches(loaded.manifest, isShared, depth, ours))
      return error;
    if (llvm::Error error = peer.bindOthers(loaded, depth))
      return error;
    return peer;
  }

  llvm::Expected<double> step() {
    const double start = seconds();
    if (llvm::Error error = session.run())
      return error;
    return seconds() - start;
  }

  llvm::ArrayRef<float> logits() const {
    return {logitsView.as<float>(), static_cast<size_t>(logitsView.elementCount())};
  }

private:
  explicit Peer(OnnxRuntimeSession opened) : session(std::move(opened)) {}

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

  llvm::Error bindCaches(const Manifest& manifest, bool isShared, int64_t depth, Ours& ours) {
    for (const ManifestCache& cache : manifest.caches) {
      const TensorView* rows = ours.cache(cache.past);
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

  static void copyRows(const TensorView& from, const TensorView& to, int64_t rows) {
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
    auto view = make(ElementType::Float, {1, 1, loaded.vocabulary});
    if (!view)
      return view.takeError();
    logitsView = *view;
    for (const Value* output : graph.outputs())
      if (!llvm::is_contained(bound, output->name()))
        if (llvm::Error error = session.bindOutput(output->name().str(), logitsView))
          return error;
    return llvm::Error::success();
  }

  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  std::vector<std::shared_ptr<Buffer>> memory;
  std::vector<NamedTensor> fed;
  std::vector<std::string> bound;
  TensorView logitsView;
  OnnxRuntimeSession session;
};

llvm::Error checkLogits(llvm::ArrayRef<float> ours, llvm::ArrayRef<float> theirs) {
  if (ours.size() != theirs.size())
    return unsupported("{} logits instead of {}", theirs.size(), ours.size());
  float largest = 0, difference = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(ours[i]));
    difference = std::max(difference, std::abs(ours[i] - theirs[i]));
  }
  // Rounding of sums of thousands of terms, over several layers.
  if (!(difference <= 1e-3f * largest))
    return unsupported("logits differ by {} of {}", difference, largest);
  return llvm::Error::success();
}

struct PeerFile {
  const char* name;
  std::string path;
  bool isShared;
  LoadedModel loaded;
};

class Bench {
public:
  Bench(const Options& given, const OnnxRuntime& peer, const Registries& known)
      : options(given), runtime(peer), registries(known) {}

  llvm::Error run() {
    auto rewritten = LoadedModel::open(options.rewritten, registries);
    if (!rewritten)
      return rewritten.takeError();
    std::vector<PeerFile> files;
    files.push_back({"ONNX Runtime, original export", options.growing, false, {}});
    files.push_back({"ONNX Runtime, GroupQueryAttention, one buffer", options.shared, true, {}});
    llvm::erase_if(files, [](const PeerFile& file) { return file.path.empty(); });
    for (PeerFile& file : files) {
      auto loaded = LoadedModel::open(file.path, registries);
      if (!loaded)
        return loaded.takeError();
      file.loaded = std::move(*loaded);
    }
    fmt::print(
        "ONNX Runtime {}; decode after {} tokens; the fastest tenth of steps and the median\n\n",
        runtime.version(), options.depth);
    fmt::print(
        "| threads | engine | tokens/s | tokens/s, median | kvopt faster by | median of turns |\n"
        "|---|---|---|---|---|---|\n");
    for (const unsigned threads : options.threads)
      if (llvm::Error error = measure(*rewritten, files, threads))
        return error;
    return llvm::Error::success();
  }

private:
  struct Entry {
    std::string name;
    std::vector<double> times;   ///< of steps
    std::vector<double> medians; ///< of turns
  };

  llvm::Error measure(const LoadedModel& rewritten, llvm::ArrayRef<PeerFile> files,
                      unsigned threads) {
    auto ours = Ours::start(rewritten, registries, threads, options.depth);
    if (!ours)
      return ours.takeError();
    if (auto time = ours->step(); !time)
      return time.takeError();
    std::vector<Entry> entries(1);
    entries[0].name = "kvopt, rewritten";
    std::vector<Peer> peers;
    for (const PeerFile& file : files) {
      auto peer = Peer::start(runtime, file.path, file.loaded, file.isShared, threads,
                              options.depth, *ours);
      if (!peer)
        return peer.takeError();
      if (auto time = peer->step(); !time)
        return time.takeError();
      if (llvm::Error error = checkLogits(ours->logits(), peer->logits()))
        return withFile(std::move(error), file.path);
      peers.push_back(std::move(*peer));
      entries.push_back({file.name, {}, {}});
    }
    for (int turn = 0; turn < options.turns; ++turn) {
      if (llvm::Error error = takeTurn(*ours, entries[0]))
        return error;
      for (size_t i = 0; i < peers.size(); ++i)
        if (llvm::Error error = takeTurn(peers[i], entries[i + 1]))
          return error;
    }
    for (const Entry& entry : entries)
      print(threads, entry, entries[0]);
    std::fflush(stdout);
    return llvm::Error::success();
  }

  template <class Engine> llvm::Error takeTurn(Engine& engine, Entry& entry) const {
    std::vector<double> times;
    for (int i = 0; i < options.steps; ++i) {
      auto time = engine.step();
      if (!time)
        return time.takeError();
      times.push_back(*time);
    }
    entry.times.insert(entry.times.end(), times.begin(), times.end());
    entry.medians.push_back(percentile(std::move(times), 0.5));
    return llvm::Error::success();
  }

  static void print(unsigned threads, const Entry& entry, const Entry& ours) {
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.medians.size(); ++i)
      ratios.push_back(entry.medians[i] / ours.medians[i]);
    const double best = percentile(entry.times, 0.1);
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", threads, entry.name, 1 / best,
               1 / percentile(entry.times, 0.5), best / percentile(ours.times, 0.1),
               percentile(ratios, 0.5));
  }

  const Options& options;
  const OnnxRuntime& runtime;
  const Registries& registries;
};

bool parse(int argc, char** argv, Options& options) {
  std::map<std::string, std::string*> paths = {{"--library", &options.library},
                                               {"--kvopt", &options.rewritten},
                                               {"--growing", &options.growing},
                                               {"--shared", &options.shared}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    const char* value = argv[i + 1];
    if (auto found = paths.find(word); found != paths.end()) {
      *found->second = value;
    } else if (word == "--depth") {
      options.depth = std::max<int64_t>(1, std::atoll(value));
    } else if (word == "--steps") {
      options.steps = std::max(1, std::atoi(value));
    } else if (word == "--turns") {
      options.turns = std::max(1, std::atoi(value));
    } else if (word == "--threads") {
      options.threads.clear();
      llvm::SmallVector<llvm::StringRef, 4> words;
      llvm::StringRef(value).split(words, ',', -1, false);
      for (llvm::StringRef text : words)
        options.threads.push_back(
            static_cast<unsigned>(std::max(1, std::atoi(text.str().c_str()))));
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !options.library.empty() && !options.rewritten.empty();
}

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(stderr,
               "usage: bench_whole_model --library PATH --kvopt M [--growing M] [--shared M]\n"
               "  [--depth 4096] [--threads 1,2] [--steps N] [--turns N]\n");
    return 2;
  }
  auto runtime = OnnxRuntime::load(options.library);
  if (!runtime) {
    fmt::print(stderr, "peers skipped: {}\n", llvm::toString(runtime.takeError()));
    return 77;
  }
  const Registries registries;
  Bench bench(options, **runtime, registries);
  if (llvm::Error error = bench.run()) {
    fmt::print(stderr, "{}\n", llvm::toString(std::move(error)));
    return 1;
  }
  return 0;
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) { return kvopt::main(argc, argv); }
