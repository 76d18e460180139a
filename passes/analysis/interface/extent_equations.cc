// Collects the equations operator by operator, and solves one for a symbol.
#include "passes/analysis/interface/extent_equations.h"

#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

class Collector {
public:
  explicit Collector(std::vector<ExtentEquation>& found) : equations(found) {}

  void visit(const Node& node) {
    const llvm::StringRef type = node.op().type();
    if (isElementwise(node))
      broadcast(node);
    else if (type == "Concat")
      joined(node);
    else if (type == "MatMul" || type == "FusedMatMul")
      product(node);
    else if (type == "Expand")
      expanded(node);
    else if (type == "RotaryEmbedding")
      rotated(node, node.op().isOnnx() ? 3 : 1);
  }

private:
  static const TensorType* typeOf(const Node& node, unsigned operand) {
    const Value* value = node.operand(operand);
    return value && value->type().hasRank() ? &value->type() : nullptr;
  }

  void relate(const Dim& left, const Dim& right, bool isStrict, const Node& node) {
    if (left.isUnknown() || right.isUnknown() || left.value() || right.value() || left == right)
      return;
    // Layers repeat the equations of the first.
    constexpr size_t mostCompared = 16;
    size_t compared = std::min(equations.size(), mostCompared);
    if (llvm::none_of(
            llvm::ArrayRef(equations).take_back(compared), [&](const ExtentEquation& known) {
              return known.isStrict == isStrict && known.left == left && known.right == right;
            }))
      equations.push_back({left, right, isStrict, &node});
  }

  void joined(const Node& node) {
    const TensorType* first = typeOf(node, 0);
    if (!first)
      return;
    auto axis = normalizedAxis(node.intAttr("axis", 0), first->rank());
    for (unsigned i = 1; axis && i < node.operands().size(); ++i) {
      const TensorType* other = typeOf(node, i);
      if (!other || other->rank() != first->rank())
        continue;
      for (unsigned at = 0; at < first->rank(); ++at)
        if (at != *axis)
          relate(first->shape()[at], other->shape()[at], true, node);
    }
  }

  void product(const Node& node) {
    const TensorType* a = typeOf(node, 0);
    const TensorType* b = typeOf(node, 1);
    if (!a || !b || a->rank() < 2 || b->rank() < 2 || node.intAttr("transBatchA", 0) != 0 ||
        node.intAttr("transBatchB", 0) != 0)
      return;
    relate(a->dim(node.intAttr("transA", 0) != 0 ? -2 : -1),
           b->dim(node.intAttr("transB", 0) != 0 ? -1 : -2), true, node);
    for (int64_t fromEnd = 3; fromEnd <= std::min(a->rank(), b->rank()); ++fromEnd)
      relate(a->dim(-fromEnd), b->dim(-fromEnd), false, node);
  }

  /// One position per row.
  void rotated(const Node& node, unsigned positions) {
    const TensorType* rows = typeOf(node, 0);
    const TensorType* type = typeOf(node, positions);
    if (!rows || !type || type->rank() != 2 || (rows->rank() != 3 && rows->rank() != 4))
      return;
    relate(rows->dim(0), type->dim(0), true, node);
    relate(rows->dim(rows->rank() == 3 ? 1 : 2), type->dim(1), true, node);
  }

  void expanded(const Node& node) {
    const TensorType* type = typeOf(node, 0);
    auto wanted = node.operand(1) ? node.operand(1)->knownIntegers() : std::nullopt;
    const size_t common = type && wanted ? std::min<size_t>(type->rank(), wanted->size()) : 0;
    for (size_t fromEnd = 1; fromEnd <= common; ++fromEnd)
      relate(type->dim(-static_cast<int64_t>(fromEnd)), (*wanted)[wanted->size() - fromEnd], false,
             node);
  }

  /// Relates each pair of different extents that meet. Operands repeat few of them, whatever their
  /// number is; more than a few are not related.
  void broadcast(const Node& node) {
    constexpr size_t mostRelated = 8;
    std::vector<llvm::SmallVector<Dim, mostRelated>> known; // for each axis, counted from the end
    for (unsigned i = 0; i < node.operands().size(); ++i) {
      const TensorType* type = typeOf(node, i);
      const size_t rank = type ? type->rank() : 0;
      known.resize(std::max(known.size(), rank));
      for (size_t fromEnd = 1; fromEnd <= rank; ++fromEnd) {
        const Dim extent = type->dim(-static_cast<int64_t>(fromEnd));
        auto& others = known[fromEnd - 1];
        if (extent.value() || others.size() == mostRelated || llvm::is_contained(others, extent))
          continue;
        for (const Dim& other : others)
          relate(other, extent, false, node);
        others.push_back(extent);
      }
    }
  }

  std::vector<ExtentEquation>& equations;
};

/// `dim` without the symbol, if it is `factor` * symbol plus the result, for a factor of 1 or -1.
std::optional<Dim> withoutSymbol(const Dim& dim, llvm::StringRef symbol, int64_t factor) {
  Dim rest = dim - Dim::fixed(factor) * Dim::symbol(symbol);
  if (rest.isUnknown() || llvm::is_contained(rest.symbols(), symbol))
    return std::nullopt;
  return rest;
}

/// 4*a - 4*b as a - b.
Dim withoutFactor(const Dim& difference) {
  for (const std::string& symbol : difference.symbols()) {
    auto at = [&](int64_t value) {
      return difference.evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
        return name == symbol ? value : 0;
      });
    };
    const auto one = at(1);
    const auto zero = at(0);
    if (!one || !zero || *one - *zero < 2)
      continue;
    if (auto quotient = difference.dividedBy(Dim::fixed(*one - *zero)))
      return *quotient;
  }
  return difference;
}

} // namespace

std::vector<ExtentEquation> extentEquations(const Graph& graph) {
  std::vector<ExtentEquation> equations;
  for (const Node& node : graph.nodes())
    addExtentEquations(node, equations);
  return equations;
}

void addExtentEquations(const Node& node, std::vector<ExtentEquation>& equations) {
  Collector(equations).visit(node);
}

std::optional<SolvedExtent>
solvedExtent(const ExtentEquation& equation,
             llvm::function_ref<bool(llvm::StringRef, llvm::StringRef)> prefers) {
  const Dim difference = withoutFactor(equation.left - equation.right);
  if (difference.isUnknown())
    return std::nullopt;
  std::optional<SolvedExtent> best;
  for (const std::string& symbol : difference.symbols())
    for (int64_t factor : {1, -1}) {
      std::optional<Dim> rest = withoutSymbol(difference, symbol, factor);
      Dim value = rest ? Dim::fixed(-factor) * *rest : Dim::unknown();
      if (!value.isKnownNonNegative())
        continue;
      // Only an operator that fails otherwise determines an extent.
      if (!equation.isStrict && value.value())
        continue;
      if (!best || prefers(best->symbol, symbol))
        best = SolvedExtent{symbol, value};
    }
  return best;
}

} // namespace kvopt::analysis
