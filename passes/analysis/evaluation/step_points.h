// Points of evaluation: steps of a decoder of different sizes.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"
#include "passes/analysis/interface/interface_facts.h"

#include <vector>

namespace kvopt::analysis {

/// Size of a step: `tokens` new tokens after `past` earlier ones, in each of `batch` rows. A
/// model's fixed extents take precedence.
struct StepSize {
  int64_t batch = 2;
  int64_t tokens = 5;
  int64_t past = 11;
  /// Value of the first other symbolic extent; each further one is larger.
  int64_t others = 17;
};

/// Creates points of one graph.
class StepPoints {
public:
  StepPoints(const ir::Graph& graph, const InterfaceFacts& facts);

  /// Whether the caches grow with each step; otherwise `StepSize::past` is the index of the first
  /// new row in static caches, which must have room for past and new rows.
  bool hasGrowingPast() const { return grows; }
  /// Maximum number of rows in static caches, from the extents of inputs; 0 without such inputs.
  int64_t mostRows() const { return capacity; }

  /// Symbols that are assumed to equal the number of all rows: only masks have them.
  llvm::ArrayRef<std::string> keyCounts() const { return keySymbols; }

  /// A step with every integer input set according to its role: ids of small numbers, positions
  /// that continue from the past, masks that hide nothing, lengths. Floating-point inputs remain
  /// unknown.
  EvaluationPoint at(const StepSize& size) const;

  /// Size of such a step, including the extents that the model fixes.
  StepSize chosen(const StepSize& size) const;

  /// Sizes that distinguish extents: each kind of step (many tokens, one token, no past) as far as
  /// the model's fixed extents allow. The first `fitted` sizes are for finding facts, all others
  /// for checking them.
  std::vector<StepSize> sizes() const;
  static constexpr size_t fitted = 3;

private:
  struct FedInput {
    const ir::Value* input = nullptr;
    ir::InputFeed feed = ir::InputFeed::Any;
    std::optional<ir::LengthFeed> length;
    std::vector<double> numbers; ///< those of a constant
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
