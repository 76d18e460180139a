// Checks of single sites, and of sites together.
#include "passes/targets/kvopt/kvopt_support.h"

#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/padded_query.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Joined rows have the width of the new ones, whatever a past's type says.
bool readsAllColumns(const AttentionSite& site, const SiteCache& update) {
  const std::optional<unsigned> axis = update.freshLayout.axisOf('D');
  if (!axis || update.firstColumn != 0)
    return false;
  const Dim& columns = update.fresh->type().dim(*axis);
  if (!unflattened(update.freshLayout))
    return update.columns.isKnownEqual(columns);
  const Dim heads = site.node->operand(&update == &*site.key ? 1 : 2)->type().dim(1);
  return (update.columns * heads).isKnownEqual(columns * update.repeats);
}

/// The fused node produces both presents: none of its operands may depend on them, and readers of
/// their shape would see the capacity.
std::optional<MatchFailure> dependsOnPresent(const AttentionSite& site) {
  if (site.key->fromStart)
    return std::nullopt;
  const Value* presents[] = {&site.key->writer->result(), &site.value->writer->result()};
  for (const Value* operand : {site.node->operand(0), site.node->operand(3), site.key->fresh,
                               site.value->fresh, site.key->pastLength}) {
    if (!operand)
      continue;
    std::vector<const Value*> path = dependencyPath(*operand, presents);
    if (path.empty())
      continue;
    std::string text;
    for (const Value* value : path)
      text += (text.empty() ? "" : " <- ") + value->name().str();
    return MatchFailure{ReasonCode::WouldCreateCycle, site.node->name().str(),
                        "operands that do not depend on the present", text, ""};
  }
  if (const Node* reader = site.shapeReader)
    return MatchFailure{ReasonCode::CacheEscapes, reader->operand(0)->name().str(),
                        "shapes computed from the past and the new rows",
                        reader->describe() + " reads the shape of the present",
                        "compute it from the shapes of the past and of the new rows"};
  return std::nullopt;
}

std::optional<MatchFailure> supportsCache(const AttentionSite& site) {
  const SiteCache& key = *site.key;
  const SiteCache& value = *site.value;
  const bool isPadded = !site.addsQueryRows();
  if (isPadded && !canPadQuery(site))
    return MatchFailure{ReasonCode::ShapeMismatch, key.fresh->name().str(),
                        formatted("a new row for each of {} query rows", site.stepRows->query),
                        formatted("{} rows", site.stepRows->appended), "--to onnx23 can take it"};
  if ((!isPadded && site.node->operand(5) != key.pastLength) || key.pastLength != value.pastLength)
    return MatchFailure{ReasonCode::ShapeMismatch, site.node->name().str(),
                        "one length for the cache and for attention", "two", ""};
  for (const SiteCache* update : {&key, &value}) {
    auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
      return MatchFailure{code, update->past->name().str(), std::move(expected), std::move(found),
                          ""};
    };
    bool isKey = update == &key && !site.isLatent();
    const std::string& layout = update->layout.text();
    if (update->layout.isStacked())
      return refuse(ReasonCode::LayoutUnsupported, "a cache for keys and another one for values",
                    "one tensor for both, " + layout);
    if (!attendedLayout(update->layout, isKey))
      return refuse(ReasonCode::LayoutUnsupported,
                    isKey ? "one of BHSD, BSHD, SBHD, BHDS, (BH)SD, (BH)DS, BSD, BDS, BS(HD)"
                          : "one of BHSD, BSHD, SBHD, (BH)SD, BSD, BS(HD)",
                    layout.empty() ? "an unknown layout" : layout);
    if (!attendedLayout(update->freshLayout, true))
      return refuse(ReasonCode::LayoutUnsupported, "new rows in another layout",
                    update->freshLayout.text());
    const Value& operand = *site.node->operand(update == &key ? 1 : 2);
    if ((update->freshLayout.rank() == 3 || unflattened(update->layout)) &&
        (!operand.type().dim(1).value() || !operand.type().dim(3).value()))
      return refuse(ReasonCode::HeadCountUnproven, "fixed heads and width", operand.type().str());
    // Reading 16-bit rows, or codes, as wider ones is exact; narrowing is not.
    ElementType cached = update->past->type().elementType();
    ElementType attended = site.node->operand(0)->type().elementType();
    bool widens = attended == ElementType::Float &&
                  (cached == ElementType::Float16 || cached == ElementType::BFloat16 ||
                   cached == ElementType::Int8);
    if (cached != attended && !widens)
      return refuse(ReasonCode::DtypeMix, "caches of the query's element type",
                    onnxName(cached).str());
    if (cached != key.past->type().elementType())
      return refuse(ReasonCode::DtypeMix, "keys and values of one element type",
                    onnxName(cached).str());
  }
  auto refuseColumns = [&](const SiteCache& update) {
    return MatchFailure{ReasonCode::LayoutUnsupported, update.past->name().str(),
                        "all columns of the cache to be read",
                        formatted("{} from column {} on", update.columns.str(), update.firstColumn),
                        ""};
  };
  if (!readsAllColumns(site, key))
    return refuseColumns(key);
  if (site.isLatent() ? !value.columns.value().has_value() : !readsAllColumns(site, value))
    return refuseColumns(value);
  return dependsOnPresent(site);
}

