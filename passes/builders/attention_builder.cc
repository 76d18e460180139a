// The nodes around a raised attention.
#include "passes/builders/attention_builder.h"

#include "ir/movement.h"
#include "passes/analysis/movement/equal_values.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace kvopt::builders {
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of readers searched for a node to reuse.
constexpr unsigned reuseBudget = 256;
/// Maximum number of constants searched, latest first.
constexpr unsigned constantBudget = 64;

bool sameBytes(const TensorData& a, const TensorData& b) {
  if (&a == &b)
    return true;
  if (a.elementType() != b.elementType() || a.shape() != b.shape() ||
      a.byteSize().value_or(65) > 64)
    return false;
  auto first = a.bytes();
  auto second = b.bytes();
  bool equal = first && second && std::equal(first->begin(), first->end(), second->begin());
  if (!first)
    llvm::consumeError(first.takeError());
  if (!second)
    llvm::consumeError(second.takeError());
  return equal;
}

/// Whether the value is a constant with these contents that will not be replaced.
bool holds(const Value& value, const TensorData& contents) {
  return value.constant() && !value.isReplaceable() && sameBytes(*value.constant(), contents);
}

bool sameOperand(const Value* value, const BuilderOperand& wanted) {
  if (!wanted.constant)
    return value == wanted.value;
  return value && holds(*value, *wanted.constant);
}

bool sameAttribute(const Attribute& a, const Attribute& b) {
  if (a.isReference() || b.isReference() || a.kind() != b.kind())
    return false;
  switch (a.kind()) {
  case AttributeKind::Int:
    return a.intValue() == b.intValue();
  case AttributeKind::Float:
    return a.floatValue() == b.floatValue();
  default:
    return false;
  }
}

bool sameAttributes(const Node& node, llvm::ArrayRef<NamedAttribute> wanted) {
  return node.attributes().size() == wanted.size() &&
         llvm::all_of(wanted, [&](const NamedAttribute& attribute) {
           const Attribute* written = node.attribute(attribute.name);
           return written && sameAttribute(*written, attribute.value);
         });
}

/// Whether the node joins some value and `second` along `axis`.
bool isConcatOf(const Node& node, const Value& second, int64_t axis) {
  if (movementKind(node) != MovementKind::Concat || node.operands().size() != 2 || !node.operand(1))
    return false;
  const std::optional<unsigned> joined = movementOf(node.result())->axis();
  return joined && int64_t{*joined} == axis && analysis::areEqual(*node.operand(1), second);
}

} // namespace

double defaultScale(int64_t width) { return 1.0 / std::sqrt(static_cast<double>(width)); }

bool refineCacheType(Value& cache, const Value& rows, unsigned sequenceAxis) {
  const TensorType& type = cache.type();
  if (!type.hasRank() || !rows.type().hasRank() || type.rank() != rows.type().rank())
    return false;
  Shape shape(type.shape().begin(), type.shape().end());
  bool refined = false;
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    const Dim& fixed = rows.type().shape()[axis];
    if (axis == sequenceAxis || shape[axis].value() || !fixed.value())
      continue;
    shape[axis] = fixed;
    refined = true;
  }
  if (refined)
    cache.setType(TensorType(type.elementType(), std::move(shape)));
  return refined;
}

std::optional<MatchFailure> AttentionBuilder::replace(Node& fused, Value& output,
                                                      const RaisedCache& keys,
                                                      const RaisedCache& values) {
  const RaisedCache* caches[] = {&keys, &values};
  llvm::SmallVector<Rewriter::Replacement, 3> replacements{{&fused.result(), &output}};
  for (unsigned i : {0u, 1u})
    if (fused.results().size() > i + 1 && !fused.result(i + 1).isUnused())
      replacements.push_back({&fused.result(i + 1), caches[i]->present});
  if (auto failure = rewriter.replace(replacements)) {
    rewriter.discard();
    return failure;
  }
  for (const RaisedCache* cache : caches) {
    refineCacheType(*cache->present, *cache->fresh);
    if (cache->past)
      refineCacheType(*cache->past, *cache->fresh);
  }
  return std::nullopt;
}

