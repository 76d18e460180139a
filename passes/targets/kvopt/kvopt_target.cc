// The targets that write kvopt's own operators with one buffer or ring for each cache.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o, present_key, present_value =
//                ai.kvopt.InPlaceKvSdpa(q, k, v, past_key, past_value, past_length, mask)
//
// Past inputs and present outputs get the extent `capacity` on the sequence axis; readers of a
// past's shape get `past_length` instead. A latent cache becomes InPlaceLatentKvSdpa. Other
// attention that reads the same cache becomes ai.kvopt.Sdpa over the present, with past_length.
//
// Caches of int8 stay int8 if attention reads a Cast of them.
//
// Caches with fixed extents that a ScatterElements, ScatterND, or TensorScatter writes do not
// change: if past and present are one buffer, these operators write only the new rows. Attention
// over them, and attention without a cache, stays ai.kvopt.Sdpa.
//
// With quantized rows (InPlaceQuantizedKvSdpa), scales are separate inputs and outputs. Results
// differ from the model's: each element of a key or value is off by up to half a step of its code.
// Attention that only reads another layer's cache becomes ai.kvopt::QuantizedSdpa.
//
// With rings (RingKvSdpa<window = W>), past and present are one buffer of W slots, where W is the
// proved window of the attention, or one more than the rows that the model itself keeps:
//
//   before   joined = Concat<2>(past_key, k)   present_key = Slice(joined, [-K], [...], [2])
//            o = ai.kvopt.Sdpa(q, joined, ...)
//   after    the same with K + 1 slots; readers of the past's rows get Min(past_length, K)
//
// Layers without a window, and caches that a ring cannot hold (shared, in branches), get the form
// of the same target without rings.
//
// `latent` replaces the keys and values of every head by one compressed row per token. Keys and
// values that are products of one row of fewer columns with constant weights, as in multi-head
// latent attention, are not cached; their weights move to the query and to the result of attention
// (passes/rows/latent_caches.h).
#include "passes/rows/latent_rows.h"
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/kvopt/quantized_support.h"
#include "passes/targets/kvopt/window_sites.h"
#include "passes/targets/target.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::targets {
using namespace analysis;
using namespace rows;
using namespace ir;
using namespace pattern;

namespace {

struct KvoptWords {
  std::string name;
  std::string summary;
  CacheForm form;
  bool compresses = false;
};

/// Targets whose rows are stored as they are.
std::vector<KvoptWords> targetsOfNumbers() {
  return {
      {"kvopt", "InPlaceKvSdpa with its function body: past and present in one buffer", {}},
      {"latent",
       "InPlaceLatentKvSdpa: compressed rows instead of every head's keys and values",
       {},
       true},
      {"ring",
       "RingKvSdpa with its function body: only the rows of the window, for any context length",
       {nullptr, CachePlace::Ring}},
  };
}

/// Targets whose rows are stored as the code.
std::vector<KvoptWords> targetsOf(const RowCode& code) {
  return {
      {code.word,
       formatted("InPlaceQuantizedKvSdpa with its function body: {} with a scale each, in one "
                 "buffer",
                 code.rows),
       {&code}},
      {formatted("{}-ring", code.word),
       formatted("RingQuantizedKvSdpa with its function body: only the rows of the window, as {} "
                 "with a scale each",
                 code.rows),
       {&code, CachePlace::Ring}},
  };
}

class KvoptTarget final : public Target {
public:
  explicit KvoptTarget(KvoptWords given) : words(std::move(given)) {}

  llvm::StringRef name() const override { return words.name; }
  llvm::StringRef summary() const override { return words.summary; }
  bool takesSharedCaches() const override { return true; }
  bool usesOwnOperators() const override { return true; }
  bool compressesCaches() const override { return words.compresses; }
  bool quantizesCaches() const override { return words.form.isQuantized(); }
  int64_t opset() const override {
    return quantizesCaches() ? std::max(oldestTargetOpset, words.form.code->opset)
                             : oldestTargetOpset;
  }
  bool takesCodes() const override {
    return !quantizesCaches() && !words.compresses && !isForWindows();
  }

  bool changesPadding(const AttentionSite& site) const override {
    return isForWindows() && ringChangesPadding(site);
  }
  bool serves(const AttentionSite& site) const override {
    if (isForWindows())
      return ringSlots(site) != 0;
    if (words.compresses)
      return site.isLatent() || findValueColumns(site) ||
             std::holds_alternative<LatentRows>(findLatentRows(site));
    return Target::serves(site);
  }
  MatchFailure nothingToDo(const AttentionSite& site) const override {
    if (isForWindows() && site.hasCache())
      return noRing(site);
    if (words.compresses)
      return std::get<MatchFailure>(findLatentRows(site));
    return Target::nothingToDo(site);
  }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return quantizesCaches() ? supportsQuantizedSite(site, words.form)
                             : supportsKvoptSite(site, isForWindows());
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites, isForWindows()))
      return error;
    auto manifest = KvoptLowering(model, options, journal, words.form).run(sites);
    if (manifest)
      manifest->target = words.name;
    return manifest;
  }

private:
  bool isForWindows() const { return words.form.asRings(); }

  KvoptWords words;
};

} // namespace

void register_kvopt(TargetRegistry& registry) {
  for (KvoptWords& words : targetsOfNumbers())
    registry.add(std::make_unique<KvoptTarget>(std::move(words)));
  for (const RowCode* code : rowCodes())
    for (KvoptWords& words : targetsOf(*code))
      registry.add(std::make_unique<KvoptTarget>(std::move(words)));
}

} // namespace kvopt::targets
