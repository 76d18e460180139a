// Decoders in ONNX Runtime with the library and with the engine's own kernels or function bodies:
//   provider_sessions [--written | --custom-operators | --growing] MODEL…
// --written: with the provider, for files that kvopt wrote. --growing: with the provider, for files
// whose presents are longer than their pasts. The first model without an option is opened 1,000
// times.
// Prints one line per model, and exits with 1 where something differs.
#include "tests/engines/onnxruntime/decoding.h"

#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

namespace kvopt {
namespace {

constexpr int64_t capacity = 64;

/// The entry of the library under test.
LibraryEntry entry = LibraryEntry::provider;
/// How caches are bound where a test does not vary it.
Binding usualBinding = Binding::oneBuffer;

void require(bool holds, const std::string& what) {
  if (!holds)
    throw std::runtime_error(what);
}

/// Where a prompt of a batch is padded.
enum class Padding { none, left, right };

/// A prompt, tokens, for one sequence also a chunk after a past, and tokens.
std::vector<Step> stepsOf(int64_t batch, Padding padding, int64_t prompt) {
  std::mt19937 random(7);
  std::vector<int64_t> counts = {prompt, 1, 1, 1};
  if (batch == 1)
    counts.insert(counts.end(), {3, 1, 5, 1});
  std::vector<Step> steps;
  for (const int64_t count : counts) {
    Step step{count, {}, std::vector<int64_t>(static_cast<size_t>(batch * count), 1)};
    for (int64_t i = 0; i < batch * count; ++i)
      step.tokens.push_back(static_cast<int64_t>(random() % 100 + 1));
    // Batch row b has b tokens of padding.
    if (steps.empty() && padding != Padding::none)
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t i = 0; i < std::min(b, count - 1); ++i)
          step.mask[static_cast<size_t>(b * count +
                                        (padding == Padding::left ? i : count - 1 - i))] = 0;
    steps.push_back(std::move(step));
  }
  return steps;
}

/// Whether a token of a step is compared. GroupQueryAttention counts the ones of the mask, so that
/// the first ones of a row are its tokens; other models read the mask.
bool isCompared(const Step& step, int64_t batch, int64_t token, bool readsMask) {
  const auto row = step.mask.begin() + batch * step.count;
  return readsMask ? row[token] != 0 : token < std::accumulate(row, row + step.count, int64_t{0});
}

/// Largest difference of logits relative to the largest logit, over tokens that are no padding.
double differenceOf(const std::vector<float>& mine, const std::vector<float>& theirs,
                    const Step& step, int64_t batch, bool readsMask) {
  require(mine.size() == theirs.size(), "the logits differ in number");
  const size_t columns = mine.size() / static_cast<size_t>(batch * step.count);
  double largest = 0, difference = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < step.count; ++t)
      for (size_t c = 0; c < columns && isCompared(step, b, t, readsMask); ++c) {
        const size_t i = static_cast<size_t>(b * step.count + t) * columns + c;
        require(std::isfinite(mine[i]), "a logit is not finite");
        largest = std::max(largest, std::fabs(static_cast<double>(theirs[i])));
        difference = std::max(
            difference, std::fabs(static_cast<double>(mine[i]) - static_cast<double>(theirs[i])));
      }
  return difference / std::max(largest, 1e-3);
}

struct Case {
  Binding binding;
  int64_t batch;
  Padding padding;
  int64_t prompt;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Binding binding : {Binding::growing, Binding::oneBuffer, Binding::twoBuffers})
    for (const int64_t batch : {1, 2, 3})
      for (const Padding padding : {Padding::none, Padding::left, Padding::right})
        if (batch > 1 || padding == Padding::none)
          all.push_back({binding, batch, padding, batch == 1 ? 40 : 7});
  return all;
}

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// Numbers of claimed nodes: what follows "claimed " in lines of the log.
int claimedIn(const std::string& log) {
  int count = 0;
  for (size_t at = log.find("claimed "); at != std::string::npos; at = log.find("claimed ", at + 1))
    count += std::atoi(log.c_str() + at + 8);
  return count;
}

