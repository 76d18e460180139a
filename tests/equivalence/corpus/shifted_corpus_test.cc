// Every model of the corpus whose context can be shifted: the rows of its first layer are then
// those of a session that has never seen the dropped tokens.
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include <numeric>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

constexpr int64_t shiftedTokens = 12;

/// Feeds tokens one by one: every model takes steps of one.
void feedOneByOne(Session& session, llvm::ArrayRef<int64_t> places, int64_t vocabulary) {
  for (int64_t place : places) {
    DecoderStep step;
    step.pastLength = session.length();
    step.tokens = {{(place * 7 + 3) % vocabulary}};
    valueOrThrow(stepDecoder(session, step));
  }
}

/// What differs in the first layer after a shift; empty if nothing does, nullopt where the model
/// cannot be run or shifted.
std::optional<std::string> differenceAfterShift(const std::string& path, const Toolkit& toolkit,
                                                const std::string& target) {
  const DrivenModel driven =
      target.empty() ? asExported(path, toolkit) : rewritten(path, toolkit, "capacity=24", target);
  if (!driven.manifest.rotations)
    return std::nullopt;
  const int64_t vocabulary = valueOrThrow(vocabularyOf(driven.model->graph()));
  SessionOptions options;
  options.capacity = 24;
  auto shifted = valueOrThrow(
      Session::create(*driven.model, toolkit.runner->kernels(), driven.manifest, options));
  if (llvm::errorToBool(shifted->checkShift()))
    return std::nullopt;
  std::vector<int64_t> places(shiftedTokens);
  std::iota(places.begin(), places.end(), 0);
  feedOneByOne(*shifted, places, vocabulary);
  successOrThrow(shifted->shift(3, 4));
  places.erase(places.begin() + 3, places.begin() + 7);
  auto fresh = valueOrThrow(
      Session::create(*driven.model, toolkit.runner->kernels(), driven.manifest, options));
  feedOneByOne(*fresh, places, vocabulary);
  std::string differences;
  int64_t compared = 0;
  for (size_t i = 0; i < shifted->cacheCount(); ++i) {
    const ManifestCache& cache = shifted->cacheInfo(i);
    if (cache.layer != 0 || cache.dtype == ElementType::Int8 || isScale(cache.role))
      continue;
    const auto axis = static_cast<unsigned>(cache.sequenceAxis);
    const Tensor ownRows = valueOrThrow(shifted->cacheRows(i));
    const TensorView own = sliceAxis(ownRows.view, axis, 0, shifted->length());
    const Tensor otherRows = valueOrThrow(fresh->cacheRows(i));
    const TensorView other = sliceAxis(otherRows.view, axis, 0, fresh->length());
    // Two units in the last place of rows below 8.
    const double tolerance = cache.dtype == ElementType::BFloat16  ? 0x1p-4
                             : cache.dtype == ElementType::Float16 ? 0x1p-7
                                                                   : 1e-3;
    const auto rows = valueOrThrow(compareTensors(own, other, {tolerance, 0}));
    compared += rows.compared;
    if (!rows.isWithin())
      differences += formatted("{} differs by {}; ", cache.past, rows.maxAbs);
  }
  if (compared == 0)
    return std::nullopt;
  return differences;
}

class ShiftedCorpus : public CorpusTest {};

TEST_F(ShiftedCorpus, FirstLayersAreThoseOfAPrefill) {
  const Toolkit toolkit;
  size_t seen = 0;
  for (const fs::path& folder : {corpusFolder(), corpusFolder().parent_path() / "corpus2"})
    for (const std::string& name : sampleOf(foldersWith(folder, "model.onnx")))
      for (const char* target : {"", "kvopt"}) {
        SCOPED_TRACE(formatted("{} {}", name, target));
        std::optional<std::string> differences;
        try {
          differences =
              differenceAfterShift((folder / name / "model.onnx").string(), toolkit, target);
        } catch (const std::runtime_error&) {
          continue; // cannot be run, one token at a time, or rewritten
        }
        if (!differences)
          continue;
        EXPECT_EQ(*differences, "");
        ++seen;
      }
  EXPECT_GE(seen, leastInSample(71));
}

} // namespace
} // namespace kvopt
