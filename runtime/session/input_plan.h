// InputPlan: what an input of a decoder is fed at every step, besides caches.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "runtime/memory/tensor_view.h"
#include "runtime/session/decoder_step.h"
#include "runtime/session/token_ids.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace kvopt::runtime {

/// Tokens of the encoder in inputs that are made up.
inline constexpr int64_t encoderTokens = 13;

/// What one input is fed. It is found once, and holds for all steps.
struct InputPlan {
  enum class Kind {
    Feed,    ///< tokens, positions, a mask: `feed`
    Number,  ///< `number` everywhere
    Past,    ///< the number of tokens before the step
    Total,   ///< those and the step's
    Range,   ///< 0, 1, 2, … along the last axis
    Numbers, ///< `numbers`, one after the other over all elements, and again from the first
    Random,  ///< numbers in [-1, 1) that depend on the input's name and the element only
  };

  const ir::Value* input = nullptr;
  Kind kind = Kind::Feed;
  ir::InputFeed feed = ir::InputFeed::Any; ///< of Kind::Feed; not Any
  double number = 0;
  llvm::ArrayRef<double> numbers; ///< the recipe's
  /// Extents that are described; where there are none, those that the graph declares.
  std::vector<ir::ManifestExtent> shape;
  bool isDeclared = false;
  TokenIds ids; ///< of tokens

  /// Whether the extent of that axis is the word.
  bool isWord(size_t axis, llvm::StringRef word) const;
};

/// The inputs of a decoder and what they are fed: by `recipes`, by `described` (Manifest::inputs),
/// and else by the documented names (runtime/session/decoder_inputs.h).
struct DecoderPlan {
  std::vector<InputPlan> inputs;
  /// The type of the token ids, which fixes symbols; null where there is no such input.
  const ir::TensorType* tokenType = nullptr;
  int64_t rowsPerBatch = 1; ///< of that input

  /// Recipes must outlive the plan. An error for a recipe that is for none of the inputs, and for
  /// an input for which nothing says what to feed.
  static llvm::Expected<DecoderPlan> create(llvm::ArrayRef<const ir::Value*> inputs,
                                            llvm::ArrayRef<InputRecipe> recipes,
                                            llvm::ArrayRef<ir::ManifestInput> described);

  /// The extents of an input in a step.
  Extents extents(const InputPlan& input, const DecoderStep& step) const;

private:
  Extents describedExtents(llvm::ArrayRef<ir::ManifestExtent> shape, const DecoderStep& step) const;
  Extents declaredExtents(const ir::Value& input, const DecoderStep& step) const;
  int64_t symbolValue(llvm::StringRef symbol, const DecoderStep& step) const;
};

/// Names of inputs for which nothing says what to feed: neither a recipe nor the description nor
/// the name.
std::vector<std::string> guessedInputs(llvm::ArrayRef<const ir::Value*> inputs,
                                       llvm::ArrayRef<InputRecipe> recipes,
                                       llvm::ArrayRef<ir::ManifestInput> described);

/// The inputs that are token ids, by name or description.
std::vector<const ir::Value*> tokenInputs(const ir::Graph& graph,
                                          llvm::ArrayRef<ir::ManifestInput> described = {});

/// Whether an input is a mask in which each batch row can hide positions of its own, by name or
/// description.
bool hidesPositions(const ir::Value& input, llvm::ArrayRef<ir::ManifestInput> described);

/// Whether the feed tells which keys are visible.
bool isMaskFeed(ir::InputFeed feed);

} // namespace kvopt::runtime
