// Softmax in integers, limited to the most likely tokens, and random selection.
#include "runtime/session/sampling.h"

#include "runtime/kernels/support/philox.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include <algorithm>
#include <cmath>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

constexpr unsigned weightBits = 40; // for the most likely token
constexpr size_t mostScores = size_t{1} << 23;

/// Weights may be equal for different scores.
bool isMoreLikely(const SamplingCandidate& a, const SamplingCandidate& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

/// Candidate tokens in the order of their numbers.
void findCandidates(llvm::ArrayRef<float> scores, double temperature,
                    std::vector<SamplingCandidate>& candidates) {
  constexpr double unitsPerScore = 0x1.71547652b82fep+0 * 0x1p+32; // log2(e), in powerOfHalf's unit
  constexpr double mostUnits = (weightBits + 1) * 0x1p+32;
  const float largest = scores[static_cast<size_t>(largestScore(scores))];
  candidates.clear();
  candidates.reserve(scores.size());
  for (size_t token = 0; token < scores.size(); ++token) {
    SamplingCandidate candidate{uint64_t{1} << weightBits, scores[token],
                                static_cast<int64_t>(token)};
    if (candidate.score != largest) {
      const double below = static_cast<double>(largest) - static_cast<double>(candidate.score);
      const double units = below / temperature * unitsPerScore;
      if (!(units < mostUnits))
        continue;
      candidate.weight = powerOfHalf(static_cast<uint64_t>(units));
    }
    if (candidate.weight != 0)
      candidates.push_back(candidate);
  }
}

uint64_t massOf(llvm::ArrayRef<SamplingCandidate> candidates) {
  uint64_t mass = 0;
  for (const SamplingCandidate& candidate : candidates)
    mass += candidate.weight;
  return mass;
}

void keepMostLikely(std::vector<SamplingCandidate>& candidates, int64_t count) {
  if (count == 0 || static_cast<uint64_t>(count) >= candidates.size())
    return;
  std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(), isMoreLikely);
  candidates.resize(static_cast<size_t>(count));
}

/// Keeps the shortest prefix, in order of likelihood, with the given share of the total weight.
void keepShare(std::vector<SamplingCandidate>& candidates, double share) {
  if (share >= 1)
    return;
  const double wanted = share * static_cast<double>(massOf(candidates));
  auto isLessLikely = [](const SamplingCandidate& a, const SamplingCandidate& b) {
    return isMoreLikely(b, a);
  };
  std::make_heap(candidates.begin(), candidates.end(), isLessLikely);
  uint64_t mass = 0;
  auto end = candidates.end();
  do {
    std::pop_heap(candidates.begin(), end, isLessLikely);
    mass += (--end)->weight;
  } while (end != candidates.begin() && static_cast<double>(mass) < wanted);
  candidates.erase(candidates.begin(), end);
}

/// Uniform in 0 … bound-1, by rejection sampling.
uint64_t drawBelow(uint64_t bound, uint64_t seed, SamplingPlace place) {
  uint64_t mask = ~uint64_t{0} >> __builtin_clzll(bound | 1);
  const auto position = static_cast<uint64_t>(place.position);
  for (uint32_t attempt = 0;; ++attempt) {
    const std::array<uint32_t, 4> bits =
        philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                static_cast<uint32_t>(place.row), attempt},
               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (size_t half : {size_t{0}, size_t{2}}) {
      const uint64_t draw = (uint64_t{bits[half + 1]} << 32 | bits[half]) & mask;
      if (draw < bound)
        return draw;
    }
  }
}

} // namespace

llvm::Error checkSampling(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    return usageError("the temperature must be a number from 0 on, not {}", options.temperature);
  if (!(options.topP > 0 && options.topP <= 1))
    return usageError("top-p must be above 0 and at most 1, not {}", options.topP);
  if (options.topK < 0)
    return usageError("top-k must not be negative, it is {}", options.topK);
  return llvm::Error::success();
}

llvm::Expected<std::vector<float>> readScores(const TensorView& scores) {
  std::vector<float> values;
  if (llvm::Error error = readScores(scores, values))
    return error;
  return values;
}

llvm::Error readScores(const TensorView& scores, std::vector<float>& values) {
  if (scores.rank() != 1 || scores.shape[0] < 1)
    return invalid("there are no scores");
  if (static_cast<uint64_t>(scores.shape[0]) > mostScores)
    return unsupported("there are {} scores, at most {} are supported", scores.shape[0],
                       mostScores);
  values.clear();
  values.reserve(static_cast<size_t>(scores.shape[0]));
  for (int64_t i = 0; i < scores.shape[0]; ++i) {
    const int64_t at = i * scores.strides[0];
    float value = 0;
    if (scores.element == ElementType::Float)
      value = scores.as<float>()[at];
    else if (scores.element == ElementType::Float16)
      value = f16ToFloat(scores.as<uint16_t>()[at]);
    else if (scores.element == ElementType::BFloat16)
      value = bf16ToFloat(scores.as<uint16_t>()[at]);
    else
      return unsupported("scores of element type {}", onnxName(scores.element));
    if (std::isnan(value))
      return invalid("the score of token {} is not a number", i);
    values.push_back(value);
  }
  return llvm::Error::success();
}

int64_t largestScore(llvm::ArrayRef<float> scores) {
  assert(!scores.empty());
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

uint64_t powerOfHalf(uint64_t units) {
  const uint64_t halvings = units >> 32;
  if (halvings > weightBits)
    return 0;
  // 2^-f = e^-t with t = f ln 2 < 0.7: its series in Horner form, in units of 2^-32. The first
  // omitted term is below half a unit.
  constexpr uint64_t one = uint64_t{1} << 32;
  constexpr uint64_t logOfTwo = 0xB17217F7;
  const uint64_t t = (units & (one - 1)) * logOfTwo >> 32;
  uint64_t power = one;
  for (uint64_t term = 11; term > 0; --term)
    power = one - (t * power >> 32) / term;
  return (power << (weightBits - 32)) >> halvings;
}

int64_t sampleToken(llvm::ArrayRef<float> scores, const SamplingOptions& options,
                    SamplingPlace place) {
  std::vector<SamplingCandidate> memory;
  return sampleToken(scores, options, place, memory);
}

int64_t sampleToken(llvm::ArrayRef<float> scores, const SamplingOptions& options,
                    SamplingPlace place, std::vector<SamplingCandidate>& candidates) {
  assert(!scores.empty() && scores.size() <= mostScores);
  assert(place.position >= 0 && place.row >= 0);
  if (options.temperature == 0)
    return largestScore(scores);
  findCandidates(scores, options.temperature, candidates);
  keepMostLikely(candidates, options.topK);
  keepShare(candidates, options.topP);
  // The order of the remaining candidates depends on the selection algorithm.
  std::sort(
      candidates.begin(), candidates.end(),
      [](const SamplingCandidate& a, const SamplingCandidate& b) { return a.token < b.token; });
  uint64_t draw = drawBelow(massOf(candidates), options.seed, place);
  for (const SamplingCandidate& candidate : candidates) {
    if (draw < candidate.weight)
      return candidate.token;
    draw -= candidate.weight;
  }
  assert(false && "the draw is below the mass");
  return candidates.back().token;
}

} // namespace kvopt::runtime