Value& AttentionBuilder::value(const BuilderOperand& operand) {
  if (!operand.constant)
    return *operand.value;
  unsigned seen = 0;
  for (const auto& initializer : llvm::reverse(rewriter.graph().initializers())) {
    if (++seen > constantBudget)
      break;
    if (holds(*initializer, *operand.constant))
      return *initializer;
  }
  return rewriter.constant("constant", operand.constant);
}

Value& AttentionBuilder::node(OpName op, llvm::ArrayRef<BuilderOperand> operands,
                              std::vector<NamedAttribute> attributes, llvm::StringRef hint) {
  const auto* shared = llvm::find_if(
      operands, [](const BuilderOperand& operand) { return operand.value != nullptr; });
  if (shared != operands.end()) {
    unsigned seen = 0;
    for (const Use& use : shared->value->uses()) {
      if (++seen > reuseBudget)
        break;
      Node& reader = use.user();
      if (&reader.graph() != &rewriter.graph() || !reader.is(op) ||
          reader.operands().size() != operands.size() || reader.results().size() != 1 ||
          !sameAttributes(reader, attributes))
        continue;
      bool same = true;
      for (unsigned i = 0; same && i < operands.size(); ++i)
        same = sameOperand(reader.operand(i), operands[i]);
      if (same)
        return reader.result();
    }
  }
  llvm::SmallVector<Value*, 6> values;
  for (const BuilderOperand& operand : operands)
    values.push_back(operand.constant ? &value(operand) : operand.value);
  return rewriter.create(op, values, std::move(attributes), 1, hint).result();
}

Value& AttentionBuilder::transpose(Value& value, std::vector<int64_t> permutation) {
  return node("Transpose", {value}, attrs({{"perm", permutation}}));
}

Value& AttentionBuilder::splitHeads(Value& tokens, int64_t heads, int64_t width) {
  Value& split =
      node("Reshape", {tokens, ints({0, 0, heads, width > 0 ? width : -1})}, {}, "split_heads");
  return transpose(split, {0, 2, 1, 3});
}

Value& AttentionBuilder::mergeHeads(Value& heads) {
  auto count = heads.type().dim(1).value();
  auto width = heads.type().dim(3).value();
  int64_t merged = 0;
  bool known = count && width && *count > 0 && *width > 0 &&
               !__builtin_mul_overflow(*count, *width, &merged);
  Value& rows = transpose(heads, {0, 2, 1, 3});
  return node("Reshape", {rows, ints({0, 0, known ? merged : -1})}, {}, "merged_heads");
}

Value& AttentionBuilder::concat(Value& first, Value& second, int64_t axis) {
  // The model may join the same rows itself, with a negative axis.
  unsigned seen = 0;
  for (const Use& use : first.uses()) {
    if (++seen > reuseBudget)
      break;
    Node& reader = use.user();
    if (&reader.graph() == &rewriter.graph() && use.operandIndex() == 0 &&
        isConcatOf(reader, second, axis))
      return reader.result();
  }
  return node("Concat", {first, second}, attrs({{"axis", axis}}));
}

Value& AttentionBuilder::slice(Value& value, int64_t axis, int64_t begin, int64_t end) {
  return node("Slice", {value, ints({begin}), ints({end}), ints({axis})});
}

Value& AttentionBuilder::unsqueeze(Value& value, int64_t axis) {
  if (rewriter.graph().opsetVersion() >= 13)
    return node("Unsqueeze", {value, ints({axis})});
  return node("Unsqueeze", {value}, attrs({{"axes", {axis}}}));
}

BuilderOperand AttentionBuilder::extent(Value& value, int64_t axis, bool scalar) {
  const Dim& wanted = value.type().dim(axis);
  if (auto known = wanted.value())
    return scalar ? int64Scalar(*known) : ints({*known});
  Value* source = &value;
  int64_t sourceAxis = axis;
  for (const auto& input : rewriter.graph().inputs()) {
    if (!input->type().hasRank())
      continue;
    const auto* found = llvm::find_if(
        input->type().shape(), [&](const Dim& extent) { return extent.isKnownEqual(wanted); });
    if (found == input->type().shape().end())
      continue;
    source = input.get();
    sourceAxis = found - input->type().shape().begin();
    break;
  }
  Value& shape = node("Shape", {*source}, {}, "shape");
  return node("Gather", {shape, scalar ? int64Scalar(sourceAxis) : ints({sourceAxis})}, {},
              "extent");
}

