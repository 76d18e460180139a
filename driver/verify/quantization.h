// Effect of quantized caches on a model: whether every attention agrees with its definition, and
// the deviation of the results from those without quantization.
#pragma once

#include "driver/toolkit.h"
#include "driver/verify/deviation.h"
#include "passes/unrounding/quantized_model.h"
#include "runtime/equivalence/equivalence.h"

namespace kvopt::driver {

/// Comparison of a model with quantized caches and the model from which it was rewritten.
///
/// Rounding a number to a code is not continuous: a difference of one unit in the last place may
/// change a code, and thereby every later number. So the models are not compared as a whole.
/// Instead, each attention and its definition, the function body in plain operators, run on the
/// same operands at every step. The rows that they write must agree in every byte. Their results
/// must agree within a tolerance for floating-point sums, relative to the largest value that the
/// cache can represent. A separate comparison shows that the model without quantization
/// (`unquantize`) equals the original. Then the rounding of rows is the only difference, and
/// `deviation` measures it.
struct QuantizationReport {
  /// Number of bits of a code, and the name of codes: "int8".
  int bits = 8;
  const char* word = "int8";
  size_t sites = 0;
  size_t steps = 0;
  /// Whether codes and scales are those of the definition.
  bool rowsIdentical = true;
  /// Largest |output - definition|, relative to the largest value, and its limit.
  double siteDifference = 0;
  double siteAllowed = 0;
  /// Deviation from the original's outputs.
  Deviation deviation;

  /// NaN is not within any limit.
  bool equal() const {
    return sites != 0 && steps != 0 && rowsIdentical && siteDifference <= siteAllowed;
  }
};

/// Runs both models through steps of these numbers of tokens, and compares codes of the `forms`
/// with their definition. Types of both models must have been inferred.
llvm::Expected<QuantizationReport>
checkQuantization(const ir::Model& original, const ir::Manifest& originalManifest,
                  const ir::Model& quantized, const ir::Manifest& quantizedManifest,
                  unrounding::CodeForms forms, const runtime::EquivalencePlan& plan,
                  llvm::ArrayRef<int64_t> steps, unsigned threads, const Toolkit& toolkit);

} // namespace kvopt::driver
