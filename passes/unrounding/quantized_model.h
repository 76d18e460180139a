// Removal of codes from models with quantized caches, so that each claim about them is tested
// separately.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::unrounding {

/// Whether the model stores rows as codes with scales.
bool hasQuantizedCaches(const ir::Manifest& manifest);

/// Formats of codes in a model's caches.
struct CodeForms {
  bool rowScales = false;  ///< with a scale for each row (hasQuantizedCaches)
  bool groupCodes = false; ///< in GroupQueryAttention, with constant scales

  bool any() const { return rowScales || groupCodes; }
};

CodeForms codeForms(const ir::Model& model, const ir::Manifest& manifest);

/// Caches that quantized attention writes, but that the manifest does not connect with those it
/// reads; one sentence each. A model without quantization could not show such errors.
std::vector<std::string> miswiredCaches(const ir::Model& model, const ir::Manifest& manifest);

/// Removes the rounding of rows in these `forms`. Every com.microsoft::GroupQueryAttention stores
/// numbers. Every operator over caches of codes becomes the one over numbers
/// (CacheOperator::unquantized), and QuantizedSdpa, which only reads, becomes Sdpa; scales are no
/// longer inputs and outputs. The result computes the original's results except for rounding. Types
/// must have been inferred, and are inferred again. Fails, and names the node, if another node
/// reads scales or codes, because then the model without them is undefined.
llvm::Error unquantize(ir::Model& model, ir::Manifest& manifest, CodeForms forms);

/// One attention of a model and its definition: names of outputs of the model.
struct DefinedSite {
  std::string output;
  std::string definedOutput;
  /// Keys, their scales and, unless the cache is latent, values and their scales.
  std::vector<std::string> presents;
  std::vector<std::string> definedPresents;
  /// For attention that does not append to a cache: the present with the scales of its values.
  std::string valueScale;
  /// For attention with constant scales: largest number that a code of its values represents.
  double largestNumber = 0;
};

/// Adds, before every attention over quantized caches, a call of its function body on the same
/// operands, which runs as standard operators. Results of both become outputs of the model. If the
/// attention has no mask, the mask of the call hides nothing. Fails if the model has no body for
/// it, if the body reads another absent operand, or if it returns an absent result. Skips forms
/// other than `forms`.
llvm::Expected<std::vector<DefinedSite>> addDefinitions(ir::Model& model, CodeForms forms);

} // namespace kvopt::unrounding
