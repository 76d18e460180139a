// What a region consists of, in the order of its evaluation.
#include "check/regions/region_walk.h"

namespace kvopt::check {
namespace {

/// What comes next in a key.
enum class Part : uint64_t { Stop, Cache, Input, Constant, Node, Absent, Root };

} // namespace

/// A value that both models have. In a step in which it has no form, it is computed.
bool RegionWalk::stopsAt(const ir::Value& value) {
  const auto stop = stopOf(isAfter, value);
  const Form* form = stop ? sources.leaves.formOf(*stop) : nullptr;
  if (!form)
    return false;
  auto [at, isNew] = stops.try_emplace(stop->value, region.stops.size());
  if (isNew)
    region.stops.push_back(stop->value);
  add(uint64_t(Part::Stop));
  add(at->second);
  add(addressOf(form));
  add(stop->representative->constantRef() != nullptr);
  add(!sources.leaves.doubtOf(*stop->representative).empty());
  add(value.resultIndex());
  return llvm::all_of(*form, [](const Ref& contents) { return contents != nullptr; });
}

void RegionWalk::addInput(const ir::Value& input) {
  if (const CacheInput* cache = sources.feeding.cacheInput(isAfter, input)) {
    isShared &= isAfter || !sources.feeding.cacheContents().pairs().replacing(input.name());
    add(uint64_t(Part::Cache));
    add(uint64_t(cache->pair ? cache->pair->content : RowContent::Numbers));
    add(addressOf(sources.shapes.placesOf(*cache)));
    add(cache->history ? placeOf(cache->history->past, histories) : ~uint64_t(0));
    add(placeOf(cache->name, inputs)); // rows that no token wrote have numbers by this name
    return;
  }
  add(uint64_t(Part::Input));
  add(isAfter);
  add(classes().of(input));
  add(nameHash(input.name()));
}

/// Values that need no other value, as in Evaluation. False if the value is a result to be
/// computed.
bool RegionWalk::isLeaf(const ir::Value& value) {
  if (!stopsAt(value)) {
    const bool isInput = value.isGraphInput() && !value.graph().parentNode();
    const bool isConstant = value.isInitializer() && value.initializer();
    if (!isInput && !isConstant)
      return false;
    if (isInput)
      addInput(value);
    if (isConstant) { // of an input, it is the default
      add(uint64_t(Part::Constant));
      add(sources.digests.contentsOf(model(), *value.initializer()));
    }
  }
  numbers[&value] = nextNumber++;
  return true;
}

void RegionWalk::addNode(const ir::Node& node) {
  region.nodes[isAfter].push_back(&node);
  add(uint64_t(Part::Node));
  const Key own = classes().identityOf(node);
  region.key.insert(region.key.end(), own.begin(), own.end());
  add(node.operands().size());
  for (const ir::Use& use : node.operands())
    add(use.value() ? numbers.lookup(use.value()) : uint64_t(Part::Absent) << 32);
  for (const ir::Value& result : node.results())
    numbers[&result] = nextNumber++;
}

bool RegionWalk::demand(const ir::Value& root) {
  numbers.clear();
  nextNumber = 0;
  llvm::SmallVector<const ir::Value*, 32> pending{&root};
  while (!pending.empty()) {
    const ir::Value& value = *pending.back();
    if (numbers.count(&value) || isLeaf(value)) {
      pending.pop_back();
      continue;
    }
    const ir::Node* node = value.producer();
    if (!node || !node->subgraphs().empty())
      return false;
    const size_t before = pending.size();
    for (const ir::Use& use : node->operands())
      if (use.value() && !numbers.count(use.value()))
        pending.push_back(use.value());
    if (pending.size() == before)
      addNode(*node);
  }
  add(uint64_t(Part::Root));
  add(numbers.lookup(&root));
  return isShared;
}

std::optional<Region> RegionWalk::walk(const ir::Value& before, const ir::Value& after,
                                       const Key& question) {
  region.key = question;
  if (!demand(before))
    return std::nullopt;
  isAfter = true;
  if (!demand(after))
    return std::nullopt;
  return std::move(region);
}

std::optional<Region> RegionWalk::walk(const ir::Value& value, const Key& question) {
  region.key = question;
  if (!demand(value))
    return std::nullopt;
  return std::move(region);
}

} // namespace kvopt::check
