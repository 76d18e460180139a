// A definition says extents as formulas of the operands' extents. Nothing else about shapes is
// written for an operator.
#include "meaning/extents/node_types.h"

#include "ir/graph.h"
#include "ir/shapes/shape_rules.h"
#include "meaning/definitions.h"
#include "meaning/extents/dims.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

void registerAll(OpRegistry& registry) {
  registerOperators(registry);
  registry.setShapes(meaning::inferTypes);
}

} // namespace kvopt::ir

namespace kvopt::meaning {

namespace {

using ir::ElementType;

constexpr int64_t mostIntegers = 64;  ///< of a list whose elements are tracked
constexpr unsigned mostTriedRank = 6; ///< that an operand without a known rank is tried with
constexpr unsigned mostProducers = 2; ///< whose definitions give a table that is read
constexpr size_t mostFormulas = size_t(1) << 15;

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
    const Call call = called(define);
    if (call.isRejected())
      return context_.error(call.reason());
    const bool isUnknown = !call.isRefused() && !call.unreadAttribute().empty();
    if (isUnknown || dims_.formulas().arena().isFull())
      return llvm::Error::success();
    for (unsigned k = 0; k < call.resultCount(); ++k)
      if (call.wants(k) && call.results()[k])
        set(k, call.results()[k], call);
      else if (call.wants(k) && call.typeOf(k) != ElementType::Undefined)
        context_.setResult(k, ir::TensorType(call.typeOf(k)));
    return llvm::Error::success();
  }

private:
  /// The types that all ranks of the operands have in common. More than two operands without a rank
  /// have the same one, which gives element types alone.
  void inferForAllRanks(Define define, llvm::ArrayRef<unsigned> unranked) {
    std::vector<std::optional<ir::TensorType>> common(context_.resultCount());
    std::vector<bool> isLargest(context_.resultCount(),
                                true); // whether no smaller rank is possible
    const bool isAll = unranked.size() <= 2;
    for (unsigned first = 0; first <= mostTriedRank; ++first)
      for (unsigned second = 0; second <= mostTriedRank; ++second) {
        if (unranked.size() != 2 && first != second)
          continue;
        ranks_.clear();
        for (unsigned operand : unranked)
          ranks_[operand] = operand == unranked[0] ? first : second;
        const Call call = called(define);
        if (call.isRejected() || (!call.isRefused() && !call.unreadAttribute().empty()))
          continue;
        for (unsigned k = 0; k < call.resultCount(); ++k) {
          const Tensor& result = call.results()[k];
          if (!call.wants(k) || (!result && call.typeOf(k) == ElementType::Undefined))
            continue;
          const ir::TensorType type = result && isAll
                                          ? ir::TensorType(result.type(), shapeOf(k, result, call))
                                          : ir::TensorType(call.typeOf(k));
          common[k] = common[k] ? sharedBy(*common[k], type) : type;
          isLargest[k] = isLargest[k] && std::max(first, second) == mostTriedRank;
        }
      }
    for (unsigned k = 0; k < common.size(); ++k)
      if (common[k]) // larger ranks may be possible, too
        context_.setResult(k, isLargest[k] ? ir::TensorType(common[k]->elementType()) : *common[k]);
  }

  static ir::TensorType sharedBy(const ir::TensorType& a, const ir::TensorType& b) {
    if (!a.hasRank() || !b.hasRank() || a.rank() != b.rank())
      return ir::TensorType(a.elementType());
    ir::Shape shape;
    for (unsigned axis = 0; axis < a.rank(); ++axis)
      shape.push_back(a.shape()[axis] == b.shape()[axis] ? a.shape()[axis] : ir::Dim::unknown());
    return {a.elementType(), std::move(shape)};
  }

  Call called(Define define) { return callOf(context_, define, mostProducers); }

  Call callOf(ir::ShapeContext& context, Define define, unsigned producers) {
    std::vector<Tensor> operands;
    const auto count = static_cast<unsigned>(context.node().operands().size());
    for (unsigned operand = 0; operand < count; ++operand)
      operands.push_back(context.has(operand) ? tensorOf(context, operand, producers) : Tensor());
    Call call(dims_.formulas(), context.node(), context.opset(), std::move(operands),
              [](const Tensor& value, bool) { return value; });
    define(call);
    return call;
  }

