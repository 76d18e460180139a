// Blocks are found by following caches forward to the attention's result. Nodes on dead ends are
// dropped.
#include "driver/diff/attention_blocks.h"

#include "driver/recover.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/site_words.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <map>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

/// The part of a block's rows that a cache input holds.
enum class CachePart { Key, Value, Both };

bool isFused(const Node& node) {
  return isAttentionOperator(node) || node.op().domain() == kvoptDomain;
}

bool isProduct(const Node& node) {
  return node.is("MatMul") || node.is("Einsum") || node.is("Gemm") || isFused(node);
}

/// One walk over the graph that marks the values computed from each block's caches.
class BlockWalk {
public:
  BlockWalk(const Graph& graph, std::vector<AttentionSubgraph>& found)
      : main(graph), blocks(found), origins(graph), ends(found.size()) {}

  void addCache(size_t block, CachePart part, llvm::StringRef past) {
    if (const Value* input = main.findValue(past))
      colours.try_emplace(input, Colour{block, part, true});
  }

  void run() {
    walk(main);
    for (size_t i = 0; i < blocks.size(); ++i)
      prune(blocks[i], ends[i]);
  }

private:
  struct Colour {
    size_t block;
    CachePart part;
    bool isCache; ///< rows of a cache; otherwise scores, or values computed from them
  };
  struct Reading {
    bool values = false;
    unsigned both = 0;
    bool scores = false;
  };

  void walk(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      visit(node);
      for (const Graph* inner : node.subgraphs())
        walk(*inner);
    }
  }

  const Colour* colourOf(const Value* value) const {
    auto found = value ? colours.find(value) : colours.end();
    return found == colours.end() ? nullptr : &found->second;
  }

  void visit(const Node& node) {
    if (node.is("Shape") || node.is("Size"))
      return;
    std::optional<Colour> first;
    Reading reading;
    for (const Use& use : node.operands()) {
      const Colour* colour = colourOf(use.value());
      if (!colour || (first && colour->block != first->block))
        continue;
      first = first.value_or(*colour);
      reading.values |= colour->isCache && colour->part == CachePart::Value;
      reading.both += colour->isCache && colour->part == CachePart::Both;
      reading.scores |= !colour->isCache;
    }
    if (!first)
      return;
    blocks[first->block].nodes.push_back(&node);
    const bool keepsRows = llvm::all_of(node.results(), [&](const Value& result) {
      return result.isAbsent() || origins.find(result);
    });
    const bool isEnd =
        !keepsRows && (reading.values || (reading.both != 0 &&
                                          (reading.scores || reading.both > 1 || isFused(node))));
    if (isEnd)
      ends[first->block].push_back(&node);
    for (const Value& result : node.results())
      if (!result.isAbsent() && (origins.find(result) || !isEnd))
        colours.try_emplace(&result,
                            Colour{first->block, first->part, origins.find(result) != nullptr});
  }

  /// Keeps only the nodes that lead to the attention's result or to a present.
  void prune(AttentionSubgraph& block, llvm::ArrayRef<const Node*> endNodes) {
    llvm::DenseSet<const Node*> kept(endNodes.begin(), endNodes.end());
    std::vector<const Node*> nodes;
    for (const Node* node : llvm::reverse(block.nodes)) {
      const bool leadsOn = llvm::any_of(node->results(), [&](const Value& result) {
        const Colour* colour = colourOf(&result);
        return (colour && colour->isCache && result.isGraphOutput()) ||
               llvm::any_of(result.uses(),
                            [&](const Use& use) { return kept.count(&use.user()) != 0; });
      });
      if (!leadsOn && !kept.count(node))
        continue;
      kept.insert(node);
      nodes.push_back(node);
    }
    block.nodes.assign(nodes.rbegin(), nodes.rend());
  }

  const Graph& main;
  std::vector<AttentionSubgraph>& blocks;
  CacheOrigins origins;
  std::vector<llvm::SmallVector<const Node*, 2>> ends;
  llvm::DenseMap<const Value*, Colour> colours;
};

bool isLinear(const Node& node) {
  return isProduct(node) && llvm::any_of(node.operands(), [](const Use& use) {
           return use.value() && (use.value()->constant() || use.value()->isInitializer());
         });
}

