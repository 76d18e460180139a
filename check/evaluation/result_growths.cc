// Which operators keep the growths of operands, and what extents follow from.
#include "check/evaluation/result_growths.h"

#include "check/evaluation/extent_growths.h"
#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::check {
namespace {

constexpr uint32_t all = ~uint32_t(0);

/// Operands whose elements the rule of an operator moves to its results with their growths, or
/// whose growths it traces, a bit for each; nullopt if it does neither.
std::optional<uint32_t> tracedOperands(const ir::Node& node) {
  if (ir::isElementwise(node))
    return all;
  if (!node.op().isOnnx())
    return std::nullopt;
  return llvm::StringSwitch<std::optional<uint32_t>>(node.op().type())
      .Cases("Dropout", "Reshape", "Flatten", "Transpose", 1)
      .Cases("Unsqueeze", "Squeeze", "Expand", "Tile", "Slice", "Split", 1)
      .Cases("Gather", "GatherElements", "GatherND", 1)
      .Cases("ScatterND", "ScatterElements", "Pad", 0b101)
      .Case("TensorScatter", 0b11)
      .Cases("Concat", "CastLike", "CumSum", "Range", "Shape", "Size", all)
      .Cases("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", all)
      .Cases("Constant", "ConstantOfShape", all)
      .Default(std::nullopt);
}

/// Whether a node's results follow from the shapes of its operands only.
bool readsShapes(const ir::Node& node) {
  return node.op().isOnnx() && (node.is("Shape") || node.is("Size"));
}

std::shared_ptr<Tensor> owned(Ref& result) {
  auto copy = result.use_count() == 1 ? std::const_pointer_cast<Tensor>(result)
                                      : std::make_shared<Tensor>(*result);
  result = copy;
  return copy;
}

void noteAll(const Call& call, llvm::ArrayRef<GrowthId> growths) {
  GrowthId last = fixedGrowth;
  for (GrowthId id : growths) {
    if (id != last)
      call.noteUntraced(id);
    last = id;
  }
}

/// Notes quotients and remainders of sizes or indices.
void notePeriods(Call& call, const Tensor& result) {
  GrowthId last = fixedGrowth;
  for (GrowthId id : result.growths) {
    if (id == last)
      continue;
    last = id;
    const Growth& growth = call.math.growths.at(id);
    const bool isOfData =
        llvm::any_of(growth.multiples, [](const auto& entry) { return entry.first >= firstData; });
    if (growth.isTraced() && growth.period > 0 && !isOfData)
      call.math.thresholds.notePeriod(call.node, growth.period);
  }
}

/// Notes where indices change their sign: negative ones count from the end.
void noteIndices(const Call& call) {
  static constexpr const char* names[] = {"Gather", "GatherElements", "GatherND", "ScatterND",
                                          "ScatterElements"};
  const Ref indices = call.in(1);
  if (!call.node.op().isOnnx() || !llvm::is_contained(names, call.node.op().type()) || !indices ||
      !indices->isInteger())
    return;
  for (size_t i = 0; i < indices->growths.size(); ++i)
    call.noteThreshold(indices->number(i), {fixedGrowth, 0}, /*isExact=*/false);
}

/// The growths of integers that indices take from a table of constants.
void traceTable(Call& call, Ref& result) {
  const Ref data = call.in(0), places = call.in(1);
  if (!call.node.op().isOnnx() || !call.node.op().type().startswith("Gather") ||
      !data->isConstant || !data->isInteger() || data->isBool() || places->growths.empty())
    return;
  Growths& growths = call.math.growths;
  const auto axis = axisOf(call.integer("axis", 0), data->rank());
  const auto apart =
      call.node.is("Gather") && data->rank() == 1 ? progression(*data, *axis) : std::nullopt;
  const GrowthId other =
      growths.untraced(call.node.describe() + " takes rows of a table of constants");
  auto copy = owned(result);
  copy->growths.assign(static_cast<size_t>(copy->count()), other);
  for (size_t i = 0; apart && i < copy->growths.size(); ++i) {
    const GrowthId scaled = growths.product(places->number(i), {fixedGrowth, *apart});
    copy->growths[i] = growths.sum({scaled, 0}, {fixedGrowth, double(data->integers[0])});
  }
}

} // namespace

void traceResults(Call& call, Results& results) {
  const auto traced = tracedOperands(call.node);
  noteIndices(call);
  bool grows = false;
  for (unsigned i = 0; i < call.operands.size(); ++i) {
    const Ref& operand = call.operands[i];
    if (!operand || operand->growths.empty())
      continue;
    grows = true;
    const bool isTraced = traced && *traced >> std::min(i, 31U) & 1;
    const bool isLeftOut = call.math.isOfShapes && operand->kind == Kind::Known;
    if (!isTraced && !isLeftOut && !readsShapes(call.node))
      noteAll(call, operand->growths);
  }
  for (unsigned i = 0; i < results.size(); ++i) {
    Ref& result = results[i];
    if (!result)
      continue;
    llvm::SmallVector<GrowthId, 4> extents = extentGrowths(call, i, *result);
    if (llvm::all_of(extents, [](GrowthId id) { return id == fixedGrowth; }))
      extents.clear();
    if (extents != result->extentGrowths)
      owned(result)->extentGrowths = std::move(extents);
    notePeriods(call, *result);
    if (result->isReal() || result->isBool()) {
      if (!result->growths.empty())
        owned(result)->growths.clear();
    } else if (traced) {
      traceTable(call, result);
    } else if (grows && !(call.node.is("MatMul") && !result->growths.empty())) {
      const GrowthId other = call.math.growths.untraced(
          call.node.describe() + " computes a function of sizes that is not traced");
      owned(result)->growths.assign(static_cast<size_t>(result->count()), other);
    }
  }
}

} // namespace kvopt::check
