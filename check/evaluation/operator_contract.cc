// Attributes and their ranges, and numbers of rows in blocks.
#include "check/evaluation/operator_contract.h"

#include "ir/op.h"
#include "ir/ops/kvopt/cache_operator.h"

#include <cmath>

namespace kvopt::check {
namespace {

bool isOwn(const Call& call) { return call.node.op().domain() == "ai.kvopt"; }

/// Number of rows in a side's blocks; nullopt if a block has no such axis.
std::optional<int64_t> rowsInBlocks(const Call& call, const ir::CacheOperator& op, unsigned side,
                                    unsigned each) {
  constexpr int64_t usualAxis = 2;
  const int64_t axis = call.integer(ir::CacheOperator::axisName(side), usualAxis);
  int64_t rows = 0;
  for (unsigned i = 0; i < each; ++i)
    if (const Ref block = call.in(op.block(side, each) + i)) {
      if (axis < 0 || axis >= block->rank())
        return std::nullopt;
      rows += block->shape[static_cast<size_t>(axis)];
    }
  return rows;
}

/// An attribute that the operator does not have, or that is out of its documented range, for which
/// nothing says what the operator computes; empty if there is none.
std::string undocumentedAttribute(const Call& call) {
  const ir::OpDef* definition = call.node.definition();
  if (definition && (isOwn(call) || call.node.op().isOnnx()))
    for (const ir::NamedAttribute& written : call.node.attributes())
      if (!definition->findAttribute(written.name))
        return "it has no attribute '" + written.name + "'";
  if (!isOwn(call))
    return "";
  for (const char* name : {"causal", "mask_boolean"})
    if (const int64_t value = call.integer(name, 0); value != 0 && value != 1)
      return "its attribute '" + std::string(name) + "' is neither 0 nor 1";
  if (call.integer("window", 0) < 0)
    return "its attribute 'window' is negative";
  if (const double cap = call.number("softcap", 0); !std::isfinite(cap) || cap < 0)
    return "its attribute 'softcap' is negative or infinite";
  return "";
}

/// Whether blocks hold other numbers of keys than of values; empty if they do not.
std::string oddBlocks(const Call& call) {
  const auto op = isOwn(call) ? ir::CacheOperator::of(call.node) : std::nullopt;
  if (!op || !op->isInBlocks() || op->isLatent() || call.operands.size() < op->firstBlock())
    return "";
  const auto count = static_cast<unsigned>(call.operands.size()) - op->firstBlock();
  if (count % op->blockLists() != 0)
    return "its lists of blocks have different lengths";
  const unsigned each = count / op->blockLists();
  const auto keys = rowsInBlocks(call, *op, 0, each), values = rowsInBlocks(call, *op, 1, each);
  if (!keys || !values || *keys != *values)
    return "its blocks hold other numbers of keys than of values";
  return "";
}

} // namespace

std::string contractViolation(const Call& call) {
  std::string attribute = undocumentedAttribute(call);
  return attribute.empty() ? oddBlocks(call) : attribute;
}

bool isNeutral(const Call& call, llvm::StringRef attribute) {
  // Precisions, orders of random numbers, and what operands or other attributes repeat. Attributes
  // that only count where another one or a result is present are asked for there.
  static constexpr std::pair<const char*, const char*> neutral[] = {
      {"Attention", "kv_num_heads"},
      {"Attention", "q_num_heads"},
      {"Attention", "qk_matmul_output_mode"},
      {"Attention", "softmax_precision"},
      {"Conv", "kernel_shape"},
      {"Dropout", "ratio"},
      {"Dropout", "seed"},
      {"LayerNormalization", "stash_type"},
      {"Reshape", "allowzero"},
      {"RMSNormalization", "stash_type"},
      {"ReduceMax", "noop_with_empty_axes"},
      {"ReduceMean", "noop_with_empty_axes"},
      {"ReduceMin", "noop_with_empty_axes"},
      {"ReduceProd", "noop_with_empty_axes"},
      {"ReduceSum", "noop_with_empty_axes"},
      {"ReduceL2", "noop_with_empty_axes"},
      {"ReduceSumSquare", "noop_with_empty_axes"},
      {"RotaryEmbedding", "num_heads"},
      {"SimplifiedLayerNormalization", "stash_type"},
      {"Split", "num_outputs"},
      {"com.microsoft::GroupQueryAttention", "kv_cache_bit_width"},
      {"com.microsoft::GroupQueryAttention", "qk_norm_epsilon"},
      {"com.microsoft::GroupQueryAttention", "qk_output"},
      {"com.microsoft::MatMulNBits", "accuracy_level"},
      {"com.microsoft::MultiHeadAttention", "mask_filter_value"},
      {"com.microsoft::RotaryEmbedding", "num_heads"},
      {"com.microsoft::SimplifiedLayerNormalization", "stash_type"},
  };
  const std::string name = call.node.op().str();
  if (llvm::any_of(neutral, [&](const auto& entry) {
        return name == entry.first && attribute == entry.second;
      }))
    return true;
  const bool rotates = call.integer("do_rotary", 0) != 0;
  return attribute == "rotary_interleaved" && !rotates;
}

bool isNeutral(const Call& call, unsigned operand) {
  if (call.node.is("Dropout"))
    return operand == 1; // the ratio
  const bool isGrouped = call.node.op() == ir::OpName("com.microsoft::GroupQueryAttention");
  return isGrouped && operand >= 7 && operand <= 9 && call.integer("do_rotary", 0) == 0;
}

namespace {

/// Whether two attributes of one number or text are the same.
bool isSame(const ir::Attribute& a, const ir::Attribute& b) {
  if (a.kind() != b.kind())
    return false;
  switch (a.kind()) {
  case ir::AttributeKind::Int:
    return a.intValue() == b.intValue();
  case ir::AttributeKind::Float:
    return a.floatValue() == b.floatValue();
  case ir::AttributeKind::String:
    return a.stringValue() == b.stringValue();
  default:
    return false;
  }
}

} // namespace

std::string unreadPart(const Call& call) {
  for (unsigned i = 0; i < call.operands.size(); ++i)
    if (call.operands[i] && !call.hasRead(i) && !isNeutral(call, i))
      return "its rule does not read operand " + std::to_string(i);
  const ir::OpDef* definition = call.node.definition();
  for (const ir::NamedAttribute& written : call.node.attributes()) {
    if (call.hasRead(written.name) || isNeutral(call, written.name))
      continue;
    const ir::FormalAttribute* formal =
        definition ? definition->findAttribute(written.name) : nullptr;
    const ir::Attribute* own = call.attribute(written.name);
    if (!own || !formal || !formal->defaultValue || !isSame(*own, *formal->defaultValue))
      return "its rule does not read the attribute '" + written.name + "'";
  }
  return "";
}

} // namespace kvopt::check
