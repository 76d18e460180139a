// What quantized caches do to a model: that every attention is what its definition says, and how
// far the results are off those of the model without quantization.
#pragma once

#include "driver/toolkit.h"
#include "driver/verify/deviation.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/equivalence/quantized_model.h"

namespace kvopt::driver {

/// A model whose caches are quantized, beside the one that it was rewritten from.
///
/// Rounding a number to a code is no continuous operation: a difference of one unit in the last
/// place may move a code, and by that every later number. So the two are not compared as a whole.
/// Instead each attention and its definition, the function body in plain operators, are run on the
/// same operands, at every step: what they write must be the same bytes, what they give within a
/// tolerance for floating-point sums, relative to the largest value that the cache can stand for.
/// With a model that is equal to the original where rows are not quantized (`unquantize`), that
/// leaves nothing but the rounding of rows between the two, which `deviation` measures.
struct QuantizationReport {
  /// Bits of a code, and what codes are called: "int8".
  int bits = 8;
  const char* word = "int8";
  size_t sites = 0;
  size_t steps = 0;
  /// Codes and scales are those of the definition.
  bool rowsIdentical = true;
  /// Largest |output - definition| over the largest value, and what is allowed.
  double siteDifference = 0;
  double siteAllowed = 0;
  /// From the original's outputs.
  Deviation deviation;

  /// NaN is not within anything.
  bool equal() const {
    return sites != 0 && steps != 0 && rowsIdentical && siteDifference <= siteAllowed;
  }
};

/// Runs both through steps of so many tokens, and compares codes of the `forms` with what they are
/// defined to be. Types of both must have been inferred.
llvm::Expected<QuantizationReport>
checkQuantization(const ir::Model& original, const ir::Manifest& originalManifest,
                  const ir::Model& quantized, const ir::Manifest& quantizedManifest,
                  runtime::CodeForms forms, const runtime::EquivalencePlan& plan,
                  llvm::ArrayRef<int64_t> steps, unsigned threads, const Toolkit& toolkit);

} // namespace kvopt::driver