/// The nodes around an attention without caches, from the product with the values back to the
/// product of queries and keys. Linear layers, and nodes that others read as well, are left out.
/// `root` is the product with the values or the softmax.
std::vector<const Node*> aroundRoot(const Node& root) {
  constexpr size_t most = 32;
  std::vector<const Node*> found{&root};
  while (!isProduct(*found.back()) && found.size() < most && found.back()->result().hasOneUse()) {
    const Node& reader = found.back()->result().uses().begin()->user();
    if (&reader.graph() != &root.graph())
      break;
    found.push_back(&reader);
  }
  const Node* last = found.back();
  llvm::DenseSet<const Node*> seen(found.begin(), found.end());
  for (size_t i = 0; i < found.size() && found.size() < most; ++i) {
    if (isFused(*found[i]) || (isProduct(*found[i]) && found[i] != last))
      continue;
    for (const Use& use : found[i]->operands()) {
      const Node* producer = use.value() ? use.value()->producer() : nullptr;
      if (!producer || !use.value()->hasOneUse() || &producer->graph() != &root.graph() ||
          isLinear(*producer))
        continue;
      if (seen.insert(producer).second)
        found.push_back(producer);
    }
  }
  llvm::sort(found, [](const Node* a, const Node* b) { return a->comesBefore(*b); });
  return found;
}

/// The index of the block of a layer of the manifest; adds the block if it is new.
size_t blockOfLayer(std::vector<AttentionSubgraph>& blocks, std::map<int64_t, size_t>& byLayer,
                    const ManifestCache& cache) {
  auto [entry, isNew] = byLayer.try_emplace(cache.layer, blocks.size());
  if (isNew) {
    AttentionSubgraph& made = blocks.emplace_back();
    made.layer = static_cast<unsigned>(cache.layer);
    made.kind = cache.update() == CacheUpdate::ReadOnly ? "cross" : "self";
  }
  return entry->second;
}

/// The caches of rewritten layers. The manifest lists each cache of another layer as the key of a
/// separate layer.
std::vector<ManifestCache> rewrittenCaches(const Model& model, const Manifest& manifest) {
  if (!model.findMetadata(partialKey))
    return manifest.caches;
  std::map<int64_t, size_t> counts;
  for (const ManifestCache& cache : manifest.caches)
    ++counts[cache.layer];
  std::vector<ManifestCache> caches = manifest.caches;
  llvm::erase_if(caches, [&](const ManifestCache& cache) {
    return cache.role == CacheRole::Key && counts[cache.layer] == 1;
  });
  return caches;
}

std::vector<AttentionSubgraph> writtenBlocks(const Model& model, const Manifest& manifest) {
  std::vector<AttentionSubgraph> blocks;
  std::map<int64_t, size_t> byLayer;
  const std::vector<ManifestCache> caches = rewrittenCaches(model, manifest);
  for (const ManifestCache& cache : caches) {
    AttentionSubgraph& block = blocks[blockOfLayer(blocks, byLayer, cache)];
    block.pasts.push_back(cache.past);
    if (!cache.present.empty())
      block.presents.push_back(cache.present);
    block.oneBuffer |= cache.isOneBuffer();
  }
  BlockWalk walk(model.graph(), blocks);
  for (const ManifestCache& cache : caches) {
    const bool isValue = cache.role == CacheRole::Value || cache.role == CacheRole::ValueScale;
    const CachePart part = isValue                           ? CachePart::Value
                           : cache.role == CacheRole::Latent ? CachePart::Both
                                                             : CachePart::Key;
    walk.addCache(byLayer.at(cache.layer), part, cache.past);
    for (const std::string& block : cache.blocks())
      walk.addCache(byLayer.at(cache.layer), part, block);
  }
  walk.run();
  return blocks;
}

AttentionSubgraph blockOfSite(const AttentionSite& site) {
  AttentionSubgraph block;
  block.layer = site.layer;
  block.kind = siteKindName(site);
  for (const std::optional<SiteCache>* update : {&site.key, &site.value}) {
    if (!*update || (site.isLatent() && update == &site.value))
      continue;
    block.pasts.push_back((*update)->past->name().str());
    const Value* present = (*update)->output ? (*update)->output : (*update)->present;
    if (present)
      block.presents.push_back(present->name().str());
  }
  return block;
}

