// Searches the first layer for contradictions; only if there is one, it examines all extents that
// may be equal.
#include "passes/extents/unequal_extents.h"

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/interface/extent_equations.h"
#include "support/diagnostic.h"
#include "support/string_ends.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <set>

namespace kvopt::extents {
using namespace analysis;
using namespace ir;

namespace {

/// The symbol of an extent that is a single symbol; empty for any other extent.
std::string bareSymbol(const Dim& extent) {
  auto symbols = extent.symbols();
  return symbols.size() == 1 && extent == Dim::symbol(symbols[0]) ? symbols[0] : std::string();
}

/// Whether the difference is 0 only if a symbol is, or never.
bool forcesZero(const Dim& difference) {
  return !difference.isUnknown() && difference != Dim::fixed(0) &&
         (difference.isKnownNonNegative() || (-difference).isKnownNonNegative());
}

bool isPlainInput(const Value& value) {
  return value.isGraphInput() && !value.graph().parentNode() && !value.initializer() &&
         value.type().hasRank();
}

/// Whether an input could be a cache.
bool mayHoldRows(const Value& value) { return isPlainInput(value) && value.type().rank() >= 3; }

/// The input that a value is moved from; null for computed values.
const Value* movedInput(const Value* value) {
  constexpr unsigned mostMovements = 16;
  for (unsigned depth = 0; value && depth < mostMovements; ++depth) {
    if (mayHoldRows(*value))
      return value;
    const Node* node = value->producer();
    value = node && !node->is("Concat") && movementKind(*node) ? movedOperand(*node) : nullptr;
  }
  return nullptr;
}

bool isAttention(const Node& node) {
  const llvm::StringRef type = node.op().type();
  return node.is("Softmax") || endsWith(type, "Attention") || endsWith(type, "Sdpa");
}

/// Visits the extents of rows in a cache and of the rows that a node appends to them.
void forEachAppend(const Node& node,
                   llvm::function_ref<void(const std::string& past, const Dim& appended)> visit) {
  if (!node.is("Concat") && (movementKind(node) || !isAttention(node)))
    return;
  for (const Use& use : node.operands()) {
    const Value* value = use.value();
    if (!value || !value->type().hasRank() || !movedInput(value))
      continue;
    for (const Value& result : node.results()) {
      if (!result.type().hasRank() || result.type().rank() != value->type().rank())
        continue;
      for (unsigned axis = 0; axis < result.type().rank(); ++axis) {
        const Dim past = value->type().shape()[axis];
        const Dim appended = result.type().shape()[axis] - past;
        const std::string symbol = bareSymbol(past);
        if (!symbol.empty() && appended != Dim::fixed(0) && appended.isKnownNonNegative())
          visit(symbol, appended);
      }
    }
  }
}

void forEachNode(const Node& node, llvm::function_ref<void(const Node&)> visit) {
  visit(node);
  for (const NamedAttribute& attribute : node.attributes())
    for (const std::unique_ptr<Graph>& subgraph : attribute.value.graphs())
      for (const Node& inner : subgraph->nodes())
        forEachNode(inner, visit);
}

/// An extent of an input whose name others share.
struct Place {
  Value* input = nullptr;
  unsigned axis = 0;
  /// Name in the file; empty for an extent that is computed from others.
  std::string name;
  /// Unique name.
  std::string own;
};

class Separation {
public:
  explicit Separation(Graph& inspected) : graph(inspected) {}

  std::vector<std::string> run() {
    const llvm::StringSet<> shared = sharedNames();
    if (shared.empty())
      return {};
    const llvm::StringSet<> wrong = contradicted(shared);
    if (wrong.empty())
      return {};
    saveTypes();
    findPlaces(wrong);
    forgetDeclared(wrong);
    for (unsigned round = 0; round < mostRounds; ++round) {
      nameInputs();
      if (!infer())
        return giveUp();
      if (!uniteByEquations() && !solveSums())
        break;
    }
    findConflicts();
    uniteByNames();
    std::vector<std::string> sentences = keepNames();
    sums.clear(); // assumptions of the pass that reads the model
    nameInputs();
    if (sentences.empty() || !infer())
      return giveUp();
    renameAll();
    return sentences;
  }

private:
  static constexpr unsigned mostRounds = 8;

