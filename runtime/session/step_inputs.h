// StepInputs: tokens, masks and positions of a decode loop, in tensors that are kept.
#pragma once

#include "runtime/memory/buffer.h"
#include "runtime/session/hidden_positions.h"
#include "runtime/session/input_plan.h"
#include "runtime/session/step_result.h"

namespace kvopt::runtime {

/// The inputs of a decoder besides caches. Each step fills the tensors of the step before again:
/// masks get columns for new tokens only, what depends on no token stays as it is, and memory is
/// allocated only where a tensor becomes longer than ever, with room for twice as much.
class StepInputs {
public:
  StepInputs(DecoderPlan fedInputs, std::shared_ptr<Allocator> memory);

  /// Makes the tensors those of a step. Whether a position is hidden must not change once a step
  /// was given it. A step may go back to fewer tokens than the last one ended with: columns from
  /// there on are filled again. After an error the contents are unspecified until the next step.
  llvm::Error prepare(const DecoderStep& step, const HiddenPositions& hidden);

  /// One per input of the plan, in order.
  llvm::ArrayRef<NamedTensor> tensors() const { return kept; }
  std::vector<NamedTensor> take() { return std::move(kept); }

private:
  /// What a kept tensor holds, so that it need not be filled again.
  struct Filled {
    int64_t capacity = 0; ///< elements that its memory has room for
    bool isValid = false;
    int64_t newTokens = 0; ///< of the step that filled it
    int64_t total = 0;
  };

  llvm::Error fill(size_t index, const DecoderStep& step, const HiddenPositions& hidden);
  llvm::Error fillFeed(size_t index, const DecoderStep& step, const HiddenPositions& hidden,
                       const Extents& extents);
  llvm::Error fillTokens(size_t index, const DecoderStep& step, Extents extents);
  llvm::Error fillRandom(size_t index, const DecoderStep& step, const Extents& extents);
  template <class NumberAt>
  llvm::Error fillAll(size_t index, const Extents& extents, NumberAt numberAt);
  /// Keeps the columns of the last axis that earlier steps filled, as far as they are the same now.
  template <class NumberAt>
  llvm::Error appendColumns(size_t index, const Extents& extents, const DecoderStep& step,
                            bool hasQueries, NumberAt numberAt);
  /// The tensor gets these extents; its first `columns` columns are kept.
  llvm::Error resize(size_t index, const Extents& extents, int64_t columns);
  bool isFilled(size_t index, const Extents& extents) const;

  DecoderPlan plan;
  std::shared_ptr<Allocator> allocator;
  std::vector<NamedTensor> kept;
  std::vector<Filled> filled;
};

} // namespace kvopt::runtime
