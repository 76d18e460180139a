// Runs one model for measurements.
#include "cli/running/bench_subject.h"

#include "driver/first_step.h"
#include "driver/recover.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/kernels/support/philox.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"

#include <chrono>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace kernels;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

constexpr int64_t chunkTokens = 512; // limits the temporary memory of bringTo

bool isTokenInput(const Value& input) {
  return input.name() == "input_ids" || input.name() == "decoder_input_ids";
}

int64_t tokenAt(int64_t row, int64_t position, int64_t vocabulary) {
  uint32_t bits = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                          static_cast<uint32_t>(row), 0},
                         {0, 0})[0];
  return static_cast<int64_t>(bits) % vocabulary;
}

} // namespace

llvm::Expected<std::unique_ptr<BenchSubject>> BenchSubject::open(const std::string& path,
                                                                 const Toolkit& toolkit) {
  std::unique_ptr<BenchSubject> subject(new BenchSubject);
  subject->known = &toolkit;
  auto imported = openModel(path, toolkit);
  if (!imported)
    return imported.takeError();
  subject->model = std::move(*imported);
  const Graph& graph = subject->model->graph();
  if (llvm::Error error = inferShapes(subject->model->graph()))
    return withFile(std::move(error), path);
  auto manifest = drivingManifest(*subject->model, toolkit);
  if (!manifest)
    return manifest.takeError();
  subject->manifest = std::move(*manifest);
  if (auto first = openFirstStep(path, subject->manifest, toolkit); !first)
    return first.takeError();
  auto weights = weightSpans(graph);
  if (!weights)
    return withFile(weights.takeError(), path);
  subject->weights = std::move(*weights);
  // If the number of token ids is unknown, all tokens are 0.
  auto vocabulary = vocabularyOf(graph, subject->manifest.inputs);
  if (vocabulary)
    subject->vocabulary = std::max<int64_t>(1, *vocabulary);
  else
    llvm::consumeError(vocabulary.takeError());
  return subject;
}

llvm::Error BenchSubject::start(const SubjectSettings& settings) {
  stop();
  for (const std::unique_ptr<Value>& input : model->graph().inputs()) {
    std::optional<int64_t> tokens =
        isTokenInput(*input) ? input->type().dim(1).value() : std::nullopt;
    if (tokens && *tokens != 1)
      return unsupported("input '{}' takes {} tokens at a time, not one", input->name(), *tokens);
    isSingleStep |= tokens.has_value();
  }
  SessionOptions options;
  options.pool = settings.pool;
  options.batch = settings.batch;
  if (!manifest.capacityValue)
    options.capacity = settings.capacity;
  auto created = Session::create(*model, known->runner->kernels(), manifest, options);
  if (!created)
    return created.takeError();
  session = std::move(*created);
  pool = settings.pool;
  return llvm::Error::success();
}

void BenchSubject::stop() {
  session.reset();
  cachelessLength = 0;
}

int64_t BenchSubject::length() const { return hasCaches() ? session->length() : cachelessLength; }

llvm::Error BenchSubject::restart() {
  cachelessLength = 0;
  return session->reset();
}

llvm::Expected<double> BenchSubject::step(int64_t newTokens) {
  const int64_t past = length();
  const int64_t first = hasCaches() ? past : 0;
  DecoderStep input;
  input.pastLength = first;
  for (int64_t row = 0; row < session->batch(); ++row) {
    input.tokens.emplace_back();
    for (int64_t position = first; position < past + newTokens; ++position)
      input.tokens.back().push_back(tokenAt(row, position, vocabulary));
  }
  auto tensors = decoderInputs(*session, input);
  if (!tensors)
    return tensors.takeError();
  std::vector<NamedView> views;
  for (const NamedTensor& tensor : *tensors)
    views.push_back({tensor.name, tensor.tensor.view});
  auto start = std::chrono::steady_clock::now();
  auto result = session->step(views, past + newTokens - first);
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!result)
    return result.takeError();
  cachelessLength = past + newTokens;
  return elapsed.count();
}

int64_t BenchSubject::stepTokens(int64_t wanted) const {
  return isSingleStep ? 1 : std::min(wanted, session->mostStepTokens());
}

llvm::Expected<double> BenchSubject::prefill(int64_t tokens) {
  if (llvm::Error error = restart())
    return error;
  double seconds = 0;
  for (int64_t done = 0; done < tokens;) {
    const int64_t count = stepTokens(tokens - done);
    auto elapsed = step(count);
    if (!elapsed)
      return elapsed.takeError();
    seconds += *elapsed;
    done += count;
  }
  return seconds;
}

llvm::Error BenchSubject::bringTo(int64_t depth) {
  if (!hasCaches()) {
    cachelessLength = depth;
    return llvm::Error::success();
  }
  if (length() > depth)
    if (llvm::Error error = session->crop(depth)) {
      // Caches that keep only their latest rows cannot be cropped and start again.
      llvm::consumeError(std::move(error));
      if (llvm::Error again = restart())
        return again;
    }
  while (length() < depth) {
    auto elapsed = step(stepTokens(std::min(chunkTokens, depth - length())));
    if (!elapsed)
      return elapsed.takeError();
  }
  return llvm::Error::success();
}

double BenchSubject::readFloor(const MemorySpans& rows) const {
  return readSeconds({&weights.spans, &rows}, *pool);
}

int64_t BenchSubject::temporaryBytes() const {
  return session->statistics().lastRun.temporaryPeak();
}

} // namespace kvopt::cli
