// Recognition of decoders that nobody wrote: thousands of random compositions of spellings, whose
// facts are known from their making.
//
//   KVOPT_GENERATED_SEED=N      the first seed
//   KVOPT_GENERATED_COUNT=N     how many of each shard
//   KVOPT_GENERATED_PAIRS=N     one of N pairs of spellings; all of them for 1
//   KVOPT_GENERATED_FOLDER=DIR  writes random decoders to DIR/<seed>.onnx, and those with chosen
//                               spellings to DIR/<spellings>.onnx
//   KVOPT_GENERATED_CENSUS=1    prints how many decoders of each spelling are recognized
#include "ir/onnx/export.h"
#include "support/format.h"
#include "tests/generated/near_misses.h"
#include "tests/generated/recognition.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace kvopt::generated {
using namespace driver;
using testing::AnyOf;

namespace {

constexpr uint64_t shards = 20;
constexpr uint64_t decodersOfShard = 24;
/// As many random decoders as have every spelling.
constexpr uint64_t decodersWithAllSpellings = 500;
constexpr uint64_t pairsOneIn = 4;
/// One decoder in 5 has a near miss, and one in 4 of those recognized is rewritten and run.
constexpr uint64_t nearMissOneIn = 5;
constexpr uint64_t runOneIn = 4;

uint64_t numberIn(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

GeneratedDecoder decoderOfSeed(uint64_t seed, const Toolkit& toolkit) {
  const auto misses = nearMisses();
  const bool isNearMiss = seed % nearMissOneIn == 0;
  const NearMiss* miss = isNearMiss ? &misses[seed / nearMissOneIn % misses.size()] : nullptr;
  return generatedDecoder(randomRecipe(seed, miss), toolkit.ops);
}

/// What a decoder gives in place of recognized layers with proved masks; empty for those.
std::string shortcomingOf(const Recognition& recognition) {
  if (!recognition.isWhole())
    return joinedText(recognition.reasons, " ");
  if (recognition.cachesRepeats)
    return "repeats-cached";
  return recognition.provesMasks ? "" : "mask-unproven";
}

bool hasAll(const std::set<std::string>& spellings, const std::vector<std::string>& names) {
  return llvm::all_of(names, [&](const std::string& name) { return spellings.count(name) != 0; });
}

/// Whether a mask may stay an operand, of a decoder whose rows are placed by an input: where
/// another input says which keys they see, that both say the same is a condition on what is fed;
/// and of two tables that are cut at that place it is not read that both cuts have as many rows.
bool mayKeepMask(const GeneratedDecoder& decoder) {
  const bool hasWindow =
      llvm::any_of(decoder.sizes.windows, [](int64_t rows) { return rows != 0; });
  const bool cutsTwo = decoder.spellings.count("seen/SlicedTable") != 0 &&
                       decoder.spellings.count("window/SlicedTable") != 0;
  return decoder.sizes.isStatic && hasWindow &&
         (cutsTwo || decoder.spellings.count("seen/PositionIds") != 0);
}

/// How many decoders there were, and what was found in them.
struct Count {
  unsigned decoders = 0;
  unsigned recognized = 0;
  unsigned proved = 0;
  std::map<std::string, unsigned> reasons;
};

/// Writes the decoder where KVOPT_GENERATED_FOLDER asks for it.
void keep(const GeneratedDecoder& decoder, const std::string& name) {
  if (const char* folder = std::getenv("KVOPT_GENERATED_FOLDER"))
    llvm::cantFail(ir::exportModel(*decoder.model, formatted("{}/{}.onnx", folder, name)));
}

class GeneratedDecoders : public testing::TestWithParam<uint64_t> {
protected:
  static void TearDownTestSuite() {
    if (!std::getenv("KVOPT_GENERATED_CENSUS"))
      return;
    fmt::print("{:32} {:>8} {:>10} {:>6}\n", "spelling", "decoders", "recognized", "proved");
    for (const auto& [spelling, count] : census) {
      std::string reasons;
      for (const auto& [reason, times] : count.reasons)
        reasons += formatted(" {} {}", reason, times);
      fmt::print("{:32} {:8} {:10} {:6} {}\n", spelling, count.decoders, count.recognized,
                 count.proved, reasons);
    }
  }

  static void note(const std::string& name, const Recognition& recognition) {
    Count& count = census[name];
    ++count.decoders;
    count.recognized += recognition.isWhole() ? 1 : 0;
    count.proved += recognition.provesMasks ? 1 : 0;
    for (const std::string& reason : recognition.reasons)
      ++count.reasons[reason];
  }

  static void note(const GeneratedDecoder& decoder, const Recognition& recognition) {
    if (decoder.nearMiss)
      return note(std::string("near miss/") + decoder.nearMiss->name, recognition);
    note("all", recognition);
    for (const std::string& name : decoder.spellings)
      note(name, recognition);
  }

  void expectSameRewritten(const GeneratedDecoder& decoder) {
    for (const char* target : {"primitive", "kvopt"})
      EXPECT_EQ(rewriteDifference(decoder, target, toolkit), "") << "written for " << target;
  }

  static inline std::map<std::string, Count> census;
  Toolkit toolkit;
};

TEST_P(GeneratedDecoders, AreTakenForWhatTheyAre) {
  const uint64_t count = numberIn("KVOPT_GENERATED_COUNT", decodersOfShard);
  const uint64_t first = numberIn("KVOPT_GENERATED_SEED", 1) + GetParam() * count;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const GeneratedDecoder decoder = decoderOfSeed(seed, toolkit);
    SCOPED_TRACE(formatted("seed {}: {}{}", seed, joinedText(decoder.spellings, " "),
                           decoder.nearMiss ? std::string("; ") + decoder.nearMiss->name : ""));
    keep(decoder, formatted("{}", seed));
    const Recognition recognition = recognitionOf(decoder, toolkit);
    note(decoder, recognition);
    EXPECT_EQ(recognition.wrongFacts, std::vector<std::string>());
    if (!decoder.nearMiss) {
      EXPECT_THAT(shortcomingOf(recognition),
                  AnyOf("", mayKeepMask(decoder) ? "mask-unproven" : ""));
    }
    if (recognition.matched != 0 && (decoder.nearMiss || seed % runOneIn == 0))
      expectSameRewritten(decoder);
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, GeneratedDecoders, testing::Range<uint64_t>(0, shards));

/// Names of all spellings, as random decoders have them; they are the same for all tests.
const std::set<std::string>& allSpellings(const Toolkit& toolkit) {
  static std::set<std::string> names;
  if (!names.empty())
    return names;
  for (uint64_t seed = 1; seed <= decodersWithAllSpellings; ++seed) {
    const GeneratedDecoder decoder = generatedDecoder(randomRecipe(seed, nullptr), toolkit.ops);
    names.insert(decoder.spellings.begin(), decoder.spellings.end());
  }
  return names;
}

/// What a decoder gives that has these spellings and common ones; nullopt where it cannot have all.
std::optional<std::string> shortcomingWith(const std::vector<std::string>& spellings,
                                           const Toolkit& toolkit) {
  const GeneratedDecoder decoder = generatedDecoder(plainRecipe(spellings), toolkit.ops);
  if (!hasAll(decoder.spellings, spellings))
    return std::nullopt;
  std::string name = joinedText(spellings, "_");
  std::replace(name.begin(), name.end(), '/', '-');
  keep(decoder, name);
  const Recognition recognition = recognitionOf(decoder, toolkit);
  EXPECT_EQ(recognition.wrongFacts, std::vector<std::string>());
  const std::string shortcoming = shortcomingOf(recognition);
  return shortcoming == "mask-unproven" && mayKeepMask(decoder) ? "" : shortcoming;
}

TEST(GeneratedSpellings, AreRecognized) {
  const Toolkit toolkit;
  for (const std::string& name : allSpellings(toolkit))
    EXPECT_EQ(shortcomingWith({name}, toolkit), "") << name;
}

TEST(GeneratedSpellings, AreRecognizedInPairs) {
  const Toolkit toolkit;
  const std::set<std::string>& names = allSpellings(toolkit);
  const uint64_t oneIn = std::max<uint64_t>(1, numberIn("KVOPT_GENERATED_PAIRS", pairsOneIn));
  uint64_t pairs = 0;
  for (const std::string& name : names)
    for (const std::string& other : names)
      if (name < other && pairs++ % oneIn == 0) {
        EXPECT_EQ(shortcomingWith({name, other}, toolkit).value_or(""), "") << name << " " << other;
      }
}

} // namespace
} // namespace kvopt::generated