  /// Names that occur more than once, in a model that may have caches.
  llvm::StringSet<> sharedNames() const {
    llvm::StringMap<unsigned> counts;
    bool hasRows = false;
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (!isPlainInput(*input))
        continue;
      hasRows |= mayHoldRows(*input);
      for (const Dim& extent : input->type().shape())
        for (const std::string& symbol : extent.symbols())
          ++counts[symbol];
    }
    llvm::StringSet<> names;
    for (const auto& entry : counts)
      if (hasRows && entry.second > 1)
        names.insert(entry.first());
    return names;
  }

  /// Names that the nodes of the first attention contradict. Other layers repeat it.
  llvm::StringSet<> contradicted(const llvm::StringSet<>& shared) const {
    llvm::StringSet<> wrong;
    const auto blame = [&](const Dim& extent) {
      for (const std::string& symbol : extent.symbols())
        if (shared.contains(symbol))
          wrong.insert(symbol);
    };
    bool appends = false;
    bool attends = false;
    for (Node& node : graph.nodes()) {
      if (llvm::Error error = inferNode(node)) {
        llvm::consumeError(std::move(error)); // the pass that needs the types reports it
        return appends ? shared : wrong;
      }
      forEachNode(node, [&](const Node& visited) {
        std::vector<ExtentEquation> own;
        addExtentEquations(visited, own);
        for (const ExtentEquation& equation : own)
          if (forcesZero(equation.left - equation.right)) {
            blame(equation.left);
            blame(equation.right);
          }
        forEachAppend(visited, [&](const std::string& past, const Dim& appended) {
          appends = true;
          if (llvm::is_contained(appended.symbols(), past))
            blame(Dim::symbol(past));
        });
        attends |= isAttention(visited);
      });
      if (appends && attends)
        break;
    }
    return wrong;
  }

  void saveTypes() {
    forEachGraph(graph, [&](Graph& visited) {
      for (const std::unique_ptr<Value>& input : visited.inputs())
        saved.emplace_back(input.get(), input->type());
      for (Node& node : visited.nodes())
        for (Value& result : node.results())
          saved.emplace_back(&result, result.type());
    });
  }

  std::vector<std::string> giveUp() {
    for (auto& [value, type] : saved)
      value->setType(type);
    return {};
  }

  void findPlaces(const llvm::StringSet<>& wrong) {
    taken = inputSymbols(graph);
    for (const std::unique_ptr<Value>& input : graph.inputs())
      for (unsigned axis = 0; isPlainInput(*input) && axis < input->type().rank(); ++axis) {
        const Dim& extent = input->type().shape()[axis];
        if (llvm::any_of(extent.symbols(),
                         [&](const std::string& name) { return wrong.contains(name); }))
          places.push_back(
              {input.get(), axis, bareSymbol(extent), extentName(*input, axis, taken)});
      }
    for (size_t i = 0; i < places.size(); ++i) {
      indices[places[i].own] = i;
      classes.push_back(i);
    }
  }

  /// Clears the declared extents of other values with such a name.
  void forgetDeclared(const llvm::StringSet<>& wrong) {
    const auto unknown = [&](llvm::StringRef name) {
      return wrong.contains(name) ? std::optional(Dim::unknown()) : std::nullopt;
    };
    for (auto& [value, type] : saved)
      if (!isPlainInput(*value))
        replaceExtents(*value, unknown);
  }

  static void replaceExtents(Value& value,
                             llvm::function_ref<std::optional<Dim>(llvm::StringRef)> lookup) {
    if (!value.type().hasRank())
      return;
    Shape shape;
    for (const Dim& extent : value.type().shape())
      shape.push_back(extent.substitute(lookup));
    value.setType(TensorType(value.type().elementType(), std::move(shape)));
  }

  /// The first place of the class.
  size_t find(size_t place) const {
    while (classes[place] != place)
      place = classes[place];
    return place;
  }
  void unite(size_t a, size_t b) {
    a = find(a);
    b = find(b);
    classes[std::max(a, b)] = std::min(a, b);
  }

