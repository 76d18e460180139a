// The target `onnx24`: caches in one buffer, in ONNX's own operators of opset 24.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa<causal = 1>(q, present_key, present_value)
//   after    present_key = TensorScatter<axis = 2>(past_key, k, write_indices)   …value likewise
//            o = Attention<is_causal = 1>(q, present_key, present_value,,,, nonpad_kv_seqlen)
//
// Past inputs and present outputs get the extent `capacity` on the sequence axis. Caches with fixed
// extents that a ScatterElements, ScatterND, or TensorScatter writes keep theirs. The rest of the
// model is converted to opset 24.
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/onnx/tensor_scatter_lowering.h"
#include "passes/targets/target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class Onnx24Target final : public Target {
public:
  llvm::StringRef name() const override { return "onnx24"; }
  llvm::StringRef summary() const override {
    return "TensorScatter and Attention of opset 24: past and present in one buffer";
  }

  /// The operators are useful without a cache, too.
  bool isForCaches() const override { return false; }
  bool takesSharedCaches() const override { return true; }

  int64_t opset() const override { return 24; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsTensorScatter(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    return TensorScatterLowering(model, options, journal).run(sites);
  }
};

} // namespace

void register_onnx24(TargetRegistry& registry) { registry.add(std::make_unique<Onnx24Target>()); }

} // namespace kvopt::targets
