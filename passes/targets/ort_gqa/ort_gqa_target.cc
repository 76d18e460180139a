// The target `ort-gqa`: cached attention in ONNX Runtime's own operator, with past and present in
// one buffer.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    rows, present_key, present_value = com.microsoft.GroupQueryAttention(
//                q, k, v, past_key, past_value, seqlens_k, total_sequence_length, , , , bias)
//
// Rotary embedding remains before the operator, as com.microsoft.RotaryEmbedding. The lengths are
// computed once, from the extents of the padding mask if the model has one; otherwise they are
// inputs. Padding, and all other conditions of the mask within the causal frontier, become the
// bias: all batch rows have the length of the batch, so padding may be on either side.
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/ort_gqa/gqa_lowering.h"
#include "passes/targets/target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class OrtGqaTarget final : public Target {
public:
  llvm::StringRef name() const override { return "ort-gqa"; }
  llvm::StringRef summary() const override {
    return "ONNX Runtime's GroupQueryAttention: past and present in one buffer";
  }

  llvm::ArrayRef<const char*> finishingPasses() const override {
    static constexpr const char* passes[] = {"fuse-operators", "merge-equal-nodes",
                                             "eliminate-dead-nodes"};
    return passes;
  }

  bool changesPadding(const AttentionSite& site) const override {
    return site.node->operand(3) != nullptr;
  }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsGqaForm(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    return GqaLowering(model, options, journal).run(sites);
  }
};

} // namespace

void register_ort_gqa(TargetRegistry& registry) { registry.add(std::make_unique<OrtGqaTarget>()); }

} // namespace kvopt::targets