  std::optional<Dim> classSymbol(llvm::StringRef name) const {
    const auto found = indices.find(name);
    return found == indices.end() ? std::nullopt
                                  : std::optional(Dim::symbol(places[find(found->second)].own));
  }

  /// Extent of a class while others are being determined: it may be the sum of others.
  Dim valueOf(size_t root) const {
    constexpr unsigned mostSteps = 4;
    Dim value = Dim::symbol(places[root].own);
    for (unsigned step = 0; step < mostSteps; ++step)
      value = value.substitute([&](llvm::StringRef name) -> std::optional<Dim> {
        const auto found = indices.find(name);
        if (found == indices.end())
          return std::nullopt;
        const size_t place = find(found->second);
        const auto sum = sums.find(place);
        return sum == sums.end() ? Dim::symbol(places[place].own) : sum->second;
      });
    return value;
  }

  void nameInputs() {
    for (size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      Shape shape(place.input->type().shape().begin(), place.input->type().shape().end());
      shape[place.axis] = valueOf(find(i));
      place.input->setType(TensorType(place.input->type().elementType(), std::move(shape)));
    }
  }

  bool infer() {
    llvm::Error error = inferShapes(graph);
    const bool succeeded = !error;
    llvm::consumeError(std::move(error));
    for (const Node& node : graph.nodes())
      forEachNode(node, [&](const Node& visited) { addExtentEquations(visited, equations); });
    return succeeded;
  }

  /// Unites places that operators require to be equal, and places of one name that an operator
  /// broadcasts to each other.
  bool uniteByEquations() {
    bool any = false;
    for (const ExtentEquation& equation : equations) {
      const auto solved =
          solvedExtent(equation, [](llvm::StringRef, llvm::StringRef) { return false; });
      const auto left = solved ? indices.find(solved->symbol) : indices.end();
      const auto right = solved ? indices.find(bareSymbol(solved->value)) : indices.end();
      if (left == indices.end() || right == indices.end())
        continue;
      const size_t a = find(left->second);
      const size_t b = find(right->second);
      if (a == b || (!equation.isStrict && places[a].name != places[b].name))
        continue;
      unite(a, b);
      any = true;
    }
    return any;
  }

  /// Solves extents that are sums of others, such as those of masks, which determines their
  /// readers.
  bool solveSums() {
    bool any = false;
    for (const ExtentEquation& equation : equations) {
      const auto solved =
          solvedExtent(equation, [](llvm::StringRef, llvm::StringRef) { return false; });
      const auto found = solved ? indices.find(solved->symbol) : indices.end();
      if (found == indices.end() || !bareSymbol(solved->value).empty() || solved->value.value())
        continue;
      const size_t root = find(found->second);
      any |= sums.try_emplace(root, solved->value).second;
    }
    return any;
  }

  void findConflicts() {
    for (const Node& node : graph.nodes())
      forEachNode(node, [&](const Node& visited) {
        forEachAppend(visited, [&](const std::string& past, const Dim& appended) {
          const auto rows = indices.find(past);
          for (const std::string& symbol : appended.symbols())
            if (const auto more = indices.find(symbol);
                rows != indices.end() && more != indices.end())
              conflicts.insert({rows->second, more->second});
        });
      });
    for (size_t i = 0; i < equations.size(); ++i)
      for (const Dim* side : {&equations[i].left, &equations[i].right})
        for (const std::string& symbol : side->symbols())
          if (const auto place = indices.find(symbol); place != indices.end())
            equationsOf[find(place->second)].insert(i);
  }

  /// Unites places of one name unless something contradicts it.
  void uniteByNames() {
    for (size_t i = 0; i < places.size(); ++i) {
      if (find(i) != i || places[i].name.empty())
        continue;
      // Inputs of the same kind are united first.
      for (bool isSameKind : {true, false})
        if (const auto earlier = find(i) == i ? earlierClass(i, isSameKind) : std::nullopt) {
          const std::set<size_t> moved = std::move(equationsOf[i]);
          unite(*earlier, i);
          equationsOf[*earlier].insert(moved.begin(), moved.end());
        }
    }
  }

