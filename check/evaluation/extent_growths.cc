// The definition of an operator gives the extents of results as formulas, of which growths are
// read.
#include "check/evaluation/extent_growths.h"

#include "meaning/definitions.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

using meaning::Expr;
using meaning::Op;
using meaning::Scalar;

/// Integers of more elements are not looked at.
constexpr int64_t longestList = 64;

bool isList(const Tensor& tensor) {
  return tensor.isInteger() && tensor.rank() <= 1 && tensor.count() <= longestList;
}

/// One node's definition for operands whose numbers are known where they are fixed; each growth is
/// a symbol.
class ExtentFormulas {
public:
  explicit ExtentFormulas(Call& evaluated)
      : call(evaluated), defined(formulas, call.node, call.version(), operandsOf(),
                                 [](const meaning::Tensor& value, bool) { return value; }) {}

  bool read() {
    const meaning::Define define = meaning::definitionOf(call.node);
    if (!define)
      return false;
    define(defined);
    uniteEqual();
    return !defined.isRefused() && defined.unreadAttribute().empty();
  }

  ExtentIds extentsOf(unsigned index) {
    ExtentIds ids;
    if (const meaning::Tensor& result = defined.results()[index])
      for (Scalar extent : result.extents())
        ids.push_back(numberOf(extent.expr()).id);
    return formulas.arena().isFull() ? ExtentIds() : ids;
  }

  /// The growths of extents over which elements are reduced.
  ExtentIds reducedOver(unsigned index) {
    ExtentIds ids;
    const meaning::Tensor& result = defined.results()[index];
    if (!result)
      return ids;
    meaning::Scalars place;
    for (Scalar extent : result.extents())
      place.emplace_back(formulas, formulas.index("i", extent.expr()));
    const meaning::Arena& arena = formulas.arena();
    arena.forEachPart(result.at(place).expr(), [&](Expr part) {
      if (arena[part].op == Op::Reduce)
        arena.forEachPart(arena.operands(part)[0], [&](Expr inner) {
          if (const auto found = growthOf.find(inner.id()); found != growthOf.end())
            ids.push_back(found->second);
        });
    });
    if (arena.isFull())
      for (const auto& [id, symbol] : symbols)
        ids.push_back(id);
    return ids;
  }

private:
  Growths& growths() { return call.math.growths; }

  /// Where the operator needs two extents to be equal, the one that is traced counts.
  void uniteEqual() {
    const meaning::Arena& arena = formulas.arena();
    for (const meaning::Requirement& each : defined.requirements()) {
      const Expr condition = each.extents.empty() ? each.condition({}).expr() : Expr();
      if (!condition || arena[condition].op != Op::Zero)
        continue;
      const Expr difference = arena.operands(condition)[0];
      const llvm::ArrayRef<Expr> parts = arena.operands(difference);
      if (arena[difference].op != Op::Polynomial || parts.size() != 2 ||
          !growthOf.count(parts[0].id()) || !growthOf.count(parts[1].id()) ||
          arena.coefficients(difference) != llvm::ArrayRef<int64_t>{-1, 1})
        continue;
      for (unsigned i : {0U, 1U})
        if (GrowthId& own = growthOf[parts[i].id()]; !growths().at(own).isTraced())
          own = growthOf[parts[1 - i].id()];
    }
  }

  Scalar scalarOf(Growths::Number number) {
    if (number.id == fixedGrowth)
      return {formulas, formulas.integer(static_cast<int64_t>(number.value))};
    Expr& symbol = symbols[number.id];
    if (!symbol) {
      const Growth& growth = growths().at(number.id);
      const bool isBounded = growth.isTraced() && growth.low >= 0;
      symbol = formulas.symbol(
          "n", {isBounded ? static_cast<int64_t>(growth.low) : meaning::Range::noLow,
                meaning::mostExtent});
      growthOf[symbol.id()] = number.id;
    }
    return {formulas, symbol};
  }

  std::vector<meaning::Tensor> operandsOf() {
    std::vector<meaning::Tensor> all;
    for (const Ref& operand : call.operands)
      all.push_back(operand ? tensorOf(*operand) : meaning::Tensor());
    return all;
  }

  meaning::Tensor tensorOf(const Tensor& operand) {
    meaning::Scalars extents;
    for (size_t axis = 0; axis < operand.shape.size(); ++axis)
      extents.push_back(scalarOf(operand.extent(axis)));
    const int64_t name = formulas.named({});
    const meaning::Sort sort = operand.isBool()      ? meaning::Sort::Boolean
                               : operand.isInteger() ? meaning::Sort::Integer
                                                     : meaning::Sort::Real;
    return {std::move(extents), operand.type, [this, &operand, name, sort](meaning::Index index) {
              const int64_t place = index.empty() ? 0 : index[0].number().value_or(-1);
              if (isList(operand) && place >= 0 && place < operand.count()) {
                const auto at = static_cast<size_t>(place);
                return operand.isBool() ? Scalar(formulas, formulas.boolean(operand.integers[at]))
                                        : scalarOf(operand.number(at));
              }
              llvm::SmallVector<Expr, 6> places;
              for (Scalar each : index)
                places.push_back(each.expr());
              return Scalar(formulas, formulas.element(name, sort, places));
            }};
  }

  Growths::Number product(Growths::Number a, Growths::Number b) {
    return {growths().product(a, b), a.value * b.value};
  }

