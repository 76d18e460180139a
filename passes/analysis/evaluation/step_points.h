// Points of evaluation: steps of a decoder of different sizes.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"
#include "passes/analysis/interface/interface_facts.h"

#include <vector>

namespace kvopt::analysis {

/// The size of a step: `tokens` new tokens after `past` earlier ones, in each of `batch` rows. A
/// model's fixed extents outrank it.
struct StepSize {
  int64_t batch = 2;
  int64_t tokens = 5;
  int64_t past = 11;
  /// What other symbolic extents are, the first one; each next one is larger.
  int64_t others = 17;
};

/// Makes points of one graph.
class StepPoints {
public:
  StepPoints(const ir::Graph& graph, const InterfaceFacts& facts);

  /// Whether the caches grow with each step; otherwise `StepSize::past` is where the new rows of
  /// static caches begin, and both must fit into them.
  bool hasGrowingPast() const { return grows; }
  /// The most rows that static caches can have, by the extents of inputs; 0 without such inputs.
  int64_t mostRows() const { return capacity; }

  /// Symbols that are taken to be as many as all rows: nothing but a mask has them.
  llvm::ArrayRef<std::string> keyCounts() const { return keySymbols; }

  /// A step with every integer input fed as its role says: ids of small numbers, positions that
  /// count on from the past, masks that hide nothing, lengths. Inputs of floating-point numbers
  /// stay unknown.
  EvaluationPoint at(const StepSize& size) const;

  /// The size of such a step, with the extents that the model fixes.
  StepSize chosen(const StepSize& size) const;

  /// Sizes that tell extents apart: of each kind of step (many tokens, one, none before) where the
  /// model's fixed extents leave a choice. The first `fitted` are for finding facts, all others for
  /// checking them.
  std::vector<StepSize> sizes() const;
  static constexpr size_t fitted = 3;

private:
  struct FedInput {
    const ir::Value* input = nullptr;
    ir::InputFeed feed = ir::InputFeed::Any;
    std::optional<ir::LengthFeed> length;
  };
  void findSymbols();
  void findPastAlone();
  void findKeySymbols();
  bool isKnownSymbol(llvm::StringRef symbol) const;
  NumberTensor numbersFor(const FedInput& fed, const StepSize& size, const EvaluationPoint& point,
                          Extents extents) const;

  const ir::Graph& evaluated;
  std::vector<FedInput> fedInputs;
  llvm::SmallVector<std::string, 4> batchSymbols, tokenSymbols, pastSymbols, keySymbols,
      otherSymbols;
  std::optional<int64_t> fixedBatch, fixedTokens, fixedPast;
  bool grows = false;
  int64_t capacity = 0;
};

} // namespace kvopt::analysis