  std::optional<size_t> earlierClass(size_t place, bool isSameKind) {
    const TensorType& type = places[place].input->type();
    for (size_t earlier = 0; earlier < place; ++earlier) {
      const TensorType& other = places[earlier].input->type();
      const bool isAlike = other.elementType() == type.elementType() &&
                           other.rank() == type.rank() &&
                           places[earlier].axis == places[place].axis;
      if (find(earlier) == earlier && places[earlier].name == places[place].name &&
          isAlike == isSameKind && mayBeEqual(earlier, place))
        return earlier;
    }
    return std::nullopt;
  }

  bool mayBeEqual(size_t a, size_t b) {
    if (llvm::any_of(conflicts, [&](const auto& conflict) {
          const std::pair found(find(conflict.first), find(conflict.second));
          return found == std::pair(a, b) || found == std::pair(b, a);
        }))
      return false;
    return llvm::none_of(equationsOf[b], [&](size_t index) {
      const auto now = [&](llvm::StringRef name) { return classSymbol(name); };
      const Dim difference = (equations[index].left - equations[index].right).substitute(now);
      const Dim united = difference.substitute([&](llvm::StringRef name) {
        return name == places[b].own ? std::optional(Dim::symbol(places[a].own)) : std::nullopt;
      });
      return !forcesZero(difference) && forcesZero(united);
    });
  }

  /// The first class of a name keeps it. Returns a sentence for each name with several classes.
  std::vector<std::string> keepNames() {
    llvm::MapVector<std::string, std::vector<size_t>, std::map<std::string, unsigned>> byName;
    for (size_t i = 0; i < places.size(); ++i)
      if (find(i) == i && !places[i].name.empty())
        byName[places[i].name].push_back(i);
    std::vector<std::string> sentences;
    for (auto& [name, roots] : byName) {
      final[places[roots.front()].own] = name;
      if (roots.size() > 1)
        sentences.push_back(sentence(name, roots));
    }
    return sentences;
  }

  std::string sentence(llvm::StringRef name, llvm::ArrayRef<size_t> roots) const {
    std::string text;
    for (size_t root : roots) {
      const Place& place = places[root];
      text += formatted("{}axis {} of '{}' is {}", text.empty() ? "" : ", ", place.axis,
                        place.input->name(), root == roots.front() ? name.str() : place.own);
    }
    return formatted("extents named '{}' are not all equal: {}", name, text);
  }

  void renameAll() {
    const auto last = [&](llvm::StringRef own) -> std::optional<Dim> {
      const auto found = indices.find(own);
      if (found == indices.end())
        return std::nullopt;
      const std::string& root = places[find(found->second)].own;
      const auto kept = final.find(root);
      return Dim::symbol(kept == final.end() ? root : kept->second);
    };
    for (auto& [value, type] : saved)
      replaceExtents(*value, last);
  }

  Graph& graph;
  std::vector<std::pair<Value*, TensorType>> saved;
  llvm::StringSet<> taken;
  std::vector<Place> places;
  llvm::StringMap<size_t> indices; ///< index of each place, by its unique name
  std::vector<size_t> classes;     ///< for each place: another place of the same extent, or itself
  std::vector<ExtentEquation> equations;
  std::map<size_t, Dim> sums;                     ///< by class
  std::map<size_t, std::set<size_t>> equationsOf; ///< by class
  std::set<std::pair<size_t, size_t>> conflicts;
  llvm::StringMap<std::string> final; ///< names that replace the unique names of classes
};

} // namespace

llvm::StringSet<> inputSymbols(const Graph& graph) {
  llvm::StringSet<> symbols;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    for (const Dim& extent :
         input->type().hasRank() ? input->type().shape() : llvm::ArrayRef<Dim>())
      for (const std::string& symbol : extent.symbols())
        symbols.insert(symbol);
  return symbols;
}

std::string extentName(const Value& input, unsigned axis, llvm::StringSet<>& taken) {
  std::string name = formatted("{}_dim_{}", input.name().str(), axis);
  while (!taken.insert(name).second)
    name += '_';
  return name;
}

std::vector<std::string> separateUnequalExtents(Model& model) {
  std::vector<std::string> sentences = Separation(model.graph()).run();
  if (!sentences.empty())
    model.markRedescribed();
  return sentences;
}

} // namespace kvopt::extents