/// Largest difference over all steps; nullopt where the engine alone refuses this way of binding.
std::optional<double> differenceOfSteps(Ort::Session& mine, Ort::Session& theirs, const Case& of) {
  double largest = 0;
  Decoding with(mine, of.binding, of.batch, capacity);
  const Binding plain = of.binding == Binding::twoBuffers ? Binding::oneBuffer : of.binding;
  Decoding without(theirs, plain, of.batch, capacity);
  if (with.isInPlace() && of.binding == Binding::growing)
    return std::nullopt;
  // States of convolutions keep what rows of padding compute, which is not defined.
  if (with.hasStates() && of.padding != Padding::none)
    return std::nullopt;
  for (const Step& step : stepsOf(of.batch, of.padding, of.prompt)) {
    std::vector<float> expected;
    try {
      expected = without.take(step);
    } catch (const Ort::Exception&) {
      return std::nullopt;
    }
    largest = std::max(largest,
                       differenceOf(with.take(step), expected, step, of.batch, with.isInPlace()));
  }
  return largest;
}

/// Tolerance relative to the largest logit: five roundings of float16 where the logits are such
/// numbers.
double toleranceOf(Ort::Session& session) {
  const auto logits = session.GetOutputTypeInfo(0);
  const auto type = logits.GetTensorTypeAndShapeInfo().GetElementType();
  return type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ? 5.0 / 1024 : 2e-5;
}

void testEqual(TestEngine& engine, const std::string& path) {
  double largest = 0;
  int claimed = 0;
  Ort::Session theirs = engine.open(path, {LibraryEntry::none, 1, ORT_ENABLE_ALL, ""});
  const double tolerance = toleranceOf(theirs);
  size_t compared = 0;
  const std::vector<Case> all = cases();
  for (const int threads : {1, 2}) {
    engine.takeLog();
    Ort::Session mine = engine.open(path, {entry, threads, ORT_ENABLE_ALL, ""});
    const std::string log = engine.takeLog();
    claimed = claimedIn(log);
    require(entry == LibraryEntry::customOperators || claimed > 0, "nothing was claimed: " + log);
    compared = 0;
    for (const Case& of : all) {
      const std::optional<double> difference = differenceOfSteps(mine, theirs, of);
      if (!difference)
        continue;
      ++compared;
      largest = std::max(largest, *difference);
      require(*difference <= tolerance, "binding " + std::to_string(static_cast<int>(of.binding)) +
                                            ", batch " + std::to_string(of.batch) + ", padding " +
                                            std::to_string(static_cast<int>(of.padding)) +
                                            ": the logits differ by " +
                                            std::to_string(*difference));
    }
    require(4 * compared >= all.size(), "most cases were not compared");
    // Each node that writes a cache says only once that it copies, which also shows that the
    // library ran it.
    const auto notices = static_cast<int>(countOf(engine.takeLog(), "copies"));
    if (entry == LibraryEntry::customOperators)
      claimed = notices;
    const bool hasNotices = !Decoding(mine, usualBinding, 1, capacity).isScattered();
    require(claimed > 0 && notices == (hasNotices ? claimed : 0),
            std::to_string(notices) + " notices of copies for " + std::to_string(claimed) +
                " nodes");
  }
  std::printf("%s: %d nodes, %zu of %zu cases, largest difference %.1e of the largest logit\n",
              path.c_str(), claimed, compared, all.size(), largest);
}

/// The message of the error that a step raises.
std::string errorOf(Decoding& decoding, const Step& step) {
  try {
    decoding.take(step);
  } catch (const Ort::Exception& error) {
    return error.what();
  }
  return "";
}

