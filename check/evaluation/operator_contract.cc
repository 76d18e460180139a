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

} // namespace kvopt::check
