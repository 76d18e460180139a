// A definition says extents as formulas of the operands' extents. Nothing else about shapes is
// written for an operator.
#include "meaning/extents/node_types.h"

#include "ir/graph.h"
#include "ir/shapes/shape_rules.h"
#include "meaning/definitions.h"
#include "meaning/extents/dims.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::meaning {

namespace {

using ir::ElementType;

constexpr int64_t mostIntegers = 64; ///< of a list whose elements are tracked
constexpr unsigned mostRank = 6;     ///< that an operand without a known rank is tried with
constexpr unsigned mostProducers = 2; ///< whose definitions give a table that is read
constexpr size_t mostNodes = size_t(1) << 15;

/// The results of one node, for operands of known ranks.
class NodeTypes {
public:
  NodeTypes(ir::ShapeContext& context, Dims& dims) : context_(context), dims_(dims) {}

  llvm::Error infer(Define define) {
    llvm::SmallVector<unsigned, 2> unranked;
    const auto count = static_cast<unsigned>(context_.node().operands().size());
    for (unsigned operand = 0; operand < count; ++operand)
      if (context_.has(operand) && !context_.type(operand).hasRank())
        unranked.push_back(operand);
    if (!unranked.empty()) {
      inferForAllRanks(define, unranked);
      return llvm::Error::success();
    }
    Call call = called(define, std::nullopt);
    if (call.isRejected())
      return context_.error(call.reason());
    const bool isUnknown = !call.isRefused() && !call.unreadAttribute().empty();
    if (isUnknown || dims_.formulas().arena().isFull())
      return llvm::Error::success();
    for (const Requirement& requirement : call.requirements())
      if (requirement.extents.empty() &&
          dims_.formulas().booleanOf(requirement.condition({}).expr()) == false)
        return context_.error(requirement.otherwise);
    for (unsigned k = 0; k < call.resultCount(); ++k)
      if (call.wants(k) && call.results()[k])
        set(k, call.results()[k], call);
      else if (call.wants(k) && call.typeOf(k) != ElementType::Undefined)
        context_.setResult(k, ir::TensorType(call.typeOf(k)));
    return llvm::Error::success();
  }

private:
  /// The types that all ranks of an operand have in common.
  void inferForAllRanks(Define define, llvm::ArrayRef<unsigned> unranked) {
    llvm::SmallVector<std::optional<ir::TensorType>, 4> common(context_.resultCount());
    for (unsigned rank = 0; rank <= mostRank; ++rank) {
      Call call = called(define, rank);
      if (call.isRefused())
        continue;
      for (unsigned k = 0; k < call.resultCount(); ++k) {
        const Tensor& result = call.results()[k];
        if (!call.wants(k) || !result)
          continue;
        const ir::TensorType type(result.type(), shapeOf(k, result, call));
        common[k] = common[k] ? sharedBy(*common[k], type) : type;
      }
    }
    for (unsigned k = 0; k < common.size(); ++k) {
      if (!common[k])
        continue;
      // Other ranks of the other operands were not tried.
      const bool isAll = unranked.size() == 1;
      context_.setResult(k, isAll ? *common[k] : ir::TensorType(common[k]->elementType()));
    }
  }

  static ir::TensorType sharedBy(const ir::TensorType& a, const ir::TensorType& b) {
    if (!a.hasRank() || !b.hasRank() || a.rank() != b.rank())
      return ir::TensorType(a.elementType());
    ir::Shape shape;
    for (unsigned axis = 0; axis < a.rank(); ++axis)
      shape.push_back(a.shape()[axis] == b.shape()[axis] ? a.shape()[axis] : ir::Dim::unknown());
    return {a.elementType(), std::move(shape)};
  }

  Call called(Define define, std::optional<unsigned> rank) {
    return callOf(context_, define, rank, mostProducers);
  }

  /// Operands without a known rank have `rank` axes.
  Call callOf(ir::ShapeContext& context, Define define, std::optional<unsigned> rank,
              unsigned producers) {
    std::vector<Tensor> operands;
    const auto count = static_cast<unsigned>(context.node().operands().size());
    for (unsigned operand = 0; operand < count; ++operand)
      operands.push_back(context.has(operand) ? tensorOf(context, operand, rank, producers)
                                              : Tensor());
    Call call(dims_.formulas(), context.node(), context.opset(), std::move(operands),
              [](const Tensor& value, bool) { return value; });
    define(call);
    return call;
  }