void testErrors(TestEngine& engine, const std::string& path) {
  Ort::Session session = engine.open(path, {entry, 1, ORT_ENABLE_ALL, ""});
  for (const Binding binding : {Binding::oneBuffer, Binding::twoBuffers}) {
    Decoding small(session, binding, 1, 8);
    if (small.hasFixedRows())
      continue;
    const std::vector<Step> steps = stepsOf(1, Padding::none, 8);
    small.take(steps[0]);
    require(!errorOf(small, steps[1]).empty(), "a ninth token fits into eight rows");
  }
  if (Decoding empty(session, Binding::oneBuffer, 1, capacity); !empty.isInPlace()) {
    Step step = stepsOf(1, Padding::none, 3)[0];
    step.mask = {0, 0, 0};
    const std::string error = errorOf(empty, step);
    require(error.find("seqlens_k") != std::string::npos, "an empty mask: '" + error + "'");
  }
  Decoding after(session, Binding::oneBuffer, 1, capacity);
  after.take(stepsOf(1, Padding::none, 4)[0]);
}

void testOption(TestEngine& engine, const std::string& path) {
  engine.takeLog();
  Ort::Session off = engine.open(path, {entry, 1, ORT_ENABLE_ALL, "1"});
  const std::string log = engine.takeLog();
  require(log.find("claimed nothing") != std::string::npos &&
              log.find("switched off") != std::string::npos,
          "ep.kvopt.off=1 says: " + log);
  Decoding(off, usualBinding, 1, capacity).take(stepsOf(1, Padding::none, 4)[0]);
  try {
    engine.open(path, {entry, 1, ORT_ENABLE_ALL, "yes"});
    throw std::runtime_error("ep.kvopt.off=yes is accepted");
  } catch (const Ort::Exception& error) {
    require(std::string(error.what()).find("ep.kvopt.off") != std::string::npos, error.what());
  }
}

std::vector<float> lastLogits(Ort::Session& session, int64_t batch) {
  Decoding decoding(session, usualBinding, batch, capacity);
  std::vector<float> logits;
  for (const Step& step : stepsOf(batch, Padding::none, 12))
    logits = decoding.take(step);
  return logits;
}

/// Two sessions, and two runs of one session, at the same time.
void testThreads(TestEngine& engine, const std::string& path) {
  const SessionSettings settings{entry, 2, ORT_ENABLE_ALL, ""};
  Ort::Session first = engine.open(path, settings), second = engine.open(path, settings);
  const std::vector<float> expected[] = {lastLogits(first, 1), lastLogits(first, 3)};
  for (Ort::Session* other : {&second, &first}) {
    std::string problem;
    const auto run = [&](Ort::Session& session, int64_t batch) {
      for (int i = 0; i < 5; ++i)
        if (lastLogits(session, batch) != expected[batch / 2])
          problem = "results differ where two threads run";
    };
    std::thread thread([&] { run(*other, 3); });
    run(first, 1);
    thread.join();
    require(problem.empty(), problem);
  }
}

void testLifetime(TestEngine& engine, const std::string& path, int times) {
  for (int i = 0; i < times; ++i) {
    Ort::Session session = engine.open(path, {entry, 1, ORT_DISABLE_ALL, ""});
    if (i % 100 == 0)
      lastLogits(session, 2);
    engine.takeLog();
  }
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  using namespace kvopt;
  TestEngine engine;
  int failures = 0;
  int first = 1;
  const std::string option = argc > 1 ? argv[1] : "";
  const bool isUnmodified = option.rfind("--", 0) != 0;
  if (option == "--custom-operators")
    entry = LibraryEntry::customOperators;
  if (option == "--growing")
    usualBinding = Binding::growing;
  first += isUnmodified ? 0 : 1;
  for (int i = first; i < argc; ++i)
    try {
      const std::string path = argv[i];
      testEqual(engine, path);
      testThreads(engine, path);
      if (usualBinding != Binding::growing)
        testErrors(engine, path);
      if (entry == LibraryEntry::provider)
        testOption(engine, path);
      testLifetime(engine, path, i == 1 && isUnmodified ? 1000 : 3);
    } catch (const std::exception& error) {
      std::printf("%s: FAILED: %s\n", argv[i], error.what());
      ++failures;
    }
  return failures == 0 ? 0 : 1;
}
