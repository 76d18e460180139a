// Normalizations over trailing axes.
#include "ir/op.h"

namespace kvopt::ir {

void register_normalization(OpRegistry& registry) {
  // ONNX Runtime defined LayerNormalization in ONNX's domain before ONNX did, and its optimizer
  // writes it into models of any opset.
  for (int64_t since : {1, 17}) {
    define(registry, "LayerNormalization", since)
        .in("X")
        .in("Scale")
        .in("B?")
        .out("Y")
        .out("Mean?")
        .out("InvStdDev?")
        .attr("axis", int64_t{-1})
        .attr("epsilon", 1e-5f)
        .attr("stash_type", int64_t{1});
  }
  for (llvm::StringRef domain : {"", "com.microsoft"}) {
    define(registry, OpName(domain, "SimplifiedLayerNormalization"), 1)
        .in("X")
        .in("scale")
        .out("Y")
        .out("inv_std_var?")
        .attr("axis", int64_t{-1})
        .attr("epsilon", 1e-5f)
        .attr("stash_type", int64_t{1});
  }
  define(registry, "RMSNormalization", 23)
      .in("X")
      .in("scale")
      .out("Y")
      .attr("axis", int64_t{-1})
      .attr("epsilon", 1e-5f)
      .attr("stash_type", int64_t{1});
}

} // namespace kvopt::ir