Value& AttentionBuilder::range(const BuilderOperand& count) {
  return node("Range", {int64Scalar(0), count, int64Scalar(1)}, {}, "range");
}

Value& AttentionBuilder::positions(Value& pastLength, const BuilderOperand& rowCount) {
  Value& column = node("Reshape", {pastLength, ints({-1, 1})});
  return node("Add", {column, range(rowCount)}, {}, "positions");
}

Value& AttentionBuilder::checkedSlot(Value& position, Value& cache, int64_t axis) {
  const ElementType element = position.type().elementType();
  Value& capacity = castTo(value(extent(cache, axis)), element);
  Value& isBefore = node("Less", {position, castTo(value(ints({0})), element)});
  return node("Where", {isBefore, capacity, position}, {}, "slot");
}

Value& AttentionBuilder::additive(Value& kept, ElementType type, double otherwise) {
  return node("Where", {kept, floatScalar(type, 0), floatScalar(type, otherwise)}, {}, "mask");
}

Value& AttentionBuilder::castTo(Value& value, ElementType type) {
  if (value.type().elementType() == type)
    return value;
  return node("Cast", {value}, attrs({{"to", static_cast<int64_t>(type)}}));
}

Value& AttentionBuilder::keptMask(Value& mask, ElementType type, double otherwise) {
  Value& kept = node("Greater", {castTo(mask, ElementType::Int64), ints({0})});
  Value& perHead = unsqueeze(additive(kept, type, otherwise), 1);
  return mask.type().rank() == 2 ? unsqueeze(perHead, 1) : perHead;
}

Value& AttentionBuilder::lengthMask(Value& lengths, const BuilderOperand& tokens, ElementType type,
                                    double otherwise) {
  Value& column = node("Reshape", {castTo(lengths, ElementType::Int64), ints({-1, 1})});
  Value& kept = node("Less", {range(tokens), column});
  return unsqueeze(unsqueeze(additive(kept, type, otherwise), 1), 1);
}

Value& AttentionBuilder::causalKeys(Value& query, Value& keys) {
  const BuilderOperand tokens = extent(keys, 2, true);
  const BuilderOperand rows = extent(query, 2, true);
  Value& ofFirst = node("Add", {node("Sub", {tokens, rows}), int64Scalar(1)}, {}, "seen");
  Value& seen = unsqueeze(node("Add", {range(rows), ofFirst}), 1);
  return node("Less", {range(tokens), seen}, {}, "causal_keys");
}

Value& AttentionBuilder::paddedMask(Value& mask, const BuilderOperand& tokens) {
  auto rank = static_cast<int64_t>(mask.type().rank());
  bool isBoolean = mask.type().elementType() == ElementType::Bool;
  Value& missing = node("Sub", {tokens, extent(mask, rank - 1)}, {}, "missing_columns");
  Value* shape = &missing;
  if (rank > 1)
    shape = &concat(slice(node("Shape", {mask}, {}, "shape"), 0, 0, rank - 1), missing, 0);
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  TensorRef filler =
      isBoolean ? boolTensor({false}) : floatScalar(mask.type().elementType(), hidden, 1);
  Value& columns = node("Expand", {std::move(filler), *shape}, {}, "masked_columns");
  return concat(mask, columns, rank - 1);
}

Value& AttentionBuilder::sdpa(const AttentionParts& parts, llvm::ArrayRef<Node*> sources) {
  llvm::SmallVector<Value*, 6> operands{parts.query, parts.key,   parts.value,
                                        parts.mask,  parts.sinks, parts.pastLength};
  while (!operands.back())
    operands.pop_back();
  AttributeList attributes = attrs({{"scale", parts.scale}});
  if (parts.causal)
    attributes.add("causal", 1);
  if (parts.window != 0)
    attributes.add("window", parts.window);
  if (parts.softcap != 0)
    attributes.add("softcap", parts.softcap);
  Node& sdpa = rewriter.create("ai.kvopt::Sdpa", operands, attributes, 1, "attention");
  rewriter.recordSources(sdpa, sources);
  return sdpa.result();
}

} // namespace kvopt::builders
