// Effect of each sequence operator on the elements.
#include "runtime/exec/static_sequences.h"

#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

constexpr int64_t mostElements = 4096;

llvm::Error notSupported(const Node& node, const char* what) {
  return unsupported("{}", what).node(node.name(), node.op().str());
}

/// The position that an operand holds, in [0, count); nullopt if it is not constant.
std::optional<size_t> positionOf(const Value* operand, size_t count) {
  const TensorData* constant = operand ? operand->constant() : nullptr;
  auto values = constant ? integerValues(*constant, 1) : std::nullopt;
  if (!values || values->size() != 1)
    return std::nullopt;
  const auto length = static_cast<int64_t>(count);
  const int64_t position = values->front() < 0 ? values->front() + length : values->front();
  if (position < 0 || position >= length)
    return std::nullopt;
  return static_cast<size_t>(position);
}

std::string freshResult(const Node& node, Graph& target, unsigned index = 0) {
  return target.freshName(node.result(index).name());
}

} // namespace

bool StaticSequences::isSequenceOperator(const Node& node) {
  return node.op().isOnnx() &&
         llvm::StringSwitch<bool>(node.op().type())
             .Cases("SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", true)
             .Cases("SequenceAt", "SequenceLength", "SequenceMap", "SplitToSequence", true)
             .Case("ConcatFromSequence", true)
             .Default(false);
}

const StaticSequences::Elements* StaticSequences::find(const Value* value) const {
  auto found = known.find(value);
  return found == known.end() ? nullptr : &found->second;
}

llvm::Expected<bool> StaticSequences::replace(const Node& node, Graph& target, ValueMap& values,
                                              Mapped mapped, CopyBody copyBody) {
  if (node.is("SequenceEmpty")) {
    set(node.result(), {});
    return true;
  }
  if (node.is("SequenceConstruct")) {
    Elements elements;
    for (const Use& use : node.operands())
      elements.push_back(mapped(use.value()));
    set(node.result(), std::move(elements));
    return true;
  }
  if (node.is("SplitToSequence"))
    return split(node, target, mapped);
  const bool readsAny =
      llvm::any_of(node.operands(), [&](const Use& use) { return find(use.value()) != nullptr; });
  if (!readsAny)
    return false;
  if (node.is("SequenceMap"))
    return replaceMap(node, mapped, copyBody);
  if (const Elements* sequence = find(node.operand(0))) {
    const Elements copy = *sequence;
    return replaceSequence(node, copy, target, values, mapped);
  }
  return notSupported(node, "a sequence is read by an operator that takes tensors");
}

llvm::Expected<bool> StaticSequences::replaceSequence(const Node& node, const Elements& sequence,
                                                      Graph& target, ValueMap& values,
                                                      Mapped mapped) {
  Elements elements = sequence;
  if (node.is("Identity")) {
    set(node.result(), std::move(elements));
    return true;
  }
  if (node.is("SequenceLength")) {
    values[&node.result()] = &target.addConstant(
        freshResult(node, target), int64Scalar(static_cast<int64_t>(elements.size())));
    return true;
  }
  if (node.is("SequenceAt")) {
    // In a function's body, the position may be an operand that is constant only at the call.
    std::optional<size_t> position = positionOf(mapped(node.operand(1)), elements.size());
    if (!position)
      return notSupported(node, "the position in the sequence is not a constant within it");
    values[&node.result()] = elements[*position];
    return true;
  }
  if (node.is("SequenceInsert") || node.is("SequenceErase")) {
    const bool inserts = node.is("SequenceInsert");
    const Value* place = mapped(node.operand(inserts ? 2 : 1));
    std::optional<size_t> position = positionOf(place, elements.size() + (inserts ? 1 : 0));
    if (!place && (inserts || !elements.empty()))
      position = elements.size() - (inserts ? 0 : 1);
    if (!position)
      return notSupported(node, "the position in the sequence is not a constant within it");
    const auto at = elements.begin() + static_cast<std::ptrdiff_t>(*position);
    if (inserts)
      elements.insert(at, mapped(node.operand(1)));
    else
      elements.erase(at);
    set(node.result(), std::move(elements));
    return true;
  }
  if (!node.is("ConcatFromSequence"))
    return notSupported(node, "a sequence is read by an operator that takes tensors");
  const int64_t axis = node.intAttr("axis", 0);
  if (node.intAttr("new_axis", 0) != 0)
    for (Value*& element : elements) {
      const std::string name = freshResult(node, target);
      const bool takesOperand = target.opsetVersion("") >= 13;
      llvm::SmallVector<Value*, 2> operands = {element};
      if (takesOperand)
        operands.push_back(&target.addConstant(name + "_axes", int64Tensor({axis})));
      Node& unsqueeze = target.create("Unsqueeze", operands, {name});
      if (!takesOperand)
        unsqueeze.setAttribute("axes", Attribute::ofInts({axis}));
      element = &unsqueeze.result();
    }
  if (elements.empty())
    return notSupported(node, "an empty sequence cannot be concatenated");
  Node& concat = target.create("Concat", elements, {freshResult(node, target)});
  concat.setName(node.name().str());
  concat.setAttribute("axis", Attribute::ofInt(axis));
  values[&node.result()] = &concat.result();
  return true;
}