/// Reason why a site's caches would be copied at every step, although the site itself is supported.
std::optional<MatchFailure> staysCopied(const AttentionSite& site) {
  for (const auto* cache : {&site.key, &site.value}) {
    if (!*cache || (*cache)->update != CacheUpdate::Static || (*cache)->isOverwritten())
      continue;
    const Node& writer = *(*cache)->writer;
    const Value& read = *writer.operand(0);
    return MatchFailure{ReasonCode::CacheNotInPlace, (*cache)->past->name().str(),
                        "new rows written into the cache itself",
                        &read == (*cache)->past
                            ? "a present computed from the value that " + writer.describe() +
                                  " gives"
                            : "rows written into the value that " + read.producer()->describe() +
                                  " computes from it",
                        ""};
  }
  return doesNotGrow(site);
}

/// Checks attention that reads the unchanged result of another site's operator.
std::optional<MatchFailure> supportsReader(const AttentionSite& site) {
  if (site.node->operand(5) != site.key->pastLength)
    return MatchFailure{ReasonCode::ShapeMismatch, site.node->name().str(),
                        "rows that are counted as those of the cache that it reads",
                        "rows that padding is counted in for one of them only",
                        "--padding none, if no batch is padded"};
  if (site.node->operand(1) == site.key->present && site.node->operand(2) == site.value->present)
    return std::nullopt;
  return MatchFailure{ReasonCode::LayoutUnsupported, site.key->past->name().str(),
                      "a cache of several readers in the layout of attention, BHSD",
                      site.key->layout.text() + " and " + site.value->layout.text(), ""};
}

/// Either all readers of a cache support its buffer form, or none uses it.
llvm::Error checkReaders(llvm::ArrayRef<AttentionSite*> sites) {
  llvm::DenseSet<unsigned> chosen;
  for (const AttentionSite* site : sites)
    chosen.insert(site->layer);
  for (const AttentionSite* site : sites) {
    bool isWhole = !site->owner || chosen.contains(*site->owner);
    for (unsigned reader : site->readers)
      isWhole &= chosen.contains(reader);
    if (!isWhole)
      return unsupported("layer {}: other attention reads its caches, too", site->id())
          .hint("rewrite all layers that read the cache together");
  }
  return llvm::Error::success();
}

/// Past and present are one buffer in every branch or in none.
llvm::Error checkBranches(llvm::ArrayRef<AttentionSite*> sites) {
  std::map<const Value*, unsigned> chosen;
  for (const AttentionSite* site : sites)
    if (site->grows())
      ++chosen[site->key->past];
  for (const AttentionSite* site : sites)
    if (site->grows() && chosen[site->key->past] < site->key->updaters)
      return unsupported("layer {}: attention in other branches updates its caches, too",
                         site->id())
          .hint("rewrite the layers of all branches together");
  return llvm::Error::success();
}

