// Recognition of decoders that nobody wrote: thousands of random compositions of spellings, whose
// facts are known from their making.
//
//   KVOPT_GENERATED_SEED=N      the first seed
//   KVOPT_GENERATED_FOLDER=DIR  writes every decoder to DIR/<seed>.onnx
//   KVOPT_GENERATED_CENSUS=1    prints how many decoders of each spelling are recognized
#include "ir/onnx/export.h"
#include "support/format.h"
#include "tests/generated/missed_spellings.h"
#include "tests/generated/near_misses.h"
#include "tests/generated/recognition.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#ifdef __has_feature
#define KVOPT_HAS_FEATURE(feature) __has_feature(feature)
#else
#define KVOPT_HAS_FEATURE(feature) 0
#endif

namespace kvopt::generated {
using namespace driver;

namespace {

constexpr uint64_t shards = 20;
#if defined(__SANITIZE_ADDRESS__) || KVOPT_HAS_FEATURE(address_sanitizer)
constexpr uint64_t decodersOfShard = 10; // each takes ten times as long
constexpr size_t pairsOneIn = 10;
#else
constexpr uint64_t decodersOfShard = 250;
constexpr size_t pairsOneIn = 1;
#endif
/// One decoder in 5 has a near miss, and one in 4 of those recognized is rewritten and run.
constexpr uint64_t nearMissOneIn = 5;
constexpr uint64_t runOneIn = 4;

uint64_t firstSeed() {
  const char* text = std::getenv("KVOPT_GENERATED_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 1;
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
    return fmt::format("{}", fmt::join(recognition.reasons, " "));
  if (recognition.cachesRepeats)
    return "repeats-cached";
  return recognition.provesMasks ? "" : "mask-unproven";
}

std::vector<std::string> namesOf(const MissedSpelling& missed) {
  llvm::SmallVector<llvm::StringRef, 3> names;
  missed.names.split(names, ' ');
  return {names.begin(), names.end()};
}

bool hasAll(const std::set<std::string>& spellings, const std::vector<std::string>& names) {
  return llvm::all_of(names, [&](const std::string& name) { return spellings.count(name) != 0; });
}

/// Whether decoders with these spellings may be missed.
bool isListed(const std::set<std::string>& spellings) {
  return llvm::any_of(missedSpellings, [&](const MissedSpelling& missed) {
    return hasAll(spellings, namesOf(missed));
  });
}

/// How many decoders there were, and what was found in them.
struct Count {
  unsigned decoders = 0;
  unsigned recognized = 0;
  unsigned proved = 0;
  std::map<std::string, unsigned> reasons;
};

class GeneratedDecoders : public testing::TestWithParam<uint64_t> {
protected:
  static void TearDownTestSuite() {
    if (!std::getenv("KVOPT_GENERATED_CENSUS"))
      return;
    fmt::print("{:32} {:>8} {:>10} {:>6}\n", "spelling", "decoders", "recognized", "proved");
    for (const auto& [spelling, count] : census) {
      std::string reasons;
      for (const auto& [reason, times] : count.reasons)
        reasons += fmt::format(" {} {}", reason, times);
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
  const uint64_t first = firstSeed() + GetParam() * decodersOfShard;
  for (uint64_t seed = first; seed < first + decodersOfShard; ++seed) {
    const GeneratedDecoder decoder = decoderOfSeed(seed, toolkit);
    SCOPED_TRACE(fmt::format("seed {}: {}{}", seed, fmt::join(decoder.spellings, " "),
                             decoder.nearMiss ? std::string("; ") + decoder.nearMiss->name : ""));
    if (const char* folder = std::getenv("KVOPT_GENERATED_FOLDER"))
      llvm::cantFail(ir::exportModel(*decoder.model, fmt::format("{}/{}.onnx", folder, seed)));
    const Recognition recognition = recognitionOf(decoder, toolkit);
    note(decoder, recognition);
    EXPECT_EQ(recognition.wrongFacts, std::vector<std::string>());
    if (!decoder.nearMiss && !isListed(decoder.spellings)) {
      EXPECT_EQ(shortcomingOf(recognition), "");
    }
    if (recognition.matched != 0 && (decoder.nearMiss || seed % runOneIn == 0))
      expectSameRewritten(decoder);
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, GeneratedDecoders, testing::Range<uint64_t>(0, shards));

/// Names of all spellings, as random decoders have them.
std::set<std::string> allSpellings(const Toolkit& toolkit) {
  std::set<std::string> names;
  for (uint64_t seed = 1; seed <= 2 * decodersOfShard; ++seed) {
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
  const Recognition recognition = recognitionOf(decoder, toolkit);
  EXPECT_EQ(recognition.wrongFacts, std::vector<std::string>());
  return shortcomingOf(recognition);
}

TEST(GeneratedSpellings, AreRecognizedUnlessListed) {
  const Toolkit toolkit;
  for (const std::string& name : allSpellings(toolkit))
    if (!isListed({name})) {
      EXPECT_EQ(shortcomingWith({name}, toolkit), "") << name;
    }
}

TEST(GeneratedSpellings, AreRecognizedInPairsUnlessListed) {
  const Toolkit toolkit;
  const std::set<std::string> names = allSpellings(toolkit);
  size_t pairs = 0;
  for (const std::string& name : names)
    for (const std::string& other : names)
      if (name < other && !isListed({name, other}) && pairs++ % pairsOneIn == 0) {
        EXPECT_EQ(shortcomingWith({name, other}, toolkit).value_or(""), "") << name << " " << other;
      }
}

/// What is recognized by now must leave the list.
TEST(GeneratedSpellings, AreMissedIfListed) {
  const Toolkit toolkit;
  for (const MissedSpelling& missed : missedSpellings) {
    SCOPED_TRACE(missed.names.str());
    if (missed.seed == 0) {
      EXPECT_EQ(shortcomingWith(namesOf(missed), toolkit), missed.found.str());
      continue;
    }
    const GeneratedDecoder decoder = decoderOfSeed(missed.seed, toolkit);
    EXPECT_TRUE(hasAll(decoder.spellings, namesOf(missed)));
    EXPECT_EQ(shortcomingOf(recognitionOf(decoder, toolkit)), missed.found.str());
  }
}

} // namespace
} // namespace kvopt::generated
