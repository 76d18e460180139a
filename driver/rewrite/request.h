// What a rewrite is asked for.
#pragma once

#include "driver/verify/plan.h"
#include "passes/pass_manager.h"
#include "passes/pattern/matcher.h"
#include "runtime/session/input_recipe.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// How much of a rewritten model is compared with the model as it was read.
enum class VerificationExtent {
  Off,
  Quick, ///< quickVerification()
  Full,  ///< fullVerification()
};

struct RewriteRequest {
  /// A target with its parameter, as `blocks:64`.
  std::string target;
  /// The model computes whole sequences, and gets caches before it is rewritten.
  bool addCaches = false;
  /// The model was exported for one number of batch rows, tokens and earlier tokens, which become
  /// symbols before it is rewritten.
  bool freeExtents = false;
  /// Rows of a shared buffer, or `dynamic`.
  std::string capacity = "dynamic";
  /// `all` sites or none, or `any`.
  std::string require = "all";
  /// Layers to rewrite, as `0-3,7`; empty: all.
  std::string layers;
  /// `exact`, or `undefined`: what is computed for padding, where it sees no token, need not stay.
  std::string hiddenRows = "exact";
  /// `any`, or `none`: no batch row is ever padded.
  std::string padding = "any";
  /// A decoder that is two in one, with a branch for the first step, takes the other branch for all
  /// steps; some branch must be taken so.
  bool oneBranch = false;
  /// Keys and values that are expanded from rows of fewer columns are replaced by caches of those
  /// rows before the model is rewritten; some must be.
  bool compressCaches = false;
  /// The element type that rows of growing float32 caches are rounded to before the model is
  /// rewritten: `float16`, `bfloat16`, or empty for none. `int8` or `int4`, for `ort-gqa`: the
  /// codes that caches hold, whose scales running `calibration` tells.
  std::string cacheDtype;
  /// The tokens of a text like those that the model will read.
  std::vector<int64_t> calibration;
  /// How many of them are read at a time, from empty caches.
  int64_t calibrationContext = 512;
  /// The element type of the state between tiles: `float32` or `float16`; empty: float32.
  std::string tileState;
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
