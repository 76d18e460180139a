// The target `paged[:SIZE]`: cached attention in ONNX Runtime's operator for servers, over pools of
// blocks of SIZE tokens.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa<causal>(q, present_key, present_value)
//   after    rows, present_key, present_value = com.microsoft.PagedAttention(
//                Reshape(q, [-1,H*D]), Reshape(k, [-1,G*D]), Reshape(v, [-1,G*D]), past_key,
//                past_value, cumulative_sequence_length, past_seqlens, block_table)
//            o = Reshape(rows, [B,S,H*D])
//
// past_key and past_value are pools [blocks,SIZE,G,D]. Each batch row is a sequence, and all
// sequences have S new tokens: cumulative_sequence_length is 0, S, 2S, …, computed in the graph.
// past_seqlens and block_table are inputs. Rotary embedding remains before the operator.
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/paged/paged_lowering.h"
#include "passes/targets/target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class PagedTarget final : public Target {
public:
  llvm::StringRef name() const override { return "paged"; }
  llvm::StringRef summary() const override {
    return "ONNX Runtime's PagedAttention: caches in pools of blocks that a table lists";
  }
  int64_t defaultSize() const override { return 256; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsPagedForm(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    return PagedLowering(model, options, journal).run(sites);
  }
};

} // namespace

void register_paged(TargetRegistry& registry) { registry.add(std::make_unique<PagedTarget>()); }

} // namespace kvopt::targets