/// Adds blocks without caches: the nodes around the root of each recognized attention.
void findByRoots(Model& model, const PassContext& context, std::vector<AttentionSubgraph>& blocks) {
  llvm::StringMap<const Node*> nodes;
  forEachGraph(model.graph(), [&](Graph& graph) {
    for (const Node& node : graph.nodes())
      nodes.try_emplace(labelOf(node), &node);
  });
  llvm::StringMap<std::string> roots = raisedRoots(context.journal, [&](llvm::StringRef name) {
    const RuleRegistry::Entry* entry = context.rules.find(name);
    return entry && entry->rule->group() == RuleGroup::Raise;
  });
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].nodes.empty())
      continue;
    const std::string label = labelOf(*context.sites[i].node);
    const std::string root = roots.lookup(label);
    if (const Node* node = nodes.lookup(root.empty() ? label : root))
      blocks[i].nodes = aroundRoot(*node);
  }
}

llvm::Expected<std::vector<AttentionSubgraph>>
exportedBlocks(Model& model, const ModelSource& source, const Toolkit& toolkit) {
  auto recovered = recoverModel(source, toolkit);
  if (!recovered)
    return recovered.takeError();
  const SiteList& sites = recovered->context->sites;
  std::vector<AttentionSubgraph> blocks;
  for (const AttentionSite& site : sites)
    blocks.push_back(blockOfSite(site));
  BlockWalk walk(model.graph(), blocks);
  for (size_t i = 0; i < sites.size(); ++i) {
    const AttentionSite& site = sites[i];
    const bool isOne = site.hasCache() && site.key->past == site.value->past;
    if (site.key)
      walk.addCache(i, isOne ? CachePart::Both : CachePart::Key, site.key->past->name());
    if (site.value && !isOne)
      walk.addCache(i, CachePart::Value, site.value->past->name());
  }
  walk.run();
  findByRoots(model, *recovered->context, blocks);
  return blocks;
}

/// Adds the blocks of layers that were not rewritten, with unused numbers.
void addRest(std::vector<AttentionSubgraph> rest, std::vector<AttentionSubgraph>& blocks) {
  llvm::StringSet<> known;
  llvm::DenseSet<unsigned> taken;
  for (const AttentionSubgraph& block : blocks) {
    taken.insert(block.layer);
    for (const std::string& past : block.pasts)
      known.insert(past);
  }
  unsigned layer = 0;
  for (AttentionSubgraph& block : rest) {
    if (llvm::any_of(block.pasts, [&](const std::string& past) { return known.count(past) != 0; }))
      continue;
    while (taken.count(layer))
      ++layer;
    block.layer = layer++;
    blocks.push_back(std::move(block));
  }
}

} // namespace

OpCounts AttentionSubgraph::ops() const {
  OpCounts counts;
  for (const Node* node : nodes)
    ++counts[node->op().str()];
  return counts;
}

llvm::Expected<BlockedModel> readBlocks(const ModelSource& source, const Toolkit& toolkit) {
  auto model = openModel(source, toolkit);
  if (!model)
    return model.takeError();
  BlockedModel found;
  found.model = std::move(*model);
  if (llvm::Error error = inferShapes(found.model->graph()))
    return withFile(std::move(error), source.path);
  auto manifest = manifestOf(*found.model);
  if (!manifest)
    return withFile(manifest.takeError(), source.path);
  if (*manifest)
    found.blocks = writtenBlocks(*found.model, **manifest);
  if (!*manifest || found.model->findMetadata(partialKey)) {
    auto exported = exportedBlocks(*found.model, source, toolkit);
    if (!exported)
      return exported.takeError();
    if (*manifest)
      addRest(std::move(*exported), found.blocks);
    else
      found.blocks = std::move(*exported);
  }
  llvm::stable_sort(found.blocks, [](const AttentionSubgraph& a, const AttentionSubgraph& b) {
    return a.layer < b.layer;
  });
  return found;
}

} // namespace kvopt::driver
