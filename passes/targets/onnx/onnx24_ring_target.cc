// The target `onnx24-ring`: the target `onnx24` with caches that hold only the rows that attention
// reads.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa<window = W>(q, present_key, present_value[, mask])
//   after    present_key = TensorScatter<axis = 2, mode = "circular">(past_key, k, write_indices)
//            …value likewise
//            o = Attention(q, present_key, present_value, visible)
//
// Past and present are one buffer of W + N - 1 slots, where N is the maximum number of tokens in a
// step: new rows are written before attention reads, and must not overwrite rows that are still
// visible. Layers without a window get the form of the target `onnx24`.
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/kvopt/window_sites.h"
#include "passes/targets/onnx/tensor_scatter_lowering.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// The model contains a table of this length.
constexpr int64_t mostStepTokens = 65536;

class Onnx24RingTarget final : public Target {
public:
  llvm::StringRef name() const override { return "onnx24-ring"; }
  llvm::StringRef summary() const override {
    return "onnx24 with only the rows of the window and of a step of N tokens: onnx24-ring:N";
  }

  bool takesSharedCaches() const override { return true; }
  bool changesPadding(const AttentionSite& site) const override { return ringChangesPadding(site); }
  bool serves(const AttentionSite& site) const override { return ringSlots(site) != 0; }
  MatchFailure nothingToDo(const AttentionSite& site) const override {
    return site.hasCache() ? noRing(site) : Target::nothingToDo(site);
  }

  int64_t defaultSize() const override { return 64; }
  int64_t opset() const override { return 24; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsTensorScatter(site, true);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (options.size > mostStepTokens)
      return usageError("steps of at most {} tokens, not {}", mostStepTokens, options.size);
    if (llvm::Error error = checkKvoptSites(sites, true))
      return error;
    return TensorScatterLowering(model, options, journal, /*withRings=*/true).run(sites);
  }
};

} // namespace

void register_onnx24_ring(TargetRegistry& registry) {
  registry.add(std::make_unique<Onnx24RingTarget>());
}

} // namespace kvopt::targets