  Tensor tensorOf(ir::ShapeContext& context, unsigned operand, unsigned producers) {
    const ir::TensorType& type = context.type(operand);
    Scalars extents;
    if (type.hasRank())
      for (const ir::Dim& dim : type.shape())
        extents.push_back(dims_.extent(dim));
    const unsigned rank = &context == &context_ ? ranks_.lookup(operand) : 0;
    if (!type.hasRank())
      for (unsigned axis = 0; axis < rank; ++axis)
        extents.push_back(dims_.extent(ir::Dim::unknown()));
    Formulas& formulas = dims_.formulas();
    const Sort sort = sortOf(type.elementType());
    if (auto known =
            sort == Sort::Real || !type.hasRank() ? std::nullopt : context.integers(operand)) {
      return Tensor(extents, type.elementType(),
                    [this, sort, known = std::move(*known)](Index index) {
                      return elementAt(known, index, sort);
                    });
    }
    const ir::Value& value = *context.node().operand(operand);
    if (const ir::TensorData* constant = value.constant();
        constant && constant->elementCount() <= mostIntegers)
      return constantTensor(formulas, *constant);
    if (sort != Sort::Real && type.hasRank() && type.rank() > 1 && producers > 0)
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
    for (unsigned operand = 0; operand < node->operands().size(); ++operand)
      if (context.has(operand) && !context.type(operand).hasRank())
        return std::nullopt;
    const Define define = definitions().find(node->op(), context.opset());
    if (!define)
      return std::nullopt;
    Call call = callOf(context, define, producers);
    if (call.isRefused() || !call.unreadAttribute().empty() || !call.results()[value.resultIndex()])
      return std::nullopt;
    return call.results()[value.resultIndex()];
  }

  /// At a formula, a choice among all.
  Scalar elementAt(llvm::ArrayRef<ir::Dim> known, Index index, Sort sort) {
    const std::optional<int64_t> place = index.empty() ? 0 : index[0].number();
    if (place) {
      const bool isThere = *place >= 0 && *place < static_cast<int64_t>(known.size());
      return element(isThere ? known[static_cast<size_t>(*place)] : ir::Dim(), sort);
    }
    Scalar all = element(ir::Dim(), sort);
    for (size_t k = known.size(); k-- > 0;)
      all = select(same(index[0], static_cast<double>(k)), element(known[k], sort), all);
    return all;
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
      const ir::Dim dim = dims_.extentOf(result.extent(axis));
      if (dim.isKnownNonNegative())
        shape.push_back(dim);
      else if (call.namesExtents() && !call.isRefused() && dim.isUnknown() &&
               dims_.readsElements(result.extent(axis)))
        shape.push_back(ir::ownExtent(context_.node().result(k), axis));
      else
        shape.push_back(declaredExtent(k, axis, result.rank()));
    }
    return shape;
  }

  /// Of an operator that is in no registry, the model's own word counts where nothing is known.
  ir::Dim declaredExtent(unsigned k, unsigned axis, unsigned rank) const {
    const ir::TensorType& type = context_.node().result(k).type();
    const bool isTaken = !context_.node().definition() && type.hasRank() && type.rank() == rank;
    return isTaken ? type.shape()[axis] : ir::Dim::unknown();
  }

  void set(unsigned k, const Tensor& result, const Call& call) {
    ir::Shape shape = shapeOf(k, result, call);
    const bool isList = result.rank() <= 1 && sortOf(result.type()) != Sort::Real;
    const std::optional<int64_t> count = shape.empty() ? 1 : shape[0].value();
    context_.setResult(k, ir::TensorType(result.type(), std::move(shape)));
    // Extents that were written for one step are made symbols again where lists show what they
    // were: a list with an update of one place would show too much.
    const bool isUpdated = call.node().is("ScatterElements") || call.node().is("ScatterND");
    if (call.isRefused() || isUpdated || !isList || !count || *count < 0 || *count > mostIntegers)
      return;
    llvm::SmallVector<ir::Dim, 4> integers;
    const Scalar zero(dims_.formulas(), dims_.formulas().integer(0));
    for (int64_t place = 0; place < *count; ++place) {
      Scalars index;
      if (result.rank() == 1)
        index.push_back(zero.integer(place));
      integers.push_back(dims_.elementOf(result.at(index)));
    }
    context_.setIntegers(k, std::move(integers));
  }

  ir::ShapeContext& context_;
  Dims& dims_;
  llvm::SmallDenseMap<unsigned, unsigned, 2> ranks_; ///< of operands whose rank is not known
};

} // namespace

llvm::Error inferTypes(ir::ShapeContext& context) {
  const Define define = definitions().find(context.node().op(), context.opset());
  if (!define)
    return llvm::Error::success();
  // Symbols recur from node to node.
  thread_local std::unique_ptr<Dims> dims;
  if (!dims || dims->formulas().arena().size() > mostFormulas)
    dims = std::make_unique<Dims>();
  return NodeTypes(context, *dims).infer(define);
}

} // namespace kvopt::meaning
