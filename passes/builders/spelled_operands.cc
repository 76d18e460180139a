// Chooses the operands by element type, checks how their shapes broadcast, and builds them.
#include "passes/builders/spelled_operands.h"

#include "ir/attribute.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/explain.h"
#include "support/format.h"

namespace kvopt::builders {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// `value` before a cast to another float type; null if there is none with element type `type`.
Value* beforeCast(Value& value, ElementType type) {
  Node* node = value.producer();
  if (!node || !node->is("Cast") || !node->operand(0) ||
      node->operand(0)->type().elementType() != type)
    return nullptr;
  return node->operand(0);
}

bool isStorageType(ElementType type) {
  return type == ElementType::Float || type == ElementType::Float16 ||
         type == ElementType::BFloat16;
}

/// The operand of the cast to double that produces the value; the value itself for other types.
Value& beforeDouble(Value& value) {
  if (value.type().elementType() == ElementType::Double)
    for (ElementType type : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
      if (Value* narrow = beforeCast(value, type))
        return *narrow;
  return value;
}

class OperandPlanner {
public:
  OperandPlanner(const ScoreChain& scoreChain, MatchFailure& reason)
      : chain(scoreChain), failure(reason) {}

  std::optional<SpelledOperands> plan(Value& values) {
    choose(values);
    if (!typesAgree() || !shapesAgree())
      return std::nullopt;
    return operands;
  }

private:
  Value*& keyOperand() { return operands.keyRows ? operands.keyRows : operands.keysTransposed; }

  void choose(Value& values) {
    operands.values = &beforeDouble(values);
    operands.query = chain.query;
    operands.keysTransposed = chain.keysTransposed;
    if (Node* transpose = operands.keysTransposed->producer()) {
      auto perm = transpose->intsAttr("perm");
      if (transpose->is("Transpose") && perm && *perm == llvm::ArrayRef<int64_t>{0, 1, 3, 2}) {
        operands.keyRows = transpose->operand(0);
        operands.keysTransposed = nullptr;
      }
    }
    ElementType type = operands.elementType();
    for (Value** operand : {&operands.query, &keyOperand()}) {
      *operand = &beforeDouble(**operand);
      if (type != ElementType::Float && (*operand)->type().elementType() == ElementType::Float)
        if (Value* narrow = beforeCast(**operand, type))
          *operand = narrow;
    }
  }

  bool typesAgree() {
    ElementType type = operands.elementType();
    ElementType ofKeys = keyOperand()->type().elementType();
    ElementType ofQuery = operands.query->type().elementType();
    // Factors are applied in the query's type and must not be rounded to it.
    bool roundsFactors = false;
    for (const RowFactor& factor : chain.rowFactors)
      roundsFactors |= type != ElementType::Float && factor.value->type().elementType() != type;
    if (isStorageType(type) && ofQuery == type && ofKeys == type && !roundsFactors)
      return true;
    failure = {ReasonCode::DtypeMix, labelOf(*chain.product),
               "queries, keys and values of one type: float, float16 or bfloat16",
               roundsFactors
                   ? "a factor of the queries in " + chain.rowFactors.front().value->type().str()
                   : operands.query->type().str() + ", " + keyOperand()->type().str() + " and " +
                         operands.values->type().str(),
               ""};
    return false;
  }

  bool refuse(ReasonCode code, const Value& at, std::string expected, std::string found) {
    failure = {code, at.name().str(), std::move(expected), std::move(found), ""};
    return false;
  }

  static ReasonCode codeFor(const Dim& a, const Dim& b) {
    return a.isUnknown() || b.isUnknown() ? ReasonCode::ShapeUnknown : ReasonCode::ShapeMismatch;
  }

  /// The products themselves require equal widths D and lengths T; they would broadcast batches and
  /// heads.
  bool shapesAgree() {
    const TensorType& values = operands.values->type();
    if (!values.hasRank())
      return refuse(ReasonCode::DynamicRank, *operands.values, "values of rank 4", values.str());
    if (values.rank() != 4)
      return refuse(ReasonCode::ShapeMismatch, *operands.values, "values [B,G,T,Dv]", values.str());
    const TensorType& query = operands.query->type();
    const TensorType& key = keyOperand()->type();
    for (const Value* operand : {keyOperand(), operands.values})
      if (!operand->type().dim(0).isKnownEqual(query.dim(0)))
        return refuse(codeFor(operand->type().dim(0), query.dim(0)), *operand,
                      formatted("the queries' batch {}", query.dim(0).str()),
                      operand->type().str());
    if (!key.dim(1).isKnownEqual(values.dim(1)))
      return refuse(ReasonCode::HeadCountUnproven, *keyOperand(),
                    "keys and values with one number of heads", key.str() + " and " + values.str());
    if (!key.dim(1).isKnownEqual(query.dim(1)) && key.dim(1).value() != 1)
      return refuse(ReasonCode::HeadCountUnproven, *keyOperand(),
                    "keys with the query's number of heads, or one",
                    query.str() + " and " + key.str());
    return true;
  }

  const ScoreChain& chain;
  MatchFailure& failure;
  SpelledOperands operands;
};

} // namespace

std::optional<SpelledOperands> planOperands(const ScoreChain& chain, Value& values,
                                            MatchFailure& failure) {
  return OperandPlanner(chain, failure).plan(values);
}

Value& buildQuery(const SpelledOperands& operands, const ScoreChain& chain, Rewriter& rewriter) {
  AttentionBuilder builder(rewriter);
  Value* query = operands.query;
  for (const RowFactor& factor : chain.rowFactors) {
    Value& number = builder.castTo(*factor.value, operands.elementType());
    query =
        &rewriter.create(factor.divides ? "Div" : "Mul", {query, &number}, {}, 1, "query").result();
  }
  return *query;
}

Value& buildKeys(const SpelledOperands& operands, Rewriter& rewriter) {
  if (operands.keyRows)
    return *operands.keyRows;
  return rewriter
      .create("Transpose", {operands.keysTransposed}, attrs({{"perm", {0, 1, 3, 2}}}), 1, "keys")
      .result();
}

} // namespace kvopt::builders
