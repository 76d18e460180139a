// The target `onnx23`: growing caches, in ONNX's own Attention of opset 23.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa<causal = 1>(q, present_key, present_value)
//   after    o, present_key, present_value =
//                Attention<is_causal = 1>(q, k, v,, past_key, past_value)
//
// Inputs and outputs do not change. The rest of the model is converted to opset 23.
#include "passes/targets/onnx/past_attention_lowering.h"
#include "passes/targets/target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class Onnx23Target final : public Target {
public:
  llvm::StringRef name() const override { return "onnx23"; }
  llvm::StringRef summary() const override {
    return "Attention of opset 23 with past and present: growing caches";
  }

  /// The operators are useful without a cache, too.
  bool isForCaches() const override { return false; }

  int64_t opset() const override { return 23; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsPastAttention(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions&, Journal& journal) const override {
    return PastAttentionLowering(model, journal).run(sites);
  }
};

} // namespace

void register_onnx23(TargetRegistry& registry) { registry.add(std::make_unique<Onnx23Target>()); }

} // namespace kvopt::targets
