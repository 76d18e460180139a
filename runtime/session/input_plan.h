// InputPlan: values of a decoder's input at every step, except for caches.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "runtime/memory/tensor_view.h"
#include "runtime/session/decoder_step.h"
#include "runtime/session/token_ids.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace kvopt::runtime {

/// Number of encoder tokens in synthetic inputs.
inline constexpr int64_t encoderTokens = 13;

/// Values for one input, determined once for all steps.
struct InputPlan {
  enum class Kind {
    Feed,    ///< tokens, positions, or a mask: `feed`
    Number,  ///< `number` everywhere
    Length,  ///< a number of tokens: `length`
    Range,   ///< 0, 1, 2, … along the last axis
    Numbers, ///< `numbers`, repeated over all elements
    Random,  ///< numbers in [-1, 1) that depend only on the input's name and the element
  };

  const ir::Value* input = nullptr;
  Kind kind = Kind::Feed;
  ir::InputFeed feed = ir::InputFeed::Any;            ///< for Kind::Feed; not Any
  ir::LengthFeed length = ir::LengthFeed::PastLength; ///< for Kind::Length
  double number = 0;
  llvm::ArrayRef<double> numbers; ///< numbers of the recipe
  /// Described extents; if there are none, those that the graph declares.
  std::vector<ir::ManifestExtent> shape;
  bool isDeclared = false;
  TokenIds ids; ///< for tokens
  /// Whether nothing determines the contents: neither a recipe nor the tokens.
  bool isMadeUp = false;

  /// Whether the extent of that axis is the word.
  bool isWord(size_t axis, llvm::StringRef word) const;
};

/// Inputs of a decoder and their values: from `recipes`, from `described` (Manifest::inputs), or
/// from documented names (runtime/session/decoder_inputs.h).
struct DecoderPlan {
  std::vector<InputPlan> inputs;
  /// Type of the token ids, which determines symbols; null without such an input.
  const ir::TensorType* tokenType = nullptr;
  int64_t rowsPerBatch = 1; ///< number of rows of that input for each batch row
  /// Names of extents other than the first one of an input: they do not count batch rows.
  llvm::StringSet<> laterSymbols;
  int64_t slots = 0; ///< number of rows of caches of fixed extents; 0 if there are none

  /// Recipes must outlive the plan. An error for a recipe of an unknown input, and for an input
  /// whose values nothing determines.
  static llvm::Expected<DecoderPlan> create(llvm::ArrayRef<const ir::Value*> inputs,
                                            llvm::ArrayRef<ir::InputRecipe> recipes,
                                            llvm::ArrayRef<ir::ManifestInput> described,
                                            int64_t slots = 0);

  /// Names of the inputs whose contents are made up.
  std::vector<std::string> madeUp() const;
  /// Extents of an input in a step.
  Extents extents(const InputPlan& input, const DecoderStep& step) const;

private:
  void noteLaterSymbols(const InputPlan& input);
  Extents describedExtents(llvm::ArrayRef<ir::ManifestExtent> shape, const DecoderStep& step) const;
  Extents declaredExtents(const ir::Value& input, const DecoderStep& step) const;
  int64_t symbolValue(llvm::StringRef symbol, const DecoderStep& step) const;
};

/// Names of inputs whose values nothing determines: neither a recipe nor the description nor the
/// name.
std::vector<std::string> guessedInputs(llvm::ArrayRef<const ir::Value*> inputs,
                                       llvm::ArrayRef<ir::InputRecipe> recipes,
                                       llvm::ArrayRef<ir::ManifestInput> described);

/// Whether an input, by name or description, is a mask that can hide different positions in each
/// batch row.
bool hidesPositions(const ir::Value& input, llvm::ArrayRef<ir::ManifestInput> described);

/// Smallest number of rows of the caches of fixed extents; 0 if there are none.
int64_t slotsOf(const ir::Manifest& manifest);

} // namespace kvopt::runtime
