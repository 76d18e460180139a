// Whatever is proved of a mask holds of the mask that the runtime computes, at every size tried.
#include "passes/analysis/mask/mask_predicate.h"
#include "tests/equivalence/recovery/mask_graphs.h"
#include "tests/equivalence/rewritten_model.h"

#include "ir/text/reader.h"
#include "runtime/exec/executor.h"

#include <cmath>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

struct Sizes {
  int64_t batch, past, sequence;
  int64_t keys() const { return past + sequence; }
};
constexpr Sizes everySize[] = {{1, 0, 1}, {2, 0, 5}, {1, 4, 1}, {2, 3, 4}, {1, 9, 2}, {2, 1, 8}};

const KernelRegistry& everyKernel() {
  static const KernelRegistry* kernels = [] {
    auto* filled = new KernelRegistry();
    registerAll(*filled);
    return filled;
  }();
  return *kernels;
}
const OpRegistry& everyOp() {
  static const OpRegistry* ops = [] {
    auto* filled = new OpRegistry();
    registerAll(*filled);
    return filled;
  }();
  return *ops;
}

/// A mask at one size, broadcast to [B,S,T].
struct ConcreteMask {
  Sizes sizes;
  std::vector<double> elements;
  bool isBoolean = false;
  double at(int64_t b, int64_t i, int64_t j) const {
    return elements[static_cast<size_t>((b * sizes.sequence + i) * sizes.keys() + j)];
  }
  bool isHidden(int64_t b, int64_t i, int64_t j) const {
    return isBoolean ? at(b, i, j) == 0 : at(b, i, j) <= -1e4;
  }
};

template <class T>
Tensor tensor(ElementType type, llvm::ArrayRef<int64_t> shape, const std::vector<T>& elements) {
  return valueOrThrow(
      Tensor::of<T>(std::make_shared<Allocator>(), type, shape, std::span<const T>(elements)));
}

/// What is fed as the rows' positions.
enum class Fed { Anything, Counting };

ConcreteMask compute(Executor& executor, const Sizes& sizes, std::mt19937& random, bool allOnes,
                     Fed fed = Fed::Anything) {
  std::vector<int64_t> attention(static_cast<size_t>(sizes.batch * sizes.keys()), 1);
  if (!allOnes)
    for (int64_t& element : attention)
      element = random() % 3 != 0;
  std::vector<int64_t> ids(static_cast<size_t>(sizes.batch * sizes.sequence), 1);
  std::vector<int64_t> positions(static_cast<size_t>(sizes.sequence));
  for (int64_t& position : positions)
    position = static_cast<int64_t>(random() % static_cast<unsigned>(sizes.keys()));
  if (fed == Fed::Counting)
    std::iota(positions.begin(), positions.end(), sizes.past);
  std::vector<float> past(static_cast<size_t>(sizes.batch * 2 * sizes.past * 8), 0.0f);
  Tensor inputs[] = {tensor(ElementType::Int64, {sizes.batch, sizes.sequence}, ids),
                     tensor(ElementType::Int64, {sizes.batch, sizes.keys()}, attention),
                     tensor(ElementType::Float, {sizes.batch, 2, sizes.past, 8}, past),
                     tensor(ElementType::Int64, {sizes.sequence}, positions),
                     tensor(ElementType::Int64, {sizes.batch, sizes.sequence}, ids)};
  std::vector<TensorView> views;
  for (const Tensor& input : inputs)
    views.push_back(input.view);
  std::vector<Tensor> outputs = valueOrThrow(executor.run(views));
  const TensorView& mask = outputs.at(0).view;
  ConcreteMask concrete;
  concrete.sizes = sizes;
  concrete.isBoolean = mask.element == ElementType::Bool;
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t i = 0; i < sizes.sequence; ++i)
      for (int64_t j = 0; j < sizes.keys(); ++j) {
        const int64_t index[] = {b, 0, i, j};
        int64_t offset = 0;
        for (unsigned axis = 0; axis < mask.rank(); ++axis)
          if (mask.shape[axis] != 1)
            offset += index[4 - mask.rank() + axis] * mask.strides[axis];
        concrete.elements.push_back(concrete.isBoolean
                                        ? static_cast<double>(mask.as<uint8_t>()[offset])
                                        : double{mask.as<float>()[offset]});
      }
  return concrete;
}

