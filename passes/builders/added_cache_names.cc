// Names of added caches.
#include "passes/builders/added_cache_names.h"

#include "passes/analysis/movement/equal_values.h"
#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace kvopt::builders {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Prefixes by which programs pair the name of a present with that of its past.
struct Convention {
  llvm::StringLiteral present;
  llvm::StringLiteral past;
};
constexpr Convention conventions[] = {{"present.", "past_key_values."}, {"present", "past"}};

/// Name of the past that programs pair with `present`; empty if no convention has such a present.
std::string pastOf(llvm::StringRef present) {
  for (const Convention& convention : conventions)
    if (startsWith(present, convention.present))
      return (convention.past + present.drop_front(convention.present.size())).str();
  return "";
}

class CacheNamer {
public:
  CacheNamer(const Graph& namedGraph, llvm::ArrayRef<RowsToCache> rowsToCache)
      : graph(namedGraph), all(rowsToCache), named(rowsToCache.size()) {}

  std::variant<std::vector<AddedCacheNames>, MatchFailure> run() {
    // An output with the usual name of a cache is reserved for that cache.
    for (size_t i = 0; i < all.size(); ++i)
      takeOver(i, [&](const Value& output) { return output.name() == usualPresent(all[i]); });
    for (size_t i = 0; i < all.size(); ++i)
      takeOver(i, [](const Value&) { return true; });
    for (size_t i = 0; i < all.size(); ++i) {
      if (!named[i].output)
        named[i].present = usualPresent(all[i]);
      named[i].past = pastOf(named[i].present);
      if (named[i].past.empty())
        named[i].past = pastOf(usualPresent(all[i]));
    }
    for (size_t i = 0; i < all.size(); ++i)
      if (auto clash = clashOf(i))
        return std::move(*clash);
    return std::move(named);
  }

private:
  static std::string usualPresent(const RowsToCache& rows) {
    return formatted("present.{}.{}", rows.layer, rows.role);
  }

  /// Makes an output that already returns the rows their cache, if a suitable one exists.
  void takeOver(size_t cache, llvm::function_ref<bool(const Value&)> mayBe) {
    if (named[cache].output)
      return;
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot) {
      const Value& output = *graph.outputs()[slot];
      if (takenOver.contains(slot) || !mayBe(output) || output.isGraphInput() ||
          !areEqual(output, *all[cache].rows))
        continue;
      takenOver.insert(slot);
      named[cache].output = slot;
      named[cache].present = output.name().str();
      return;
    }
  }

  /// Refusal if another value of the interface has a name of this cache; nullopt otherwise.
  std::optional<MatchFailure> clashOf(size_t cache) {
    const AddedCacheNames& names = named[cache];
    for (const std::string* name : {&names.present, &names.past}) {
      if (!given.insert(*name).second)
        return failure(cache, *name, "another cache that is added");
      if (graph.context().isNameInSubgraph(*name))
        return failure(cache, *name, "a value in a branch");
      const Value* owner = graph.findValue(*name);
      if (!owner || (names.output && graph.outputs()[*names.output] == owner))
        continue;
      if (owner->isGraphInput())
        return failure(cache, *name, "an input " + owner->type().str());
      if (owner->isGraphOutput())
        return failure(cache, *name,
                       formatted("an output {} that does not hold these {}s in this layout",
                                 owner->type().str(), all[cache].role));
    }
    return std::nullopt;
  }

  MatchFailure failure(size_t cache, const std::string& name, std::string owner) const {
    const RowsToCache& rows = all[cache];
    return {ReasonCode::NameTaken, rows.attention->name().str(),
            formatted("'{}' to be free for the {}s {}", name, rows.role, rows.rows->type().str()),
            formatted("'{}' is {}", name, owner), formatted("rename '{}' in the model", name)};
  }

  const Graph& graph;
  llvm::ArrayRef<RowsToCache> all;
  std::vector<AddedCacheNames> named;
  std::set<unsigned> takenOver;
  std::set<std::string> given;
};

} // namespace

void freeName(Graph& graph, const std::string& text) {
  if (Value* owner = graph.findValue(text))
    graph.rename(*owner, graph.freshName(text + "_rows"));
}

std::variant<std::vector<AddedCacheNames>, MatchFailure>
namesOfAddedCaches(const Graph& graph, llvm::ArrayRef<RowsToCache> rows) {
  return CacheNamer(graph, rows).run();
}

} // namespace kvopt::builders
