// Traces outputs of the model to the values that branches return for them.
#include "passes/analysis/cache/branch_caches.h"

#include "ir/movement.h"
#include "support/format.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

const Graph& outermostGraph(const Graph& graph) {
  const Graph* outermost = &graph;
  while (const Node* holder = outermost->parentNode())
    outermost = &holder->graph();
  return *outermost;
}

bool isExclusive(const Node& a, const Node& b) {
  // For each node around `a`, its subgraph that contains `a`.
  llvm::DenseMap<const Node*, const Graph*> around;
  for (const Graph* graph = &a.graph(); graph->parentNode(); graph = &graph->parentNode()->graph())
    around[graph->parentNode()] = graph;
  for (const Graph* graph = &b.graph(); graph->parentNode(); graph = &graph->parentNode()->graph())
    if (auto found = around.find(graph->parentNode()); found != around.end())
      return found->second != graph && found->first->is("If");
  return false;
}

Condition conditionOf(const Node& choice) {
  Condition condition;
  condition.source = choice.operand(0);
  while (condition.source && condition.source->producer()) {
    const Node& producer = *condition.source->producer();
    std::optional<MovementKind> kind = movementKind(producer);
    if (producer.op() == "Not")
      condition.inverted = !condition.inverted;
    else if (!kind || kind == MovementKind::Convert || !keepsOrder(*kind))
      break;
    condition.source = kind ? movedOperand(producer) : producer.operand(0);
  }
  return condition;
}

namespace {

/// Whether the value is a bool input of the model.
bool isFlag(const Value* value) {
  return value && value->isGraphInput() && !value->graph().parentNode() &&
         value->type().elementType() == ElementType::Bool && value->type().hasRank();
}

enum class Role { Key, Value };

/// An operand of attention, found by the value that it reads.
struct Reader {
  AttentionSite* site;
  Role role;
};

std::optional<SiteCache>& cacheOf(const Reader& reader) {
  return reader.role == Role::Key ? reader.site->key : reader.site->value;
}

const Graph* branchOf(const Node& choice, llvm::StringRef name) {
  const Attribute* attribute = choice.attribute(name);
  return attribute && attribute->graphs().size() == 1 ? attribute->graphs().front().get() : nullptr;
}

/// Value that a graph returns as an output, and the graph.
using Source = std::pair<Value*, const Graph*>;

/// Values that may become `output` of `graph`: those that branches return for it, through nested
/// Ifs.
void collectSources(Value& output, const Graph& graph, llvm::SmallVectorImpl<Source>& sources) {
  Node* choice = output.producer();
  if (!choice || !choice->is("If") || &choice->graph() != &graph) {
    sources.push_back({&output, &graph});
    return;
  }
  for (const char* name : {"then_branch", "else_branch"})
    if (const Graph* branch = branchOf(*choice, name);
        branch && output.resultIndex() < branch->outputs().size())
      collectSources(*branch->outputs()[output.resultIndex()], *branch, sources);
}

std::string placeOf(const Value& value) {
  const Node* producer = value.producer();
  return producer && !producer->name().empty() ? producer->name().str() : value.name().str();
}

class Joiner {
public:
  explicit Joiner(SiteList& siteList) : sites(siteList) {
    for (AttentionSite& site : sites) {
      const Graph& graph = site.node->graph();
      if (site.failure || !graph.parentNode())
        continue;
      if (site.grows()) {
        presents[{site.key->present, &graph}] = {&site, Role::Key};
        presents[{site.value->present, &graph}] = {&site, Role::Value};
      } else if (!site.isCross && site.update == CacheUpdate::None) {
        addOperand(site, 1, Role::Key);
        addOperand(site, 2, Role::Value);
      }
    }
  }

  void run() {
    if (presents.empty())
      return;
    const Graph& main = outermostGraph(sites.front().node->graph());
    for (Value* output : main.outputs())
      join(*output, main);
    for (AttentionSite& site : sites)
      complete(site);
    for (AttentionSite& site : sites)
      findFlag(site);
    spreadFailures();
  }

private:
  void addOperand(AttentionSite& site, unsigned operand, Role role) {
    auto [entry, isNew] = operands.try_emplace({site.node->operand(operand), &site.node->graph()},
                                               Reader{&site, role});
    if (!isNew)
      entry->second.site = nullptr; // several attentions read it
  }

  void join(Value& output, const Graph& main) {
    llvm::SmallVector<Source, 4> sources;
    collectSources(output, main, sources);
    const SiteCache* grown = nullptr;
    for (const Source& source : sources)
      if (auto found = presents.find(source); found != presents.end() && !grown)
        grown = &*cacheOf(found->second);
    if (!grown)
      return;
    for (const Source& source : sources)
      if (!joinSource(source, output, *grown))
        for (const Source& other : sources)
          if (auto found = presents.find(other); found != presents.end())
            refuse(*found->second.site, *source.first,
                   formatted("that every branch updates the cache '{}'", grown->past->name().str()),
                   "one that returns something else");
  }