/// A model has one function body per operator, which is written for one form of its nodes.
llvm::Error checkUniform(llvm::ArrayRef<AttentionSite*> sites, bool asRings) {
  const AttentionSite* attended = nullptr;
  const AttentionSite* cached = nullptr;
  const AttentionSite* latent = nullptr;
  const AttentionSite* ring = nullptr;
  for (const AttentionSite* site : sites) {
    if (attended && attended->node->operand(0)->type().elementType() !=
                        site->node->operand(0)->type().elementType())
      return unsupported("the attentions of the model have different element types")
          .hint("rewrite the layers of one type only, with --layers");
    attended = site;
    const bool isRing = asRings && ringSlots(*site) != 0;
    if (!site->grows() && !isRing)
      continue;
    const AttentionSite*& first = isRing ? ring : site->isLatent() ? latent : cached;
    if (first && first->key->past->type().elementType() != site->key->past->type().elementType())
      return unsupported("the caches of the model have different element types")
          .hint("rewrite the layers of one type only, with --layers");
    if (first &&
        (attendedLayout(first->key->layout, true) != attendedLayout(site->key->layout, true) ||
         attendedLayout(first->value->layout, true) != attendedLayout(site->value->layout, true)))
      return unsupported("the caches of the model have different layouts")
          .hint("rewrite the layers of one layout only, with --layers");
    first = site;
  }
  return llvm::Error::success();
}

} // namespace

std::optional<CacheLayout> attendedLayout(const CacheLayout& layout, bool transposable) {
  return inPlaceLayout(unflattened(layout).value_or(layout), transposable);
}

std::optional<MatchFailure> doesNotGrow(const AttentionSite& site) {
  if (site.update != CacheUpdate::Static && site.update != CacheUpdate::Ring)
    return std::nullopt;
  return MatchFailure{ReasonCode::CacheNotInPlace, site.key->past->name().str(),
                      "a cache that grows by the new rows",
                      site.update == CacheUpdate::Ring
                          ? "one that keeps the last rows only"
                          : "one of fixed extents that new rows are scattered into",
                      ""};
}

std::optional<MatchFailure> standsInBranch(const AttentionSite& site) {
  const Node* choice = site.node->graph().parentNode();
  if (!choice)
    return std::nullopt;
  return MatchFailure{ReasonCode::InSubgraph, site.node->name().str(),
                      "attention in the main graph",
                      "attention in a branch of " + choice->describe(),
                      "kvopt rewrite --one-branch takes the branch with a past for every step of a "
                      "merged decoder; --to kvopt keeps both"};
}

int64_t ringSlots(const AttentionSite& site) {
  if (!site.hasCache() || site.sharesCaches() || site.pastFlag || !site.addsQueryRows() ||
      site.node->graph().parentNode() || site.key->pastLength || site.value->pastLength)
    return 0;
  int64_t slots = 0;
  if (site.update == CacheUpdate::Grows && site.mask)
    slots = site.mask->window;
  else if (site.update == CacheUpdate::Ring && site.key->lastRows == site.value->lastRows &&
           site.key->lastRows > 0)
    slots = site.key->lastRows + 1;
  return slots <= INT32_MAX ? slots : 0;
}

std::optional<MatchFailure> supportsKvoptSite(const AttentionSite& site, bool asRing) {
  if (site.failure)
    return site.failure;
  const bool isRing = asRing && ringSlots(site) != 0;
  if (!site.isOverwritten() && !isRing)
    if (std::optional<MatchFailure> failure = staysCopied(site))
      return failure;
  if (std::optional<MatchFailure> failure = KvoptOperands::obstacle(*site.node))
    return failure;
  auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
    return MatchFailure{code, site.node->name().str(), std::move(expected), std::move(found), ""};
  };
  ElementType element = site.node->operand(0)->type().elementType();
  if (!isFloatingPoint(element) || element == ElementType::Double)
    return refuse(ReasonCode::DtypeMix, "a query of 16 or 32 bits", onnxName(element).str());
  if (!site.queryHeads.value())
    return refuse(ReasonCode::HeadCountUnproven, "a fixed number of query heads",
                  site.queryHeads.str());
  if (site.update == CacheUpdate::Grows && site.sharesCaches())
    if (std::optional<MatchFailure> failure = supportsReader(site))
      return failure;
  return site.grows() || isRing ? supportsCache(site) : std::nullopt;
}

llvm::Error checkKvoptSites(llvm::ArrayRef<AttentionSite*> sites, bool asRings) {
  if (llvm::Error error = checkReaders(sites))
    return error;
  if (llvm::Error error = checkBranches(sites))
    return error;
  return checkUniform(sites, asRings);
}

} // namespace kvopt::targets