/// "" if what the facts claim is so.
std::string contradiction(const MaskFacts& facts, const ConcreteMask& mask) {
  const Sizes& sizes = mask.sizes;
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t i = 0; i < sizes.sequence; ++i) {
      bool seesAny = false;
      for (int64_t j = 0; j < sizes.keys(); ++j) {
        std::string place = formatted(" at b {} i {} j {} of S {} T {}: {}", b, i, j,
                                      sizes.sequence, sizes.keys(), mask.at(b, i, j));
        int64_t distance = i + sizes.past - j;
        bool hidden = mask.isHidden(b, i, j);
        seesAny |= !hidden;
        if (facts.hidesLaterKeys && distance < 0 && !hidden)
          return "a later key is seen" + place;
        if (facts.seesOwnKey && facts.padding.empty() && distance == 0 && hidden)
          return "a row does not see its own key" + place;
        if (facts.window > 0 && distance >= facts.window && !hidden)
          return "a key outside of the window is seen" + place;
        if (facts.causal == Proof::Proved) {
          bool isInside = distance >= 0 && (facts.window == 0 || distance < facts.window);
          if (!isInside && !hidden)
            return "causal does not hold" + place;
          if (isInside && facts.padding.empty() && hidden)
            return "causal hides too much" + place;
          // Padding does not depend on the row.
          for (int64_t other = 0; isInside && other < sizes.sequence; ++other) {
            int64_t otherDistance = other + sizes.past - j;
            if (otherDistance >= 0 && (facts.window == 0 || otherDistance < facts.window) &&
                mask.isHidden(b, other, j) != hidden)
              return "what is left is no padding" + place;
          }
        }
        if (!mask.isBoolean && hidden && facts.remaining != MaskFacts::Remaining::Other &&
            std::isfinite(mask.at(b, i, j)) &&
            (facts.isExact || mask.at(b, i, j) > facts.hiddenValue))
          return "hidden values" + place;
        if (!mask.isBoolean && !hidden && facts.bias == MaskFacts::Bias::None &&
            mask.at(b, i, j) != 0)
          return "an unexpected bias" + place;
      }
      if (facts.everyRowSeesAKey && !seesAny)
        return formatted("row {} sees no key", i);
    }
  return "";
}

bool isExactlyCausal(const ConcreteMask& mask) {
  for (int64_t b = 0; b < mask.sizes.batch; ++b)
    for (int64_t i = 0; i < mask.sizes.sequence; ++i)
      for (int64_t j = 0; j < mask.sizes.keys(); ++j)
        if (mask.isHidden(b, i, j) != (j > i + mask.sizes.past))
          return false;
  return true;
}

/// Without the elements of tables.
std::string abbreviated(const std::string& text) {
  std::string out;
  for (size_t start = 0, end = 0; end != text.npos; start = end + 1) {
    end = text.find('\n', start);
    out += text.substr(start, std::min<size_t>(end - start, 160)) + "\n";
  }
  return out;
}

struct Tally {
  unsigned proved = 0, refuted = 0, unproven = 0, provedOfMutated = 0, conditional = 0;
};

void check(unsigned seed, Tally& tally) {
  MaskGraph graph = MaskGraphWriter(seed).write();
  SCOPED_TRACE(formatted("seed {}: {}\n{}", seed, graph.description, abbreviated(graph.text)));
  std::unique_ptr<Model> model = valueOrThrow(readText(graph.text, everyOp()));
  successOrThrow(inferShapes(model->graph()));
  auto symbol = [](const char* name) { return Dim::symbol(name); };
  MaskAnalysis analysis;
  MaskFacts facts = analysis.facts({model->graph().outputs()[0],
                                    IndexSpace(symbol("batch"), Dim::fixed(4), symbol("sequence"),
                                               symbol("past") + symbol("sequence")),
                                    false, 0});
  auto executor = valueOrThrow(Executor::create(*model, everyKernel()));
  std::mt19937 random(seed);
  bool isCausalEverywhere = true;
  for (const Sizes& sizes : everySize)
    for (bool allOnes : {true, false}) {
      ConcreteMask mask = compute(*executor, sizes, random, allOnes);
      std::string found = contradiction(facts, mask);
      ASSERT_EQ(found, "") << facts.text;
      if (allOnes)
        isCausalEverywhere &= isExactlyCausal(mask);
    }
  if (facts.causal == Proof::Refuted) {
    ++tally.refuted;
    EXPECT_FALSE(isCausalEverywhere) << facts.counterExample;
  }
  if (facts.causalIf) {
    ++tally.conditional;
    EXPECT_EQ(facts.causal, Proof::Unproven);
    MaskFacts counted = facts;
    counted.causal = Proof::Proved;
    counted.window = facts.causalIf->window;
    for (const Sizes& sizes : everySize)
      for (bool allOnes : {true, false})
        ASSERT_EQ(contradiction(counted, compute(*executor, sizes, random, allOnes, Fed::Counting)),
                  "")
            << facts.causalIf->text;
  }
  tally.unproven += facts.causal == Proof::Unproven;
  if (facts.causal == Proof::Proved)
    ++(graph.isMutated ? tally.provedOfMutated : tally.proved);
  if (graph.isMutated)
    return;
  // What exporters write is understood.
  EXPECT_EQ(facts.causal, Proof::Proved) << facts.text;
  EXPECT_EQ(facts.window, graph.window) << facts.text;
  EXPECT_EQ(facts.padding.size(), graph.hasPadding ? 1u : 0u) << facts.text;
}

TEST(MaskSoundness, FactsHoldOfComputedMasks) {
  Tally tally;
  for (unsigned seed = 0; seed < 600; ++seed) {
    check(seed, tally);
    if (HasFatalFailure())
      return;
  }
  // The mutations are refused or refuted, and the others proved: neither list is empty.
  EXPECT_GT(tally.proved, 300u);
  EXPECT_GT(tally.refuted, 60u);
  EXPECT_GT(tally.conditional, 10u);
}

} // namespace
} // namespace kvopt
