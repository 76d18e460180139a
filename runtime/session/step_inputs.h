// StepInputs: tokens, masks and positions of a decode loop, in tensors that are reused.
#pragma once

#include "runtime/memory/buffer.h"
#include "runtime/session/hidden_positions.h"
#include "runtime/session/input_plan.h"
#include "runtime/session/step_result.h"

namespace kvopt::runtime {

/// Inputs of a decoder other than caches. Each step updates the tensors of the previous step: masks
/// receive columns only for new tokens, tensors that do not depend on tokens are unchanged, and
/// memory is allocated only when a tensor becomes longer than ever, with room for twice its size.
class StepInputs {
public:
  StepInputs(DecoderPlan fedInputs, std::shared_ptr<Allocator> memory);

  /// Updates the tensors for a step. Positions that earlier steps contained must stay hidden or
  /// visible. A step may begin before the end of the last one: columns from its first token on are
  /// filled again. After an error, the contents are unspecified until the next step.
  llvm::Error prepare(const DecoderStep& step, const HiddenPositions& hidden);

  /// One tensor for each input of the plan, in order.
  llvm::ArrayRef<NamedTensor> tensors() const { return kept; }
  std::vector<NamedTensor> take() { return std::move(kept); }

private:
  /// Contents of a kept tensor, which need not be filled again.
  struct Filled {
    int64_t capacity = 0; ///< number of elements for which its memory has room
    bool isValid = false;
    int64_t newTokens = 0; ///< number of new tokens of the step that filled it
    int64_t total = 0;
  };

  llvm::Error fill(size_t index, const DecoderStep& step, const HiddenPositions& hidden);
  llvm::Error fillFeed(size_t index, const DecoderStep& step, const HiddenPositions& hidden,
                       const Extents& extents);
  llvm::Error fillTokens(size_t index, const DecoderStep& step, Extents extents);
  llvm::Error fillRandom(size_t index, const DecoderStep& step, const Extents& extents);
  template <class NumberAt>
  llvm::Error fillAll(size_t index, const Extents& extents, NumberAt numberAt);
  /// Keeps the columns of the last axis from earlier steps, as far as they are unchanged.
  template <class NumberAt>
  llvm::Error appendColumns(size_t index, const Extents& extents, const DecoderStep& step,
                            bool hasQueries, NumberAt numberAt);
  /// Changes the tensor's extents; keeps its first `columns` columns.
  llvm::Error resize(size_t index, const Extents& extents, int64_t columns);
  bool isFilled(size_t index, const Extents& extents) const;

  DecoderPlan plan;
  std::shared_ptr<Allocator> allocator;
  std::vector<NamedTensor> kept;
  std::vector<Filled> filled;
};

} // namespace kvopt::runtime
