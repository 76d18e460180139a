// Definitions of ai.kvopt's attention operators over caches, and their shape rule.
//
// Attention is that of ai.kvopt::Sdpa over the previously cached rows, followed by the S new ones.
// The attributes key_axis and value_axis give the layouts of the caches (ir/cache_layout.h).
// Buffers and rings are written in place: presents may overwrite pasts. Engines that copy instead
// give the same result.
//
// Buffer: with P = past_length, rows [P, P + S) are written for each batch row; later rows are not
//   read.
//
// Ring: a cache of C slots that holds the last C tokens' rows: the row of position p is in slot
//   p mod C. With n = min(P, C - 1), attention sees the rows of positions [P - n, P), followed by
//   the S new rows. A query of a single token thus sees at most C keys, including its own. The
//   mask's last column belongs to the last new row. If a mask has more than n + S columns, the last
//   n + S are read, so that it may cover all positions. S may exceed C. Slots without a token are
//   never read. Attention sees the rounded values of new rows, even of those for which a long step
//   leaves no slot.
//
// Blocks: `blocks` are all blocks of the keys, followed by the same number for the values, in the
//   order of their tokens. The number of rows of a block is its number of tokens, which may be 0.
//   Nothing is written: the host appends the new rows to its blocks.
//
// Latent: there is a single cache, whose rows are keys; values are their columns
//   [v_offset, v_offset + v_width).
//
// Codes: a row x (the key or value of one token and head, in f32) is stored as codes q and a scale
// s, in the format of a RowCode (ir/rows/row_code.h), which the element type of the pasts
// identifies.
//   Quotients are computed in f32 and rounded once, so that every engine writes the same bytes. A
//   row of zeros, or of numbers so small that s is 0, has scale 0 and codes of zeros. A row with a
//   NaN or an infinity has scale NaN and the same codes: all of it is NaN. For int8,
//   |x[d] - s q[d]| <= s / 2, except for two roundings of f32 and for rows below 127 * 2^-149.
//   Scales are float, with the cache's extents and one column: the scale of the row at the same
//   position. If an element holds several numbers, the elements of a row must be contiguous. Values
//   in a latent row have its scale; with four-bit codes, their columns must be whole groups. In
//   blocks, new rows are int8 codes from ai.kvopt::QuantizeRows.
#include "ir/ops/kvopt/cache_operator.h"

#include "ir/node.h"
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

constexpr auto cacheOperators = [] {
  std::array<CacheOperator, std::size(cacheOperatorForms)> all;
  for (size_t i = 0; i < all.size(); ++i) {
    const CacheOperatorForm& form = cacheOperatorForms[i];
    all[i] = {form.place, form.hasCodes() ? &int8Rows : nullptr, form.sharing};
  }
  return all;
}();

/// Shape rule of one operator at one node.
class CacheShapes {
public:
  explicit CacheShapes(ShapeContext& nodeContext)
      : context(nodeContext), op(*CacheOperator::of(nodeContext.node())) {}

  llvm::Error infer() {
    if (llvm::Error error =
            op.isLatent() ? checkLatentOperands(context) : checkAttentionOperands(context))
      return error;
    if (llvm::Error error = op.isInBlocks() ? checkBlocks() : checkCaches())
      return error;
    if (llvm::Error error = checkMaskAndSinks(context, op.mask()))
      return error;
    llvm::Expected<TensorType> output =
        op.isLatent() ? latentResultType(context) : attentionResultType(context);
    if (!output)
      return output.takeError();
    context.setResult(CacheOperator::output, std::move(*output));
    if (!op.isInBlocks())
      for (unsigned i = 0; i < op.sides() * op.parts(); ++i)
        context.setResult(1 + i, context.type(op.past(0) + i));
    return llvm::Error::success();
  }

private:
  /// The cache of a side; `past` is its rows, or one block of them.
  CacheSide cacheSide(unsigned side, unsigned past) const {
    // In blocks, new rows are codes, too.
    const RowCode* code = op.isInBlocks() ? nullptr : op.code;
    return {CacheOperator::fresh(side), past, CacheOperator::axisName(side), code, op.isRing()};
  }

  llvm::Error checkCaches() {
    // The number of visible tokens depends on the contents of past_length.
    llvm::SmallVector<Dim, 2> capacities;
    for (unsigned side = 0; side < op.sides(); ++side) {
      llvm::Expected<Dim> rows = checkCache(context, cacheSide(side, op.past(side)));
      if (!rows)
        return rows.takeError();
      capacities.push_back(std::move(*rows));
    }
    if (llvm::Error error =
            requireEqual(context, capacities.front(), capacities.back(), "capacities"))
      return error;
    if (op.isRing() && capacities.front().isKnownLess(Dim::fixed(1)))
      return context.error("a ring needs at least one slot");
    for (unsigned side = 0; side < op.sides() && op.hasCodes(); ++side)
      if (llvm::Error error =
              checkCacheScales(context, cacheSide(side, op.past(side)), op.pastScale(side)))
        return error;
    return checkPastLength(context, op.pastLength(),
                           op.isRing() ? Dim::fixed(1) : context.type(0).dim(0));
  }