  /// Whether the source updates the same cache as `grown`.
  bool joinSource(const Source& source, Value& output, const SiteCache& grown) {
    if (auto found = presents.find(source); found != presents.end()) {
      SiteCache& cache = *cacheOf(found->second);
      cache.output = &output;
      return cache.past == grown.past && cache.axis == grown.axis;
    }
    // Keys and values as attention reads them are [B,H,S,D].
    auto found = operands.find(source);
    if (found == operands.end() || !found->second.site || grown.layout.text() != "BHSD" ||
        !isRowsOf(*source.first, grown))
      return false;
    AttentionSite& site = *found->second.site;
    // One row per token, as the other branches append them.
    if (!source.first->type().dim(grown.axis).isKnownEqual(site.node->operand(0)->type().dim(2)))
      return false;
    for (const Use& use : grown.past->uses())
      if (isWithin(use.user(), *source.second) && use.user().op() != "Shape")
        return false;
    std::optional<SiteCache>& slot = cacheOf(found->second);
    if (slot)
      return false; // two outputs
    slot.emplace();
    slot->past = grown.past;
    slot->fresh = slot->present = source.first;
    slot->output = &output;
    slot->axis = grown.axis;
    slot->fromStart = true;
    slot->layout = slot->freshLayout = grown.layout;
    slot->columns = source.first->type().dim(3);
    site.update = CacheUpdate::Grows;
    return true;
  }

  static bool isWithin(const Node& node, const Graph& graph) {
    for (const Graph* around = &node.graph();; around = &around->parentNode()->graph()) {
      if (around == &graph)
        return true;
      if (!around->parentNode())
        return false;
    }
  }

  /// Whether the value has the cache's extents, apart from the sequence.
  static bool isRowsOf(const Value& rows, const SiteCache& cache) {
    const TensorType& a = rows.type();
    const TensorType& b = cache.past->type();
    if (!a.hasRank() || !b.hasRank() || a.rank() != b.rank() || a.elementType() != b.elementType())
      return false;
    for (unsigned axis = 0; axis < a.rank(); ++axis)
      if (axis != cache.axis && !a.shape()[axis].isKnownEqual(b.shape()[axis]))
        return false;
    return true;
  }

  /// Refuses an incomplete site.
  void complete(AttentionSite& site) {
    if (site.failure || !site.node->graph().parentNode())
      return;
    if (site.key.has_value() != site.value.has_value()) {
      refuse(site, *site.node->operand(site.key ? 2 : 1), "keys and values that are both cached",
             site.key ? "only the keys are" : "only the values are");
      return;
    }
    if (!site.grows())
      return;
    for (const SiteCache* cache : {&*site.key, &*site.value})
      if (!cache->output) {
        refuse(site, *cache->present, "a present that becomes an output of the model",
               "a value inside the model", ReasonCode::PresentNotOutput);
        return;
      }
    if (site.key->fromStart != site.value->fromStart)
      refuse(site, *site.key->present, "keys and values of one past",
             "a past that only one of them reads");
  }

  /// The bool input that selects the branch. A driver must know when there is no past, so no other
  /// value may select it.
  void findFlag(AttentionSite& site) {
    if (site.failure || !site.hasCache() || !site.key->fromStart)
      return;
    const Graph& graph = site.node->graph();
    const Node& choice = *graph.parentNode();
    Condition condition = conditionOf(choice);
    bool startsThen = branchOf(choice, "then_branch") == &graph;
    bool withPast = startsThen == condition.inverted;
    if (isFlag(condition.source) &&
        flags.try_emplace(condition.source, withPast).first->second == withPast)
      site.pastFlag = PastFlag{condition.source, withPast};
    else
      refuse(site, *choice.operand(0), "a bool input that says whether there is a past",
             "another condition");
  }

  /// A cache is updated in every branch or in none.
  void spreadFailures() {
    llvm::DenseMap<const Value*, llvm::SmallVector<AttentionSite*, 2>> byPast;
    for (AttentionSite& site : sites)
      if (site.grows() && site.node->graph().parentNode())
        for (const SiteCache* cache : {&*site.key, &*site.value})
          byPast[cache->past].push_back(&site);
    for (auto& [past, users] : byPast) {
      for (AttentionSite* site : users)
        for (SiteCache* cache : {&*site->key, &*site->value})
          if (cache->past == past)
            cache->updaters = static_cast<unsigned>(users.size());
      auto refused = llvm::find_if(users, [](AttentionSite* site) { return site->failure; });
      if (refused == users.end())
        continue;
      for (AttentionSite* site : users)
        if (!site->failure)
          refuse(*site, *past, "that every branch updates the cache",
                 formatted("{}, which does not: {}", (*refused)->id(), (*refused)->failure->str()));
    }
  }

  static void refuse(AttentionSite& site, const Value& at, std::string expected, std::string found,
                     ReasonCode code = ReasonCode::InSubgraph) {
    if (!site.failure)
      site.failure = MatchFailure{code, placeOf(at), std::move(expected), std::move(found),
                                  "export the decoder without branches, or each branch by itself"};
  }

  SiteList& sites;
  llvm::DenseMap<Source, Reader> presents;
  llvm::DenseMap<Source, Reader> operands;
  llvm::DenseMap<const Value*, bool> flags; // value of each flag when there is a past
};

} // namespace

void joinBranchCaches(SiteList& sites) { Joiner(sites).run(); }

} // namespace kvopt::analysis