llvm::Expected<bool> StaticSequences::replaceMap(const Node& node, Mapped mapped,
                                                 CopyBody copyBody) {
  const Attribute* attribute = node.attribute("body");
  if (!attribute || attribute->graphs().size() != 1)
    return notSupported(node, "the body is missing");
  const Graph& body = *attribute->graphs().front();
  std::optional<size_t> count;
  for (const Use& use : node.operands())
    if (const Elements* sequence = find(use.value())) {
      if (count && *count != sequence->size())
        return notSupported(node, "the sequences differ in length");
      count = sequence->size();
    }
  if (body.inputs().size() != node.operands().size() ||
      body.outputs().size() < node.results().size())
    return notSupported(node, "the body's inputs or outputs are not the node's");
  std::vector<Elements> results(node.results().size());
  for (size_t i = 0; i < count.value_or(0); ++i) {
    Elements arguments;
    for (const Use& use : node.operands()) {
      const Elements* sequence = find(use.value());
      arguments.push_back(sequence ? (*sequence)[i] : mapped(use.value()));
    }
    llvm::Expected<Elements> outputs = copyBody(body, arguments);
    if (!outputs)
      return outputs.takeError();
    for (size_t j = 0; j < results.size(); ++j)
      results[j].push_back((*outputs)[j]);
  }
  for (unsigned j = 0; j < results.size(); ++j)
    set(node.result(j), std::move(results[j]));
  return true;
}

llvm::Expected<bool> StaticSequences::split(const Node& node, Graph& target, Mapped mapped) {
  const Value& input = *node.operand(0);
  const TensorType& type = input.type();
  const int64_t axis = node.intAttr("axis", 0);
  const bool isAxis = type.hasRank() && normalizedAxis(axis, type.rank()).has_value();
  const int64_t extent = isAxis ? type.dim(axis).value().value_or(-1) : -1;
  if (node.operand(1) || extent < 0 || extent > mostElements)
    return false;
  const bool keepsAxis = node.intAttr("keepdims", 1) != 0;
  Value* copy = mapped(&input);
  Elements elements;
  for (int64_t i = 0; i < extent; ++i) {
    const std::string name = freshResult(node, target);
    Value& index =
        target.addConstant(name + "_index", keepsAxis ? int64Tensor({i}) : int64Scalar(i));
    Node& element = target.create("Gather", {copy, &index}, {name});
    element.setAttribute("axis", Attribute::ofInt(axis));
    elements.push_back(&element.result());
  }
  set(node.result(), std::move(elements));
  return true;
}

} // namespace kvopt::runtime
