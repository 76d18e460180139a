// The length input and the readers of a past's shape.
#include "passes/targets/support/length_input.h"

#include "support/format.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

LengthInput::LengthInput(Graph& lowered, Dim pastRows, std::optional<int64_t> capacity)
    : graph(lowered), rows(std::move(pastRows)) {
  slots = capacity ? Dim::fixed(*capacity) : Dim::symbol(freshSymbol("capacity"));
}

std::string LengthInput::freshSymbol(const std::string& base) const {
  std::string candidate = base;
  auto taken = [&] {
    return llvm::any_of(graph.inputs(), [&](const std::unique_ptr<Value>& value) {
      return value->type().hasRank() && llvm::any_of(value->type().shape(), [&](const Dim& extent) {
               return llvm::is_contained(extent.symbols(), candidate);
             });
    });
  };
  for (unsigned i = 1; taken(); ++i)
    candidate = formatted("{}_{}", base, i);
  return candidate;
}

Value& LengthInput::value() {
  if (!input) {
    input =
        &graph.addInput(graph.freshName("past_length"), TensorType::fixed(ElementType::Int64, {1}));
    input->setKnownIntegers(Shape{rows});
  }
  return *input;
}

void LengthInput::rewireShapeReaders(Value& past, unsigned axis, Rewriter& rewriter,
                                     std::optional<int64_t> most) {
  llvm::SmallVector<Node*, 4> readers;
  for (Use& use : past.uses())
    if (use.user().op() == "Shape" && !capacityReaders.count(&use.user()))
      readers.push_back(&use.user());
  auto rank = static_cast<int64_t>(past.type().rank());
  auto clamp = [&](int64_t position) {
    return std::clamp<int64_t>(position < 0 ? position + rank : position, 0, rank);
  };
  Value* rowsOfPast = nullptr;
  for (Node* reader : readers) {
    int64_t start = clamp(reader->intAttr("start", 0));
    int64_t end = std::max(start, clamp(reader->intAttr("end", rank)));
    if (axis < start || axis >= end)
      continue;
    llvm::SmallVector<bool, 4> isSequenceAxis;
    for (int64_t position = start; position < end; ++position)
      isSequenceAxis.push_back(position == static_cast<int64_t>(axis));
    Node& extents = rewriter.createLike(*reader, {&past}, "capacity_shape");
    capacityReaders.insert(&extents);
    Value& selector = rewriter.constant("is_sequence_axis", boolTensor(isSequenceAxis));
    if (!rowsOfPast)
      rowsOfPast =
          most ? &rewriter
                      .create("Min",
                              {&value(), &rewriter.constant("most_rows", int64Tensor({*most}))}, {},
                              1, "past_rows")
                      .result()
               : &value();
    Node& valid =
        rewriter.create("Where", {&selector, rowsOfPast, &extents.result()}, {}, 1, "past_shape");
    reader->result().replaceAllUsesWith(valid.result());
  }
}

TensorType LengthInput::sharedType(const SiteCache& update) const {
  TensorType type = update.past->type();
  Shape shape(type.shape().begin(), type.shape().end());
  // An extent that only the present declares applies to the past, too.
  for (unsigned axis = 0; axis < shape.size(); ++axis)
    if (!shape[axis].value() && update.output && update.output->type().dim(axis).value())
      shape[axis] = update.output->type().dim(axis);
  shape[update.axis] = slots;
  type.setShape(std::move(shape));
  return type;
}

} // namespace kvopt::targets