  Tensor tensorOf(ir::ShapeContext& context, unsigned operand, std::optional<unsigned> otherwise,
                  unsigned producers) {
    const ir::TensorType& type = context.type(operand);
    Scalars extents;
    if (type.hasRank())
      for (const ir::Dim& dim : type.shape())
        extents.push_back(dims_.extent(dim));
    else
      for (unsigned axis = 0; axis < otherwise.value_or(0); ++axis)
        extents.push_back(dims_.extent(ir::Dim::unknown()));
    Formulas& formulas = dims_.formulas();
    const Sort sort = sortOf(type.elementType());
    if (auto known = sort == Sort::Real || !type.hasRank() ? std::nullopt
                                                           : context.integers(operand)) {
      return Tensor(extents, type.elementType(),
                    [this, sort, known = std::move(*known)](Index index) {
                      const std::optional<int64_t> place = index.empty() ? 0 : index[0].number();
                      const bool isThere = place && *place >= 0 &&
                                           *place < static_cast<int64_t>(known.size());
                      return element(isThere ? known[static_cast<size_t>(*place)] : ir::Dim(), sort);
                    });
    }
    const ir::Value& value = *context.node().operand(operand);
    if (const ir::TensorData* constant = value.constant();
        constant && constant->elementCount() <= mostIntegers)
      return constantTensor(formulas, *constant);
    if (!context.isSupplied() && sort != Sort::Real && type.hasRank() && type.rank() > 1 &&
        producers > 0)
      if (std::optional<Tensor> made = madeBy(value, producers - 1))
        return *made;
    return unknownTensor(formulas, extents, type.elementType());
  }

  /// A small table of integers, from the definition of the node that makes it.
  std::optional<Tensor> madeBy(const ir::Value& value, unsigned producers) {
    const std::optional<int64_t> count = value.type().elementCount().value();
    ir::Node* node = value.producer();
    if (!node || !node->subgraphs().empty() || !count || *count > mostIntegers)
      return std::nullopt;
    ir::ShapeContext context(*node);
    const Define define = allDefinitions().find(node->op(), context.opset());
    if (!define)
      return std::nullopt;
    Call call = callOf(context, define, std::nullopt, producers);
    if (call.isRefused() || !call.unreadAttribute().empty() || !call.results()[value.resultIndex()])
      return std::nullopt;
    return call.results()[value.resultIndex()];
  }

  Scalar element(const ir::Dim& dim, Sort sort) {
    const Scalar number = dims_.element(dim);
    if (sort == Sort::Integer)
      return number;
    Formulas& formulas = dims_.formulas();
    return dim.value() ? Scalar(formulas, formulas.boolean(*dim.value() != 0))
                       : Scalar(formulas, formulas.unknown(Sort::Boolean));
  }

  ir::Shape shapeOf(unsigned k, const Tensor& result, const Call& call) {
    ir::Shape shape;
    for (unsigned axis = 0; axis < result.rank(); ++axis) {
      const ir::Dim dim = dims_.dimOf(result.extent(axis));
      if (dim.isKnownNonNegative())
        shape.push_back(dim);
      else if (call.namesExtents() && dim.isUnknown() && dims_.readsElements(result.extent(axis)))
        shape.push_back(ir::ownExtent(context_.node().result(k), axis));
      else
        shape.push_back(ir::Dim::unknown());
    }
    return shape;
  }

  void set(unsigned k, const Tensor& result, const Call& call) {
    ir::Shape shape = shapeOf(k, result, call);
    const bool isList = result.rank() <= 1 && sortOf(result.type()) != Sort::Real;
    const std::optional<int64_t> count = shape.empty() ? 1 : shape[0].value();
    context_.setResult(k, ir::TensorType(result.type(), std::move(shape)));
    if (call.isRefused() || !isList || !count || *count < 0 || *count > mostIntegers)
      return;
    llvm::SmallVector<ir::Dim, 4> integers;
    const Scalar zero(dims_.formulas(), dims_.formulas().integer(0));
    for (int64_t place = 0; place < *count; ++place) {
      Scalars index;
      if (result.rank() == 1)
        index.push_back(zero.integer(place));
      integers.push_back(dims_.dimOf(result.at(index)));
    }
    context_.setIntegers(k, std::move(integers));
  }

  ir::ShapeContext& context_;
  Dims& dims_;
};

} // namespace

llvm::Error inferTypes(ir::ShapeContext& context) {
  const Define define = allDefinitions().find(context.node().op(), context.opset());
  if (!define)
    return llvm::Error::success();
  // Symbols recur from node to node.
  thread_local std::unique_ptr<Dims> dims;
  if (!dims || dims->formulas().arena().size() > mostNodes)
    dims = std::make_unique<Dims>();
  return NodeTypes(context, *dims).infer(define);
}

} // namespace kvopt::meaning

namespace kvopt::ir {

void registerAll(OpRegistry& registry) {
  registerOperators(registry);
  registry.setShapes(meaning::inferTypes);
}

} // namespace kvopt::ir
