// Request for a rewrite.
#pragma once

#include "driver/forms/form.h"
#include "driver/model_source.h"
#include "ir/element_type.h"
#include "ir/manifest/input_recipe.h"
#include "passes/pattern/matcher.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Extent of the comparison of a rewritten model with its source.
enum class VerificationExtent {
  /// Check, and Quick where that proves nothing. Only Quick where a check cannot prove all: several
  /// models are written (first steps, parts, variants), rows of caches are rounded, or the request
  /// says what to feed inputs.
  Auto,
  Off,
  Check, ///< both models are checked without running them (check::checkModels)
  Quick, ///< quickVerification()
  Full,  ///< fullVerification()
};

/// Requirement on the attention layers that are rewritten.
enum class LayerRequirement {
  All, ///< all layers, or the model is not changed
  Any,
};

/// Treatment of results for padding rows that see no token.
enum class HiddenRows { Exact, Undefined };

/// Batch rows that may be padded.
enum class PaddedRows { Any, None };

struct RewriteRequest {
  /// Source of the model; nullopt: the file at the model's own path.
  std::optional<ModelSource> source;
  /// Form to write; `cellOf` defines which forms are supported.
  Form form;
  /// Whether a model that computes whole sequences receives caches before it is rewritten.
  bool addCaches = false;
  /// Whether fixed numbers of batch rows, tokens and earlier tokens become symbols before the model
  /// is rewritten.
  bool freeExtents = false;
  /// Whether inputs that count earlier tokens are computed from extents of other inputs where these
  /// suffice. ONNX Runtime GenAI does not feed such inputs.
  bool computesPastLength = false;
  /// Number of rows of a shared buffer; nullopt leaves it symbolic.
  std::optional<int64_t> capacity;
  LayerRequirement require = LayerRequirement::All;
  /// Layers to rewrite; empty: all.
  std::vector<unsigned> layers;
  HiddenRows hiddenRows = HiddenRows::Exact;
  PaddedRows padding = PaddedRows::Any;
  /// Whether a merged decoder with a branch for the first step uses the other branch for all steps.
  /// At least one branch must be eligible.
  bool oneBranch = false;
  /// Tokens of a typical text, for rows of codes with constant scales (`Form::calibratedBits`).
  std::vector<int64_t> calibration;
  /// Whether these tokens are the bytes of a text.
  bool calibratesWithText = false;
  /// Number of calibration tokens per window; each window starts from empty caches.
  int64_t calibrationContext = 512;
  /// Element type of the state between tiles: Float or Float16.
  ir::ElementType tileState = ir::ElementType::Float;
  VerificationExtent verification = VerificationExtent::Auto;
  /// Values for inputs about which nothing is known.
  std::vector<ir::InputRecipe> recipes;
  /// Rules and passes to omit.
  std::vector<std::string> disabled;
  pattern::MatcherOptions matcher;
  /// Passes after which the model is printed, and the format (`PassManagerOptions`).
  std::vector<std::string> printAfter;
  std::function<void(const std::string& header, const std::string& text)> print;
};

} // namespace kvopt::driver