  /// Numbers of which a formula is the product.
  std::vector<Growths::Number> factorsOf(Expr expr) {
    const meaning::Arena& arena = formulas.arena();
    const bool isTerm = arena[expr].op == Op::Product ||
                        (arena[expr].op == Op::Polynomial && arena.operands(expr).size() == 1);
    if (!isTerm)
      return {numberOf(expr)};
    std::vector<Growths::Number> all;
    for (Expr part : arena.operands(expr))
      for (Growths::Number factor : factorsOf(part))
        all.push_back(factor);
    return all;
  }

  Growths::Number numberOf(Expr expr) {
    if (const auto number = formulas.integerOf(expr))
      return {fixedGrowth, static_cast<double>(*number)};
    if (const auto found = growthOf.find(expr.id()); found != growthOf.end())
      return {found->second, 0};
    const meaning::Arena& arena = formulas.arena();
    const llvm::ArrayRef<Expr> parts = arena.operands(expr);
    Growths::Number all{fixedGrowth, 1};
    switch (arena[expr].op) {
    case Op::Product:
      for (Expr part : parts)
        all = product(all, numberOf(part));
      return all;
    case Op::Polynomial:
      all.value = 0;
      for (auto [part, coefficient] : llvm::zip(parts, arena.coefficients(expr))) {
        const auto term = product({fixedGrowth, static_cast<double>(coefficient)}, numberOf(part));
        all = {growths().sum(all, term), all.value + term.value};
      }
      return all;
    case Op::Quotient: { // what a reshape leaves
      const GrowthId id =
          formulas.integerOf(parts[1])
              ? growths().quotient(numberOf(parts[0]), numberOf(parts[1]), /*isTruncated=*/true)
              : growths().rest(factorsOf(parts[0]), factorsOf(parts[1]));
      if (growths().at(id).period == 0)
        return {growths().of(id, {}, [&] { return call.node.describe(); })};
      break;
    }
    case Op::Select: // extents that broadcast are equal where neither is 1
      if (parts[0] == formulas.equal(parts[2], formulas.integer(1)))
        return numberOf(parts[2]);
      break;
    default:
      break;
    }
    return {growths().untraced(call.node.describe() + " has an extent that is not traced")};
  }

  Call& call;
  static constexpr size_t mostNodes = size_t(1) << 14;
  meaning::Formulas formulas{meaning::Formulas::Reals::Exact, mostNodes};
  std::map<GrowthId, Expr> symbols;
  llvm::DenseMap<uint32_t, GrowthId> growthOf; ///< by the symbols
  meaning::Call defined;
};

/// Everything that the extents depend on.
Key keyOf(const Call& call, unsigned index) {
  Key key{reinterpret_cast<uintptr_t>(&call.node), index};
  auto add = [&](Growths::Number number) {
    key.push_back(number.id);
    key.push_back(number.id == fixedGrowth ? static_cast<uint64_t>(int64_t(number.value)) : 0);
  };
  for (const Ref& operand : call.operands) {
    key.push_back(operand ? operand->shape.size() : ~uint64_t(0));
    for (size_t axis = 0; operand && axis < operand->shape.size(); ++axis)
      add(operand->extent(axis));
    if (operand && isList(*operand))
      for (size_t i = 0; i < operand->integers.size(); ++i)
        add(operand->number(i));
  }
  return key;
}

ExtentIds computed(Call& call, unsigned index, const Tensor& result, ExtentIds& reduced) {
  ExtentFormulas read(call);
  ExtentIds ids;
  if (read.read()) {
    ids = read.extentsOf(index);
    if (llvm::any_of(call.operands, [&](const Ref& operand) {
          return operand && llvm::any_of(operand->extentGrowths, [&](GrowthId id) {
                   return !call.math.growths.at(id).isTraced();
                 });
        }))
      reduced = read.reducedOver(index);
  } else if (index == 0 && !call.node.op().isOnnx() && result.rank() == call.in(0)->rank()) {
    ids = ExtentIds(call.in(0)->extentGrowths); // attention of a form that is not defined
  }
  const GrowthId untraced =
      call.math.growths.untraced(call.node.describe() + " has an extent that is not traced");
  return ids.size() == result.shape.size() ? ids : ExtentIds(result.shape.size(), untraced);
}

/// Notes where behavior changes with an extent although the result's extents do not.
void noteExtents(Call& call) {
  const ir::Node& node = call.node;
  // 0 copies an extent, and -1 takes what is left.
  for (int64_t i = 0; node.is("Reshape") && call.in(1) && i < call.in(1)->count(); ++i)
    for (double special : {0.0, -1.0})
      call.noteThreshold(call.in(1)->number(static_cast<size_t>(i)), {fixedGrowth, special},
                         /*isExact=*/false);
  // Axes that go have an extent of 1, and negative indices count from the end.
  const bool isFromEnd = node.op().type().startswith("Gather") && call.in(1) &&
                         llvm::any_of(call.in(1)->integers, [](int64_t i) { return i < 0; });
  if (node.is("Squeeze") || isFromEnd)
    for (GrowthId id : call.in(0)->extentGrowths)
      call.noteUntraced(id);
}

} // namespace

ExtentIds extentGrowths(Call& call, unsigned index, const Tensor& result) {
  const bool grows = llvm::any_of(call.operands, [](const Ref& operand) {
    return operand && (!operand->growths.empty() || !operand->extentGrowths.empty());
  });
  if (!grows || index >= call.node.results().size())
    return {};
  if (call.node.is("Slice") || call.node.is("Range")) // their rules know the ends
    return result.extentGrowths;
  noteExtents(call);
  auto [at, isNew] = call.math.extents.try_emplace(keyOf(call, index));
  auto& [ids, reduced] = at->second;
  if (isNew)
    ids = computed(call, index, result, reduced);
  for (GrowthId id : reduced)
    call.noteUntraced(id);
  return ids;
}

} // namespace kvopt::check
