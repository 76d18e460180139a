// The target `pyramid[:SIZE]`: caches in blocks with fixed extents, and one variant of the model
// for each number of blocks that may hold tokens.
//
//   before   present_key = Concat<2>(past_key, k)
//            o = ai.kvopt.Sdpa<causal = 1>(q, present_key, …)
//   after    joined = Concat<2>(past_key_block_0, …, past_key_block_tail, k)   present_key = k
//            o = MatMul(Softmax(Where(visible, MatMul(q, Transpose(joined)), -inf)), …)
//
// `visible` is rebuilt from `past_length`: rows of blocks that hold no tokens are hidden. For
// engines that compile graphs for fixed extents. The lowered model is the largest variant;
// specialize-blocks creates the others from it.
#include "passes/targets/blocks/block_variant.h"
#include "passes/targets/blocks/fixed_blocks.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of variants, each a file; a larger number is a mistake.
constexpr int64_t mostVariants = 256;

class PyramidBlocks final : public FixedBlocks {
public:
  using FixedBlocks::FixedBlocks;

private:
  llvm::Error checkBlockCount(int64_t count) const override {
    if (count < mostVariants)
      return llvm::Error::success();
    return usageError("a capacity of {} in blocks of {} needs more than {} variants of the model",
                      *capacity, size, mostVariants)
        .hint("--to " + manifest.target + ":SIZE makes fewer");
  }

  std::vector<Dim> rowsOfBlocks() override {
    std::vector<Dim> rows = FixedBlocks::rowsOfBlocks();
    pastRows->setReplaceable(); // replaced in other variants
    model.setMetadata(pastRowsKey, pastRows->name().str());
    return rows;
  }

  /// One variant for each number of blocks that hold tokens; none if the model does not need the
  /// number.
  llvm::Error describeVariants() override {
    if (!pastRows)
      return llvm::Error::success();
    const auto all = static_cast<int64_t>(blockRows.size());
    const int64_t least = readerOfBlockExtents(graph, manifest) ? 1 : 0;
    for (int64_t blocks = least; blocks <= all; ++blocks) {
      ManifestVariant variant;
      variant.pastBlocks = blocks;
      variant.pastRows = std::min(blocks * size, *capacity);
      manifest.variants.push_back(std::move(variant));
    }
    return llvm::Error::success();
  }
};

class PyramidTarget final : public Target {
public:
  llvm::StringRef name() const override { return "pyramid"; }
  llvm::StringRef summary() const override {
    return "one variant with fixed extents for each number of past blocks of SIZE tokens, "
           "pyramid:SIZE";
  }
  int64_t defaultSize() const override { return defaultBlockSize; }
  bool needsCapacity() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsFixedBlocks(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    return PyramidBlocks(model, options, journal, name().str()).run(sites);
  }
};

} // namespace

void register_pyramid(TargetRegistry& registry) { registry.add(std::make_unique<PyramidTarget>()); }

} // namespace kvopt::targets