  llvm::Error checkBlocks() {
    const auto operands = static_cast<unsigned>(context.node().operands().size());
    const unsigned blocks = operands > op.firstBlock() ? operands - op.firstBlock() : 0;
    if (blocks % op.blockLists() != 0)
      return context.error(formatted("{} blocks cannot be divided equally into keys and values{}",
                                     blocks, op.hasCodes() ? ", and their scales" : ""));
    const unsigned each = blocks / op.blockLists();
    for (unsigned i = 0; i < each; ++i)
      if (llvm::Error error = checkBlock(i, each))
        return error;
    for (unsigned side = 0; side < op.sides() && op.hasCodes(); ++side)
      if (llvm::Error error =
              checkNewScales(context, CacheOperator::fresh(side), op.freshScale(side)))
        return error;
    // The number of visible tokens is a sum over the blocks.
    return llvm::Error::success();
  }

  llvm::Error checkBlock(unsigned index, unsigned each) {
    llvm::SmallVector<Dim, 2> rows;
    for (unsigned side = 0; side < op.sides(); ++side) {
      const unsigned operand = op.block(side, each) + index;
      const TensorType& first = context.type(op.block(side, each));
      const TensorType& block = context.type(operand);
      if (first.hasRank() && block.hasRank() && first.rank() != block.rank())
        return context.error(formatted("blocks of one cache are {} and {}: they must be laid "
                                       "out alike",
                                       first.str(), block.str()));
      llvm::Expected<Dim> count = checkCache(context, cacheSide(side, operand));
      if (!count)
        return count.takeError();
      rows.push_back(std::move(*count));
    }
    if (llvm::Error error =
            requireEqual(context, rows.front(), rows.back(), "rows of a block's keys and values"))
      return error;
    for (unsigned side = 0; side < op.sides() && op.hasCodes(); ++side)
      if (llvm::Error error =
              checkCacheScales(context, cacheSide(side, op.block(side, each) + index),
                               op.scaleBlock(side, each) + index))
        return error;
    return llvm::Error::success();
  }

  ShapeContext& context;
  CacheOperator op;
};

void defineOperator(OpRegistry& registry, const CacheOperator& op) {
  OpDefBuilder definition = define(registry, op.name(), 1);
  addAttentionAttributes(definition);
  const auto side = [](unsigned index) { return std::string(CacheOperator::sideName(index)); };
  definition.in("query").out("output");
  for (unsigned i = 0; i < op.sides(); ++i)
    definition.in(side(i) + "_new");
  for (unsigned i = 0; i < op.sides() && !op.isInBlocks(); ++i)
    for (const char* part : {"", "_scale"})
      if (*part == '\0' || op.hasCodes())
        definition.in("past_" + side(i) + part).out("present_" + side(i) + part);
  if (!op.isInBlocks())
    definition.in("past_length");
  definition.in("mask?").in("sinks?");
  for (unsigned i = 0; i < op.sides() && op.isInBlocks() && op.hasCodes(); ++i)
    definition.in(side(i) + "_scale_new");
  if (op.isInBlocks())
    definition.in("blocks*");
  if (op.isLatent())
    definition.requiredAttr("v_width", AttributeKind::Int).attr("v_offset", int64_t{0});
  for (unsigned i = 0; i < op.sides(); ++i)
    definition.attr(CacheOperator::axisName(i), int64_t{2});
  for (unsigned i = 0; i + 1 < op.resultCount(); ++i)
    definition.inPlace(1 + i, op.past(0) + i);
  definition.shape([](ShapeContext& context) { return CacheShapes(context).infer(); })
      .body(checkOwnBody);
}

} // namespace

llvm::ArrayRef<CacheOperator> CacheOperator::all() { return cacheOperators; }

OpName CacheOperator::name() const {
  for (const CacheOperatorForm& form : cacheOperatorForms)
    if (form.place == place && form.hasCodes() == hasCodes() && form.sharing == sharing)
      return form.name;
  assert(false && "every combination has a name");
  return {};
}

std::optional<CacheOperator> CacheOperator::named(OpName op) {
  if (op.domain() != kvoptDomain)
    return std::nullopt;
  for (size_t i = 0; i < cacheOperators.size(); ++i)
    if (op == cacheOperatorForms[i].name)
      return cacheOperators[i];
  return std::nullopt;
}

std::optional<CacheOperator> CacheOperator::of(const Node& node) {
  std::optional<CacheOperator> op = node.definition() ? named(node.op()) : std::nullopt;
  if (!op || !op->hasCodes())
    return op;
  const unsigned first = op->isInBlocks() ? op->firstBlock() : op->past(0);
  const Value* rows = first < node.operands().size() ? node.operand(first) : nullptr;
  if (const RowCode* code = rows ? rowCodeOf(rows->type().elementType()) : nullptr)
    op->code = code;
  return op;
}

void register_cache_operators(OpRegistry& registry) {
  for (const CacheOperator& op : CacheOperator::all())
    defineOperator(registry, op);
}

} // namespace kvopt::ir
