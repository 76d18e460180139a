// Models with quantized caches taken apart, so that each claim about them can be tested by itself.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

/// Whether the model keeps rows as codes with scales beside.
bool hasQuantizedCaches(const ir::Manifest& manifest);

/// In which ways a model keeps rows as codes.
struct CodeForms {
  bool rowScales = false;  ///< with a scale for each row (hasQuantizedCaches)
  bool groupCodes = false; ///< of GroupQueryAttention, with scales that are constants

  bool any() const { return rowScales || groupCodes; }
};

CodeForms codeForms(const ir::Model& model, const ir::Manifest& manifest);

/// Where the caches that a quantized attention writes are not those that the manifest hands on from
/// the ones it reads, a sentence each; a model without quantization could not show it.
std::vector<std::string> miswiredCaches(const ir::Model& model, const ir::Manifest& manifest);

/// Takes the rounding of rows out of the model, as far as it is of the `forms`: every
/// com.microsoft::GroupQueryAttention keeps numbers. Every operator over caches of codes becomes
/// the one over numbers (CacheOperator::unquantized), and QuantizedSdpa, which only reads, a Sdpa;
/// scales are no longer inputs and outputs. What is left computes what the original does,
/// but for rounding. Types must have been inferred, and are inferred anew. Fails, and names the
/// node, where something else reads scales or codes, so that a model without them is not defined.
llvm::Error unquantize(ir::Model& model, ir::Manifest& manifest, CodeForms forms);

/// One attention of a model with its definition beside it: names of outputs of the model.
struct DefinedSite {
  std::string output;
  std::string definedOutput;
  /// Keys, their scales and, unless the cache is latent, values and their scales.
  std::vector<std::string> presents;
  std::vector<std::string> definedPresents;
  /// Of a site that appends to no cache: the present that holds the scales of its values.
  std::string valueScale;
  /// Of a site whose scales are constants: the largest number that a code of its values stands for.
  double largestNumber = 0;
};

/// Adds, before every attention over quantized caches, a call of its function body on the same
/// operands, which runs as plain operators; results of both become outputs of the model. A mask
/// that the attention leaves out hides nothing in the call. Fails where the model has no body for
/// it, or where the body reads another operand that is left out, or gives a result that is. Other
/// forms than `forms` are left out.
llvm::Expected<std::vector<DefinedSite>> addDefinitions(ir::Model& model, CodeForms forms);

} // namespace kvopt::runtime
