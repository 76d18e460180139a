// Replaces the operator that writes the rows by two: one for codes, one for scales.
#include "passes/targets/kvopt/overwritten_codes.h"

#include "ir/movement.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr unsigned columnAxis = 3;

/// Operand number of the new rows; nullopt for operators that place other things than rows.
std::optional<unsigned> rowsOperand(const Node& writer) {
  if (writer.is("TensorScatter"))
    return 1;
  if (writer.is("ScatterElements") || writer.is("ScatterND"))
    return 2;
  return std::nullopt;
}

/// Whether each new row goes to one place, with all of its columns.
bool placesRows(const Node& writer) {
  const std::optional<unsigned> rows = rowsOperand(writer);
  if (!rows || !writer.operand(*rows)->type().hasRank() ||
      writer.stringAttr("reduction", "none") != "none")
    return false;
  const TensorType& updates = writer.operand(*rows)->type();
  if (writer.is("TensorScatter"))
    return updates.rank() == columnAxis + 1;
  const Value& indices = *writer.operand(1);
  if (writer.is("ScatterND")) {
    const bool hasDepth = indices.type().hasRank() && indices.type().rank() > 0;
    const auto depth = hasDepth ? indices.type().shape().back().value() : std::nullopt;
    return depth && *depth <= columnAxis;
  }
  // One index for each row, repeated for its columns.
  const Node* repeated = indices.producer();
  const Value* before = repeated ? movedOperand(*repeated) : nullptr;
  return updates.rank() == columnAxis + 1 && before &&
         movementKind(*repeated) == MovementKind::Broadcast && before->type().hasRank() &&
         before->type().rank() != 0 && before->type().shape().back().value() == 1 &&
         writer.intAttr("axis", 0) != columnAxis && writer.intAttr("axis", 0) != -1;
}

} // namespace

std::optional<MatchFailure> overwrittenCodesObstacle(const AttentionSite& site) {
  const auto refuse = [&](ReasonCode code, const Value& value, const char* expected,
                          std::string found) {
    return MatchFailure{code, value.name().str(), expected, std::move(found),
                        "--to kvopt keeps the cache as it is declared"};
  };
  for (const auto* cache : {&site.key, &site.value}) {
    const SiteCache& update = **cache;
    const Value& present = update.writer->result();
    if (site.node->graph().parentNode())
      return refuse(ReasonCode::InSubgraph, *update.past, "attention in the main graph",
                    "attention in a branch");
    if (update.layout != CacheLayout::ofAttention() ||
        site.node->operand(cache == &site.key ? 1 : 2) != &present)
      return refuse(ReasonCode::LayoutUnsupported, *update.past,
                    "a cache that attention reads in the layout BHSD", update.layout.text());
    if (!placesRows(*update.writer))
      return refuse(ReasonCode::CacheNotInPlace, *update.past, "new rows that are placed as rows",
                    update.writer->describe());
    for (const Use& use : present.uses())
      if (&use.user() != site.node)
        return refuse(ReasonCode::CacheEscapes, present, "rows that only this attention reads",
                      use.user().describe());
    const ElementType element = update.past->type().elementType();
    if (element != site.node->operand(0)->type().elementType())
      return refuse(ReasonCode::DtypeMix, *update.past, "caches of the query's element type",
                    onnxName(element).str());
  }
  if (site.isLatent() || site.key->past == site.value->past)
    return refuse(ReasonCode::LayoutUnsupported, *site.key->past,
                  "a cache for keys and another one for values", "one for both");
  if (!site.valueWidth.value())
    return refuse(ReasonCode::ShapeMismatch, *site.value->past, "values of a fixed width",
                  site.valueWidth.str());
  return std::nullopt;
}

OverwrittenCodes overwriteWithCodes(const SiteCache& update, Rewriter& rewriter) {
  Node& writer = *update.writer;
  Graph& graph = rewriter.graph();
  const unsigned rows = *rowsOperand(writer);
  const TensorType declared = update.past->type();
  Shape shape(declared.shape().begin(), declared.shape().end());
  update.past->setType(TensorType(ElementType::Int8, shape));
  shape[columnAxis] = Dim::fixed(1);
  OverwrittenCodes written{};
  written.scalePast = &graph.addInput(graph.freshName(update.past->name().str() + "_scale"),
                                      TensorType(ElementType::Float, std::move(shape)));
  Node& rounded =
      rewriter.create("ai.kvopt::QuantizeRows", {writer.operand(rows)}, {}, 2, "row_codes");
  const auto place = [&](Value& past, Value& updates, bool isScale) -> Value& {
    llvm::SmallVector<Value*, 3> operands;
    for (const Use& use : writer.operands())
      operands.push_back(use.value());
    operands[0] = &past;
    operands[rows] = &updates;
    if (isScale && writer.is("ScatterElements")) {
      const auto one = [&](int64_t number) {
        return &rewriter.constant("column", int64Tensor({number}));
      };
      operands[1] =
          &rewriter
               .create("Slice", {operands[1], one(0), one(1), one(columnAxis)}, {}, 1, "row_places")
               .result();
    }
    return rewriter.createLike(writer, operands, isScale ? "placed_scales" : "placed_codes")
        .result();
  };
  written.codes = &place(*update.past, rounded.result(0), false);
  written.scales = &place(*written.scalePast, rounded.result(1), true);
  return written;
}

} // namespace kvopt::targets
