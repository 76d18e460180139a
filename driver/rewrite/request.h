// What a rewrite is asked for.
#pragma once

#include "driver/forms/form.h"
#include "driver/verify/plan.h"
#include "ir/element_type.h"
#include "passes/pattern/matcher.h"
#include "runtime/session/input_recipe.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// How much of a rewritten model is compared with the model as it was read.
enum class VerificationExtent {
  Off,
  Quick, ///< quickVerification()
  Full,  ///< fullVerification()
};

/// Which attention layers must be taken.
enum class LayerRequirement {
  All, ///< all, or the model stays as it is
  Any,
};

/// What becomes of numbers that are computed for padding where it sees no token.
enum class HiddenRows { Exact, Undefined };

/// Which batch rows may be padded.
enum class PaddedRows { Any, None };

struct RewriteRequest {
  /// The form to write; `cellOf` says which are written.
  Form form;
  /// The model computes whole sequences, and gets caches before it is rewritten.
  bool addCaches = false;
  /// The model was exported for one number of batch rows, tokens and earlier tokens, which become
  /// symbols before it is rewritten.
  bool freeExtents = false;
  /// Rows of a shared buffer; nullopt leaves them symbolic.
  std::optional<int64_t> capacity;
  LayerRequirement require = LayerRequirement::All;
  /// Layers to rewrite; empty: all.
  std::vector<unsigned> layers;
  HiddenRows hiddenRows = HiddenRows::Exact;
  PaddedRows padding = PaddedRows::Any;
  /// A decoder that is two in one, with a branch for the first step, takes the other branch for all
  /// steps; some branch must be taken so.
  bool oneBranch = false;
  /// The tokens of a text like those that the model will read, for rows of codes with constant
  /// scales (`Form::calibratedBits`).
  std::vector<int64_t> calibration;
  /// How many of them are read at a time, from empty caches.
  int64_t calibrationContext = 512;
  /// The element type of the state between tiles: Float or Float16.
  ir::ElementType tileState = ir::ElementType::Float;
  VerificationExtent verification = VerificationExtent::Quick;
  /// What to feed inputs that nothing is known of.
  std::vector<runtime::InputRecipe> recipes;
  /// Rules and passes to leave out.
  std::vector<std::string> disabled;
  pattern::MatcherOptions matcher;
  /// Passes after which the model is printed, and how (`PassManagerOptions`).
  std::vector<std::string> printAfter;
  std::function<void(const std::string& header, const std::string& text)> print;
};

} // namespace kvopt::driver
